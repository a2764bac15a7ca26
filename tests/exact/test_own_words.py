"""Modules whose own `state_dict` leaves names out, or takes no arguments: they come back, or are refused by path."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import pytest
import torch
from torch import nn

from hinan.core.errors import CaptureError, StructureError
from hinan.trainer.state.capture import Capture
from tests.exact.twins import Step, assert_resumes
from tests.trainer.helpers import bits, evacuate, install, through


def dropped(module: nn.Module, entries: dict[str, Any], prefix: str, about: Any) -> None:
    """A hook that leaves a frozen part out, as LPIPS does."""
    for name in [n for n in entries if n.startswith(f"{prefix}base.")]:
        del entries[name]


class Frozen(nn.Module):
    """A part that training never changes and another file brings."""

    def __init__(self) -> None:
        super().__init__()
        self.base, self.net = nn.Linear(4, 4), nn.Linear(4, 4)
        for parameter in self.base.parameters():
            nn.init.constant_(parameter, 0.5).requires_grad_(False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.base(x) + self.net(x)
        return y


class Hooked(Frozen):
    def __init__(self) -> None:
        super().__init__()
        self._register_state_dict_hook(dropped)


class Lora(Frozen):
    def state_dict(self, *arguments: Any, **options: Any) -> Any:
        return {n: v for n, v in super().state_dict(*arguments, **options).items() if not n.startswith("base.")}


class LoadsAlone(Lora):
    """Strict by itself, and says nothing of what torch found."""

    def load_state_dict(self, entries: Any) -> None:  # type: ignore[override]
        super().load_state_dict(entries)


class LoadsItsParts(nn.Module):
    """Strict in each part by itself."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = Frozen(), nn.Linear(4, 4)

    def forward(self, x: torch.Tensor) -> Any:
        return self.second(self.first(x))

    def state_dict(self, *arguments: Any, **options: Any) -> Any:
        return {n: v for n, v in super().state_dict(*arguments, **options).items() if ".base." not in n}

    def load_state_dict(self, entries: Any) -> None:  # type: ignore[override]
        for name, part in self.named_children():
            part.load_state_dict({n.removeprefix(f"{name}."): v for n, v in entries.items() if n.startswith(f"{name}.")})


class WithoutTorch(Lora):
    """Takes what it finds."""

    def load_state_dict(self, entries: Any, strict: bool = True) -> None:  # type: ignore[override]
        for name, parameter in self.named_parameters():
            if name in entries:
                parameter.data.copy_(entries[name])


class BringsBase(Lora):
    """Acts on what torch finds missing: that part comes from its own file."""

    def load_state_dict(self, entries: Any, strict: bool = True) -> Any:  # type: ignore[override]
        with torch.no_grad():
            self.base.weight.zero_()
        found = super().load_state_dict(entries, strict=False)
        assert set(found.missing_keys) == {"base.weight", "base.bias"}
        nn.init.constant_(self.base.weight, 0.5)
        return found


class Warm(Lora):
    """Means something by `strict`: without it this is a start from somebody else's weights."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("seen", torch.zeros(()), persistent=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen += 1
        return super().forward(x) * self.seen

    def state_dict(self, *arguments: Any, **options: Any) -> Any:
        return super().state_dict(*arguments, **options) | {"seen_before": self.seen}

    def load_state_dict(self, entries: Any, strict: bool = True) -> Any:  # type: ignore[override]
        rest = dict(entries)
        seen = rest.pop("seen_before")
        if strict:
            self.seen.copy_(seen)
        return super().load_state_dict(rest, strict=False)


class TakesMore(Warm):
    """Takes what torch does not expect, and leaves it in."""

    def load_state_dict(self, entries: Any, strict: bool = True) -> Any:  # type: ignore[override]
        self.seen.copy_(entries["seen_before"])
        return nn.Module.load_state_dict(self, entries, strict=False)


class NoExtra(Frozen):
    """Leaves extra states out, as is usual with those of 8-bit layers."""

    class Extra(nn.Linear):
        def get_extra_state(self) -> Any:
            return torch.ones(2)

        def set_extra_state(self, state: Any) -> None:
            raise AssertionError(state)

    def __init__(self) -> None:
        super().__init__()
        self.net = self.Extra(4, 4)

    def state_dict(self, *arguments: Any, **options: Any) -> Any:
        return {n: v for n, v in super().state_dict(*arguments, **options).items() if not n.endswith("_extra_state")}


class Delegates(nn.Module):
    """Says and loads what a part of it says and loads, under that part's names."""

    def __init__(self) -> None:
        super().__init__()
        self.inside = Hooked()

    def forward(self, x: torch.Tensor) -> Any:
        return self.inside(x)

    def state_dict(self, *arguments: Any, **options: Any) -> Any:
        return self.inside.state_dict(*arguments, **options)

    def load_state_dict(self, entries: Any, strict: bool = True, assign: bool = False) -> Any:
        return self.inside.load_state_dict(entries, strict, assign)


