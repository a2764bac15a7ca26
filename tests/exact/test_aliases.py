"""Tensors that share bytes go on sharing them, also where the restore had to make them anew."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

import hinan
from tests.exact.twins import Step, assert_resumes, evacuated, restored


class Lookahead(torch.optim.Optimizer):
    """An optimizer whose state refers to what it trains and to itself: the weight, a row of it, one tensor twice, and two
    halves of a flat buffer, the second reaching into the first. All are written in place and read in another step."""

    def __init__(self, parameters: Any, everywhere: bool) -> None:
        super().__init__(parameters, {})
        self.everywhere = everywhere

    @torch.no_grad()
    def step(self) -> None:  # type: ignore[override]
        for p in (p for group in self.param_groups for p in group["params"]):
            entry = self.state[p]
            if not entry:
                flat = torch.zeros(6)
                entry.update(halves=[flat[:4], flat[2:]], slow=torch.zeros_like(p), n=0)
                entry["same"] = entry["slow"]
                entry["column"] = entry["slow"][:, 1]
                if self.everywhere:
                    entry.update(weight=p.detach(), row=p.detach()[1], words=p.detach().view(torch.int32)[:1])
            entry["n"] += 1
            p.add_(p.grad, alpha=-0.1)
            entry["same"].add_(p).mul_(0.7)
            entry["column"].add_(1)
            entry["halves"][0].add_(p.sum())
            entry["halves"][1].mul_(0.5)
            p.add_(entry["slow"], alpha=0.1).add_(entry["halves"][1][0], alpha=0.01)
            if self.everywhere:
                entry["row"].mul_(0.9)
                entry["weight"].add_(0.01)
                entry["words"].bitwise_and_(~1)


def lookahead(everywhere: bool = True, first: str = "model", transposed: bool = False) -> tuple[dict[str, Any], Step]:
    """A weight under `Lookahead`; `first` in the state comes the model or the optimizer."""
    model = nn.Linear(3, 3, bias=False)
    if transposed:
        model.weight = nn.Parameter(torch.randn(3, 3).t())
    optim = Lookahead(model.parameters(), everywhere)

    def step() -> torch.Tensor:
        optim.zero_grad()
        loss = model(torch.randn(4, 3)).square().mean()
        loss.backward()
        optim.step()
        return loss.detach()

    parts = {"model": model, "optim": optim}
    return {key: parts[key] for key in sorted(parts, reverse=first == "optim")}, step


@pytest.mark.parametrize("transposed", [False, True], ids=["", "transposed"])
@pytest.mark.parametrize("first", ["model", "optim"])
@pytest.mark.parametrize("everywhere", [True, False], ids=["with weights", "among themselves"])
def test_aliases_in_optimizer_state(everywhere: bool, first: str, transposed: bool) -> None:
    """D7: what the state shares with weights, or with itself, it shares after the restore; stored once."""
    _, resumed = assert_resumes(lambda: lookahead(everywhere, first, transposed), at=(1, 3), used=1)
    w = resumed["model"].weight
    entry = resumed["optim"].state[w]
    assert entry["same"].data_ptr() == entry["slow"].data_ptr()
    assert entry["halves"][1].data_ptr() == entry["halves"][0][2].data_ptr()
    if everywhere:
        assert entry["weight"].data_ptr() == w.data_ptr()


def test_aliases_in_containers_that_were_empty() -> None:
    """Values that are new in a dict or a list, among themselves and with a live tensor."""

    def make() -> tuple[dict[str, Any], Step]:
        state: dict[str, Any] = {"w": torch.randn(4, 2), "seen": {}, "list": []}

        def step() -> torch.Tensor:
            if not state["seen"]:
                ring = torch.zeros(3, dtype=torch.float64)
                state["seen"] = {"w": state["w"], "row": state["w"][2], "ring": ring}
                state["list"] += [ring, (state["w"].view(-1)[3:5], ring[1:])]
            state["seen"]["row"].add_(torch.randn(2))
            state["list"][1][0].mul_(0.5)
            state["list"][1][1].add_(state["w"].sum())
            return torch.stack([state["w"].sum().double(), state["list"][0].sum(), state["seen"]["ring"][1]])

        return state, step

    assert_resumes(make, at=(1, 2))
    assert_resumes(make, at=0)


def test_what_a_load_state_dict_is_given_is_its_own() -> None:
    """An object of the user's may keep, or change, what it is handed: nothing live may lie under it. What was one tensor in
    there is one storage."""

    class Keeps:
        def __init__(self, w: torch.Tensor) -> None:
            self.kept = w

        def state_dict(self) -> Any:
            return {"w": self.kept, "again": self.kept}

        def load_state_dict(self, state: Any) -> None:
            assert state["again"] is not state["w"]
            state["again"].add_(1)
            self.kept = state["w"]

    w, live = torch.randn(3), torch.zeros(3)
    target = {"w": live, "k": Keeps(live), "l": []}
    restored(*evacuated({"w": w, "k": Keeps(w), "l": [w]}), target)
    assert torch.equal(live, w)
    assert torch.equal(target["k"].kept, w + 1)
    assert target["l"][0].data_ptr() == live.data_ptr()


class Ring:
    """Keeps what it is given: a buffer, and the row that it writes through."""

    def __init__(self) -> None:
        self.buffer = torch.zeros(3, 4)
        self.row = self.buffer[1]

    def push(self) -> torch.Tensor:
        self.row.add_(torch.randn(4))
        return self.buffer.sum()

    def state_dict(self) -> Any:
        return {"buffer": self.buffer, "inner": [{"row": self.row}]}

    def load_state_dict(self, state: Any) -> None:
        self.buffer, self.row = state["buffer"], state["inner"][0]["row"]


class Inside(Ring, nn.Module):
    """A module that says itself: the buffer is a tensor of its state_dict, the row is in an entry that is none."""

    def __init__(self) -> None:
        nn.Module.__init__(self)
        Ring.__init__(self)

    def state_dict(self, *arguments: Any, **options: Any) -> Any:
        return Ring.state_dict(self)

    def load_state_dict(self, state: Any, strict: bool = True, assign: bool = False) -> Any:
        Ring.load_state_dict(self, state)


class Extra(Inside):
    """Its extra state is the ring."""

    state_dict = nn.Module.state_dict  # type: ignore[assignment]
    load_state_dict = nn.Module.load_state_dict  # type: ignore[assignment]

    def get_extra_state(self) -> Any:
        return Ring.state_dict(self)

    def set_extra_state(self, state: Any) -> None:
        Ring.load_state_dict(self, state)


class Coded(Ring):
    """Carried by a codec."""


class Loader(Ring, torch.utils.data.DataLoader[Any]):
    """A loader that keeps a position, the ring."""

    def __init__(self) -> None:
        torch.utils.data.DataLoader.__init__(self, [1])  # type: ignore[arg-type]
        Ring.__init__(self)

    @property
    def next_iter_state(self) -> Any:
        return Ring.state_dict(self)


def coded(values: Any) -> Coded:
    made = Coded()
    made.load_state_dict(values)
    return made


hinan.register_codec(Coded, "tests.ring", lambda ring: ring.state_dict(), coded)


@pytest.mark.parametrize("kind", [Ring, Inside, Extra, Coded, Loader])
def test_aliases_in_what_an_object_is_given(kind: type[Ring]) -> None:
    """An object that keeps what it is given writes through one and reads through the other, whoever carries it."""

    def make() -> tuple[dict[str, Any], Step]:
        state = {"objects": [kind()]}
        return state, lambda: state["objects"][0].push()

    _, resumed = assert_resumes(make, at=(1, 2))
    assert resumed["objects"][0].row.data_ptr() == resumed["objects"][0].buffer[1].data_ptr()


def test_aliases_between_an_object_that_is_gone_and_what_is_beside_it() -> None:
    """Where nothing takes its state, an object comes back as the values that it gave: they are part of the state."""
    ring = Ring()
    target: dict[str, Any] = {"d": {}}
    restored(*evacuated({"d": {"ring": ring, "row": ring.row}}), target)
    assert target["d"]["row"].data_ptr() == target["d"]["ring"]["buffer"][1].data_ptr()


def test_values_count_where_the_live_tensor_has_another_layout() -> None:
    """A view is found by the saved strides: where the live tensor has others, a row stays right and is a tensor of its
    own; the same tensor under two names is one whatever its strides."""
    base, live = torch.randn(3, 3), torch.zeros(3, 3).t()
    target: dict[str, Any] = {"w": live, "l": []}
    restored(*evacuated({"w": base, "l": [base[1], base]}), target)
    assert torch.equal(live, base)
    assert torch.equal(target["l"][0], base[1])
    assert target["l"][1].data_ptr() == live.data_ptr()
    turned, live = torch.randn(4, 3).t(), torch.zeros(4, 3).t()
    target = {"w": live, "l": []}
    restored(*evacuated({"w": turned, "l": [turned]}), target)
    assert torch.equal(target["l"][0], turned)
    assert target["l"][0].data_ptr() == live.data_ptr()


def test_live_moments_that_are_apart_come_together() -> None:
    """A live optimizer's moments are written in place, but not those that were one tensor when they were saved."""

    def made() -> tuple[nn.Parameter, torch.optim.Optimizer]:
        p = nn.Parameter(torch.zeros(3))
        return p, torch.optim.SGD([p])

    (p, saved), (q, live) = made(), made()
    one = torch.randn(3)
    saved.state[p] = {"a": one, "b": one, "c": torch.randn(3)}
    live.state[q] = {name: torch.zeros(3) for name in "abc"}
    kept = live.state[q]["c"]
    restored(*evacuated({"o": saved}), {"o": live})
    assert live.state[q]["a"].data_ptr() == live.state[q]["b"].data_ptr()
    assert live.state[q]["c"] is kept
