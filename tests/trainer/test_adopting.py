"""Moments of an image that was read into memory of our own are kept where they lie; the rest of it is given back."""

from __future__ import annotations

import mmap
import os
import zlib
from typing import Any

import pytest
import torch

from hinan.tiers.mapping import anonymous, read_header
from hinan.trainer.install import Matcher
from hinan.trainer.saved import SavedTensors
from tests.trainer.helpers import bits, evacuate

LARGE = (1100, 1000)
"""4.4 MB in fp32: above the size from which a tensor is adopted."""


def trained(steps: int, seed: int = 0) -> dict[str, Any]:
    torch.manual_seed(seed)
    parameters = [torch.nn.Parameter(torch.randn(*shape)) for shape in (LARGE, (7,))]
    optim = torch.optim.AdamW(parameters, lr=0.01)
    for _ in range(steps):
        for p in parameters:
            p.grad = torch.randn_like(p)
        optim.step()
    return {"parameters": parameters, "optim": optim}


def read(state: dict[str, Any], *, is_ours: bool = True) -> tuple[memoryview, SavedTensors, dict[str, Any]]:
    """A state's image as a restore from a disk has it."""
    image, small, _ = evacuate(state)
    memory = anonymous(len(image))
    memory[:] = image
    return memory, SavedTensors(memory, read_header(memory, "image")[1], is_ours=is_ours), small


def restore(saved: SavedTensors, small: dict[str, Any], live: dict[str, Any]) -> None:
    for write in Matcher(saved, live).match(small["state"], live):
        write()
    saved.let_go()


def moments(state: dict[str, Any]) -> list[torch.Tensor]:
    return [t for entry in state["optim"].state.values() for t in entry.values()]


def lies_in(tensor: torch.Tensor, memory: memoryview) -> bool:
    start = torch.frombuffer(memory, dtype=torch.uint8).data_ptr()
    return start <= tensor.data_ptr() < start + len(memory)


def same(a: dict[str, Any], b: dict[str, Any]) -> bool:
    mine, other = ([*s["parameters"], *moments(s)] for s in (a, b))
    return [bits(t) for t in mine] == [bits(t) for t in other]


def test_large_moments_stay_where_they_were_read_and_all_else_is_copied() -> None:
    state, live = trained(2), trained(0, seed=1)
    memory, saved, small = read(state)
    restore(saved, small, live)
    assert same(state, live)
    assert [t.shape for t in moments(live) if lies_in(t, memory)] == [LARGE, LARGE]
    assert not any(lies_in(p, memory) for p in live["parameters"])
    assert all(t.untyped_storage().nbytes() == t.nbytes for t in moments(live))


def test_what_was_not_adopted_is_given_back() -> None:
    """The pages of parameters are new and empty: nothing else may have looked at them."""
    state, live = trained(2), trained(0)
    memory, saved, small = read(state)
    entry = read_header(memory, "image")[1].by_name["parameters.[0]"]
    restore(saved, small, live)
    inside = slice(entry.offset + mmap.PAGESIZE, entry.offset + entry.size_bytes - mmap.PAGESIZE)
    assert not any(memory[inside])
    assert same(state, live)


def test_forked_children_see_adopted_moments() -> None:
    state, live = trained(2), trained(0)
    _, saved, small = read(state)
    restore(saved, small, live)
    arrays = [t.numpy() for t in moments(live)]
    sums = [zlib.crc32(a.data) for a in arrays]
    child = os.fork()
    if child == 0:  # nothing of torch here: its threads are not in the child
        os._exit(0 if [zlib.crc32(a.data) for a in arrays] == sums else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_training_goes_on_from_adopted_moments_bit_for_bit() -> None:
    state, live = trained(2), trained(0)
    _, saved, small = read(state)
    restore(saved, small, live)
    for one in (state, live):
        torch.manual_seed(5)
        for p in one["parameters"]:
            p.grad = torch.randn_like(p)
        one["optim"].step()
    assert same(state, live)


def test_adopted_moments_are_written_in_place_by_the_next_restore() -> None:
    first, second, live = trained(2), trained(3), trained(0)
    _, saved, small = read(first)
    restore(saved, small, live)
    places = [t.data_ptr() for t in moments(live)]
    memory, saved, small = read(second)
    restore(saved, small, live)
    assert same(second, live)
    assert [t.data_ptr() for t in moments(live)] == places
    assert not any(lies_in(t, memory) for t in moments(live))


def test_nothing_of_a_slot_is_adopted() -> None:
    state, live = trained(2), trained(0)
    memory, saved, small = read(state, is_ours=False)
    restore(saved, small, live)
    assert same(state, live)
    assert not any(lies_in(t, memory) for t in moments(live))


@pytest.mark.parametrize("kind", ["two names", "overlapping"])
def test_moments_that_share_bytes_are_not_adopted(kind: str) -> None:
    """Who shares with whom is settled by `aliases`, from bytes of its own."""
    state, live = trained(1), trained(0)
    entry = next(iter(state["optim"].state.values()))
    if kind == "two names":
        entry["again"] = entry["exp_avg"]
    else:
        entry["exp_avg"], entry["exp_avg_sq"] = torch.randn(LARGE[0] + 1, LARGE[1]).unfold(0, LARGE[0], 1).permute(0, 2, 1)
    memory, saved, small = read(state)
    restore(saved, small, live)
    assert same(state, live)
    shared = [t for t in moments(live) if lies_in(t, memory)]
    assert len({t.data_ptr() for t in shared}) == len(shared)
    mine = next(iter(live["optim"].state.values()))
    mine["exp_avg"][1, 1] = 99.0
    other = mine["again"][1, 1] if kind == "two names" else mine["exp_avg_sq"][0, 1]
    assert other == 99.0


def test_what_lies_otherwise_than_torch_would_put_it_is_copied() -> None:
    """A matrix product may depend on where its operands lie."""
    odd = torch.nn.Parameter(torch.randn(LARGE[0], LARGE[1] + 1))
    live = {"parameters": [odd], "optim": torch.optim.AdamW([odd])}
    odd.grad = torch.randn_like(odd)
    live["optim"].step()
    memory, saved, small = read(live)
    live["optim"].state.clear()
    restore(saved, small, live)
    large = [t for t in moments(live) if t.numel() > 1]
    assert [lies_in(t, memory) for t in large] != [True, True]
    assert all(t.data_ptr() % 64 == 0 for t in large)


def test_each_is_given_away_once() -> None:
    memory, saved, _ = read(trained(1))
    name = next(name for name in read_header(memory, "image")[1].by_name if name.endswith("exp_avg"))
    assert saved.adopt(name) is not None
    assert saved.adopt(name) is None