@pytest.mark.parametrize(("kind", "is_child"), [
    (Hooked, False), (Hooked, True), (Lora, False), (LoadsAlone, False), (LoadsItsParts, False), (WithoutTorch, False),
    (Delegates, False), (BringsBase, False), (Warm, False), (TakesMore, False), (NoExtra, False),
])  # fmt: skip
def test_what_a_module_leaves_out_is_not_missing(kind: type[nn.Module], is_child: bool) -> None:
    """Which names there are is compared before anything is written; loading asks for no others."""

    def make() -> tuple[dict[str, Any], Step]:
        own = kind()
        model = nn.Sequential(nn.Linear(4, 4), own) if is_child else own
        optim = torch.optim.AdamW([p for p in model.parameters() if p.requires_grad], lr=0.01)

        def step() -> torch.Tensor:
            optim.zero_grad()
            loss: torch.Tensor = model(torch.randn(3, 4)).square().mean()
            loss.backward()
            optim.step()
            return loss.detach()

        return {"model": model, "optim": optim}, step

    assert_resumes(make, at=(1, 3))


@pytest.mark.parametrize("base", [Lora, LoadsAlone, WithoutTorch])
def test_an_entry_that_nobody_takes_is_an_error_all_the_same(base: type[nn.Module]) -> None:
    """Who leaves names out is not loaded strictly; what he adds must find somebody still."""

    class Adds(base):  # type: ignore[misc, valid-type]
        def state_dict(self, *arguments: Any, **options: Any) -> Any:
            entries = super().state_dict(*arguments, **options)
            return entries | {"more": torch.ones(2)}

    if base is WithoutTorch:  # it alone knows what it has taken
        through({"m": Adds()}, {"m": Adds()})
        return
    with pytest.raises(StructureError, match=r"(?s)^m is a .*Adds that does not load .*nexpected.*more") as raised:
        through({"m": Adds()}, {"m": Adds()})
    assert raised.value.evidence["path"] == "m"


class Counts(Lora):
    """Takes its own entries out of what it is given, and leaves the rest to a strict torch."""

    def __init__(self, rank: int = 4) -> None:
        super().__init__()
        self.net = nn.Linear(4, rank)
        self.seen: Any = 0
        self.calls: list[Any] = []

    def state_dict(self, *arguments: Any, **options: Any) -> Any:
        return super().state_dict(*arguments, **options) | {"seen": self.seen}

    def load_state_dict(self, entries: Any, strict: bool = True) -> Any:
        self.calls.append((type(entries), strict))
        self.seen = entries.pop("seen", 0)
        return super().load_state_dict(entries, strict)


@pytest.mark.parametrize("seen", [41, torch.full((3,), 7.0)])
def test_it_is_loaded_once_as_its_user_would(seen: Any) -> None:
    saved, live = Counts(), Counts()
    saved.seen = seen
    through({"m": saved}, {"m": live})
    assert torch.equal(torch.as_tensor(live.seen), torch.as_tensor(seen))
    assert live.calls == [(OrderedDict, True)]
    assert not any(m._load_state_dict_post_hooks for m in live.modules())
    assert bits(live.net.weight) == bits(saved.net.weight)


def test_one_that_refuses_what_it_says_itself_is_refused_by_path() -> None:
    """Strict in its own words: `m.load_state_dict(m.state_dict())` fails as well, and what `strict` means only it knows."""

    class StrictByItself(Lora):
        def load_state_dict(self, entries: Any, strict: bool = True) -> None:  # type: ignore[override]
            for name, parameter in self.named_parameters():
                if name in entries or strict:
                    parameter.data.copy_(entries[name])

    with pytest.raises(StructureError, match=r"^m is a .*StrictByItself that does not load what it said.*KeyError.*base"):
        through({"m": StrictByItself()}, {"m": StrictByItself()})


def test_what_fails_in_it_is_neither_hidden_nor_tried_again() -> None:
    class Fails(Counts):
        def load_state_dict(self, entries: Any, strict: bool = True) -> Any:
            super().load_state_dict(entries, strict)
            raise ValueError("checksum")

    live = Fails()
    with pytest.raises(StructureError, match=r"^m is a .*Fails .*ValueError: checksum"):
        through({"m": Fails()}, {"m": live})
    assert live.calls == [(OrderedDict, True)]
    assert not any(m._load_state_dict_post_hooks for m in live.modules())


