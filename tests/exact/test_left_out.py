"""Modules whose `state_dict` leaves names out, a frozen part or all but LoRA's: they come back, or are refused by path."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import pytest
import torch
from torch import nn

from hinan.core.errors import CaptureError, StructureError
from tests.exact.twins import assert_resumes, training
from tests.trainer.helpers import bits, evacuate, through


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

    def build() -> nn.Module:
        return nn.Sequential(nn.Linear(4, 4), kind()) if is_child else kind()

    assert_resumes(training(build), at=(1, 3))


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
    if base is Lora:  # torch loads it, and nothing of this name: known before the first copy
        with pytest.raises(CaptureError, match=r"^m is a .*Adds whose state_dict\(\) has 'more', which no load_state_dict"):
            evacuate({"m": Adds()})
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