@pytest.mark.parametrize("kind", ["flat", "nested", "clones"])
def test_what_was_not_saved_is_missing_although_names_are_left_out(kind: str) -> None:
    """A live module with a part more says more: that part is not what it leaves out."""

    class Flat(LoadsAlone):
        pass

    class Nested(Frozen):
        def state_dict(self) -> Any:  # type: ignore[override]
            return {"net": self.net.state_dict()}

        def load_state_dict(self, entries: Any) -> None:  # type: ignore[override]
            self.net.load_state_dict(entries["net"])

    class Clones(Frozen):
        def state_dict(self) -> Any:  # type: ignore[override]
            return {f"my.{n}": v.clone() for n, v in super().state_dict().items() if n.startswith("net")}

        def load_state_dict(self, entries: Any) -> None:  # type: ignore[override]
            super().load_state_dict({n.removeprefix("my."): v for n, v in entries.items()})

    make: dict[str, type[Frozen]] = {"flat": Flat, "nested": Nested, "clones": Clones}
    through({"m": make[kind]()}, {"m": make[kind]()})
    saved, live = make[kind](), make[kind]()
    saved.net = nn.Linear(4, 4, bias=False)
    with pytest.raises(StructureError, match=r"(?s)^m is a .* that does not load .*Missing key.*bias"):
        through({"m": saved}, {"m": live})


@pytest.mark.filterwarnings("ignore:.torch.jit.script:DeprecationWarning")
def test_a_scripted_part_may_be_left_out() -> None:
    """It takes no hooks."""

    def make() -> nn.Module:
        model = Hooked()
        model.base = torch.jit.script(model.base)
        return model

    saved, live = make(), make()
    through({"m": saved}, {"m": live})
    assert bits(live.net.weight) == bits(saved.net.weight)  # type: ignore[union-attr, arg-type]


class Square(nn.Linear):
    def __init__(self) -> None:
        super().__init__(4, 4)


class Freezes(Square):
    """Gives a snapshot without gradients: harmless, as torch has detached it."""

    def state_dict(self, *arguments: Any, **options: Any) -> Any:
        return {n: v.requires_grad_(False) for n, v in super().state_dict(*arguments, **options).items()}


class Renames(Square):
    def state_dict(self, *arguments: Any, **options: Any) -> Any:
        return {f"my.{n}": v for n, v in super().state_dict(*arguments, **options).items()}

    def load_state_dict(self, entries: Any) -> Any:  # type: ignore[override]
        return super().load_state_dict({n.removeprefix("my."): v for n, v in entries.items()})


class Arrays(Square):
    def state_dict(self, *arguments: Any, **options: Any) -> Any:
        return {n: v.numpy() for n, v in super().state_dict(*arguments, **options).items()}

    def load_state_dict(self, entries: Any) -> Any:  # type: ignore[override]
        return super().load_state_dict({n: torch.from_numpy(v) for n, v in entries.items()})


class InPlace(Square):
    def state_dict(self, *arguments: Any, **options: Any) -> Any:
        entries = super().state_dict(*arguments, **options)
        entries["weight"].mul_(1.0)
        return entries


@pytest.mark.parametrize("kind", [Freezes, Renames, Arrays, InPlace])
def test_what_it_says_is_asked_for_as_its_user_would(kind: type[nn.Module]) -> None:
    """It gets detached tensors; the live ones are as they were, and still those of the optimizer, whatever their names."""

    def make() -> tuple[dict[str, Any], Step]:
        model = kind()
        optim = torch.optim.SGD(model.parameters(), lr=0.1)

        def step() -> torch.Tensor:
            loss: torch.Tensor = model(torch.randn(3, 4)).square().mean()
            optim.zero_grad()
            loss.backward()
            optim.step()
            return loss.detach()

        return {"model": model, "optim": optim}, step

    if kind in (Freezes, Renames):
        assert_resumes(make, at=(1, 3))
    state, step = make()
    step()
    live, _ = make()
    weight = state["model"].weight
    assert bits(through(state, live)["model"].weight) == bits(weight)
    before = weight.requires_grad, id(weight.grad), bits(weight.grad)
    found = Capture(state).take()
    assert (weight.requires_grad, id(weight.grad), bits(weight.grad)) == before
    if kind is not Arrays:
        assert any(tensor is weight for tensor in found.tensors.values())
        assert list(found.gates.values()) == [("optim",)] * 2


def test_tensors_that_only_look_like_the_modules_own_are_kept_as_they_are() -> None:
    """Views of other dtypes, shapes and signs are read otherwise; ties stay ties."""

    class Views(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Parameter(torch.randn(2, 2, dtype=torch.complex64))
            self.b, self.none = self.a, nn.Parameter(torch.empty(0))

        def state_dict(self, *arguments: Any, **options: Any) -> Any:
            said = super().state_dict(*arguments, **options)
            return said | {"c": said["a"].conj(), "t": said["a"].t(), "v": torch.view_as_real(said["a"]), "x": said["b"]}

    model = Views()
    tensors = Capture({"m": model}).take().tensors
    for name, value in model.state_dict().items():
        assert bits(tensors[f"m.{name}"]) == bits(value), name
    assert {n for n, t in tensors.items() if t is model.a} == {"m.a", "m.b", "m.x"}
    assert tensors["m.none"] is model.none


class NoArguments(nn.Module):
    """Legal for the module at the top: torch gives arguments to children alone."""

    def __init__(self) -> None:
        super().__init__()
        self.net, self.seen = nn.Linear(4, 2), 0

    def state_dict(self) -> Any:  # type: ignore[override]
        return {"net": self.net.state_dict(), "seen": self.seen}

    def load_state_dict(self, entries: Any) -> None:  # type: ignore[override]
        self.net.load_state_dict(entries["net"])
        self.seen = entries["seen"]


class NoArgumentsFlat(NoArguments):
    def state_dict(self) -> Any:  # type: ignore[override]
        return nn.Module.state_dict(self)

    def load_state_dict(self, entries: Any) -> None:  # type: ignore[override]
        nn.Module.load_state_dict(self, entries)
        self.seen = 3


@pytest.mark.parametrize("kind", [NoArguments, NoArgumentsFlat])
def test_methods_without_arguments_are_called_so(kind: type[NoArguments]) -> None:
    saved, live = kind(), kind()
    saved.seen = 3
    capture = Capture({"m": saved})
    assert capture.take().values == capture.take().values
    through({"m": saved}, {"m": live})
    assert (bits(live.net.weight), bits(live.net.bias), live.seen) == (bits(saved.net.weight), bits(saved.net.bias), 3)


def test_what_cannot_be_called_is_refused_before_the_first_copy() -> None:
    """A module that could be saved and not come back, and one that does not answer: by path, with the way out."""

    class TwoStates(nn.Linear):
        def load_state_dict(self, entries: Any, other: Any) -> Any:  # type: ignore[override]
            return super().load_state_dict(entries)

    class NeedsMore(nn.Linear):
        def state_dict(self, where: Any) -> Any:  # type: ignore[override]
            return super().state_dict()

    class Nothing(nn.Linear):
        def state_dict(self, *arguments: Any, **options: Any) -> Any:
            return None

    class Numbered(nn.Linear):
        def state_dict(self, *arguments: Any, **options: Any) -> Any:
            return {"weight": self.weight, "bias": self.bias, 5: "five"}

    refused = {
        TwoStates: r"load_state_dict\(\) cannot be called",
        NeedsMore: "where",
        Nothing: "NoneType",
        Numbered: "its key 5",
    }
    for kind, what in refused.items():
        with pytest.raises(CaptureError, match=rf"^cfg\.m is a .*{kind.__name__} .*{what}.*put its parts"):
            evacuate({"cfg": {"m": kind(2, 2)}})
    image, small, _ = evacuate({"cfg": {"m": nn.Linear(2, 2)}})
    live = TwoStates(2, 2)
    before = bits(live.weight)
    with pytest.raises(CaptureError, match=r"^cfg\.m is a .*TwoStates"):
        install(image, small, {"cfg": {"m": live}})
    assert bits(live.weight) == before


@pytest.mark.parametrize("kind", ["module", "extra", "object", "optimizer", "scaler"])
def test_what_fails_in_a_load_of_the_users_is_said_with_its_path(kind: str) -> None:
    class Fails:
        def load_state_dict(self, *arguments: Any, **options: Any) -> Any:
            raise KeyError("gone")

    class Object(Fails):
        def state_dict(self) -> Any:
            return {}

    class Module(Fails, nn.Linear):
        pass

    class Extra(nn.Linear):
        def get_extra_state(self) -> Any:
            return 1

        def set_extra_state(self, state: Any) -> None:
            raise KeyError("gone")

    class Optimizer(Fails, torch.optim.SGD):
        pass

    class Scaler(Fails, torch.amp.GradScaler):
        pass

    made: dict[str, Any] = {
        "module": lambda: Module(2, 2), "extra": lambda: nn.Sequential(Extra(2, 2)), "object": Object,
        "optimizer": lambda: Optimizer([nn.Parameter(torch.ones(1))]), "scaler": lambda: Scaler("cpu"),
    }  # fmt: skip
    with pytest.raises(StructureError, match=r"^cfg\.it.* does not load .*KeyError: 'gone'.*written in part") as raised:
        through({"cfg": {"it": made[kind]()}}, {"cfg": {"it": made[kind]()}})
    assert isinstance(raised.value.__cause__, KeyError)
