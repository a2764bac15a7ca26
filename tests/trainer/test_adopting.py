"""Large moments are taken out of an image that was read into memory of our own; nothing else of it outlives the restore."""

from __future__ import annotations

import gc
import mmap
import os
import re
import weakref
import zlib
from pathlib import Path
from typing import Any, ClassVar

import pytest
import torch

from hinan.tiers import mapping
from hinan.tiers.mapping import anonymous, let_go, read_header, take_out
from hinan.trainer.restoring import saved as saved_module
from hinan.trainer.restoring.install import Matcher
from hinan.trainer.restoring.saved import SavedTensors
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


def moments(state: dict[str, Any]) -> list[torch.Tensor]:
    return [t for entry in state["optim"].state.values() for t in entry.values()]


def taken_out(tensor: torch.Tensor) -> bool:
    """Whether a tensor lies in memory that hinan has mapped for it alone."""
    return any(start <= tensor.data_ptr() < start + size for start, size in TAKEN)


TAKEN: list[tuple[int, int]] = []
"""(address, bytes) of what this test has taken out of images."""


@pytest.fixture(autouse=True)
def _watched(monkeypatch: pytest.MonkeyPatch) -> None:
    TAKEN.clear()

    def watched(view: memoryview) -> memoryview | None:
        memory = take_out(view)
        if memory is not None:
            TAKEN.append((torch.frombuffer(memory, dtype=torch.uint8).data_ptr(), len(memory)))
        return memory

    monkeypatch.setattr(saved_module, "take_out", watched)


def same(a: dict[str, Any], b: dict[str, Any]) -> bool:
    mine, other = ([*s["parameters"], *moments(s)] for s in (a, b))
    return [bits(t) for t in mine] == [bits(t) for t in other]


def test_large_moments_are_taken_out_and_all_else_is_copied() -> None:
    state, live = trained(2), trained(0, seed=1)
    memory, saved, small = read(state)
    restore(saved, small, live)
    assert same(state, live)
    assert [t.shape for t in moments(live) if taken_out(t)] == [LARGE, LARGE]
    assert not any(taken_out(p) for p in live["parameters"])
    assert all(t.untyped_storage().nbytes() == t.nbytes for t in moments(live))
    assert not any(lies_in(t, memory) for t in [*moments(live), *live["parameters"]])


def lies_in(tensor: torch.Tensor, memory: memoryview) -> bool:
    start = torch.frombuffer(memory, dtype=torch.uint8).data_ptr()
    return start <= tensor.data_ptr() < start + len(memory)


def test_the_image_ends_with_the_restore() -> None:
    """Without the collector of cycles: nothing of gigabytes may wait for that."""
    state, live = trained(2), trained(0)
    memory, saved, small = read(state)
    image = weakref.ref(memory.obj)
    gc.disable()
    try:
        restore(saved, small, live)
        del saved, memory
        assert image() is None
    finally:
        gc.enable()
    assert same(state, live)


def test_each_moment_gives_its_memory_back_when_it_and_its_views_are_gone() -> None:
    """Whatever else lives: a group taken out of an optimizer must not cost its moments for as long as another one stays."""
    state, live = trained(2), trained(0)
    _, saved, small = read(state)
    restore(saved, small, live)
    del saved
    first, second = (t for t in moments(live) if taken_out(t))
    wanted = bits(second)
    view, place = first[3], first.data_ptr()
    live["optim"].state.clear()
    del first
    assert _resident(place) > 4000
    del view
    assert _resident(place) < 4000
    assert bits(second) == wanted


def _resident(address: int) -> int:
    """KiB in RAM of the mapping at an address; 0 if there is none."""
    kib, inside = 0, False
    for line in Path("/proc/self/smaps").read_text().splitlines():
        if match := re.match(r"([0-9a-f]+)-([0-9a-f]+) ", line):
            inside = int(match[1], 16) <= address + (1 << 20) < int(match[2], 16)
        elif inside and line.startswith("Rss:"):
            kib += int(line.split()[1])
    return kib


@pytest.mark.parametrize(
    ("start", "size_bytes"), [(0, 1 << 22), (5000, 1 << 22), (1 << 21, 3 << 21), (64, 9000), (64, 100)]
)
def test_what_is_taken_out_is_the_same_and_its_neighbours_stay(start: int, size_bytes: int) -> None:
    memory = anonymous(8 << 20)
    memory[:] = before = os.urandom(8 << 20)
    end = start + size_bytes
    taken = take_out(memory[start:end])
    if size_bytes < mmap.PAGESIZE:
        assert taken is None
    else:
        assert taken == before[start:end]
        taken[:] = bytes(size_bytes)
    assert (memory[:start], memory[end:]) == (before[:start], before[end:])


def test_where_the_system_cannot_move_pages_moments_are_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mapping, "_MREMAP_MOVE", 1 << 20)
    state, live = trained(2), trained(0)
    memory, saved, small = read(state)
    restore(saved, small, live)
    assert same(state, live)
    assert not TAKEN
    assert not any(lies_in(t, memory) for t in moments(live))


class Keeps(torch.nn.Linear):
    """Keeps, and changes, what its `load_state_dict` is given; as quantised layers and loaders with assign=True do."""

    def __init__(self, value: float) -> None:
        super().__init__(8, 8)
        self.scales, self.tied = torch.full((1 << 18,), value), None

    def _save_to_state_dict(self, destination: dict[str, Any], prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination[prefix + "scales"] = destination[prefix + "again"] = self.scales

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *rest: Any) -> None:
        self.scales, self.tied = state_dict.pop(prefix + "scales"), state_dict.pop(prefix + "again")
        self.scales.mul_(2)
        super()._load_from_state_dict(state_dict, prefix, *rest)


@pytest.mark.parametrize("is_ours", [True, False])
def test_a_module_may_keep_what_its_load_state_dict_is_given(is_ours: bool) -> None:
    """From a disk as from RAM: it lies in no memory that ends with the restore or is the arena's, also in a child."""
    state, live = trained(2) | {"m": Keeps(3.0)}, trained(0) | {"m": Keeps(0.0)}
    memory, saved, small = read(state, is_ours=is_ours)
    restore(saved, small, live)
    module = live["m"]
    assert not lies_in(module.scales, memory)
    assert module.tied.data_ptr() == module.scales.data_ptr()
    if not is_ours:
        let_go(memory)
    del saved, memory
    assert module.scales.unique().tolist() == [6.0]
    array = module.scales.numpy()
    child = os.fork()
    if child == 0:
        os._exit(0 if zlib.crc32(array.data) == zlib.crc32((array * 1).data) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_no_tensor_over_an_image_is_to_be_had() -> None:
    """What has the image's memory is no tensor; whatever makes one of it makes a copy."""
    memory, saved, _ = read(trained(1), is_ours=False)
    one = saved["parameters.[0]"]
    assert not isinstance(one, torch.Tensor)
    made = [one.copy(), one.laid_out((1, LARGE[0])), torch.from_numpy(one.array()), saved.whole("parameters.[0]")]
    assert not any(lies_in(tensor, memory) for tensor in made)


class Nosy(torch.Tensor):
    """A tensor of the user's, who sees what is done with it."""

    seen: ClassVar[list[torch.Tensor]] = []

    @classmethod
    def __torch_function__(cls, function: Any, types: Any, arguments: Any = (), options: Any = None) -> Any:
        cls.seen += [a for a in arguments if isinstance(a, torch.Tensor)]
        return super().__torch_function__(function, types, arguments, options or {})


def test_a_tensor_of_the_users_sees_nothing_of_the_image() -> None:
    """Lazily conjugated memory is written by torch's own copy, which asks a subclass how."""
    value = torch.randn(64, dtype=torch.complex64)
    memory, saved, small = read({"t": value})
    live = torch.zeros(64, dtype=torch.complex64).conj().as_subclass(Nosy)
    assert live.is_conj()
    restore(saved, small, {"t": live})
    assert not any(lies_in(t, memory) for t in Nosy.seen if type(t) is torch.Tensor and not t.is_conj())
    assert bits(live.as_subclass(torch.Tensor)) == bits(value)


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
    _, saved, small = read(second)
    restore(saved, small, live)
    assert same(second, live)
    assert [t.data_ptr() for t in moments(live)] == places
    assert not any(taken_out(t) for t in moments(live) if t.data_ptr() not in places)
    assert len(TAKEN) == 2


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
    assert not any(lies_in(t, memory) for t in moments(live))
    shared = [t for t in moments(live) if taken_out(t)]
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
    _, saved, small = read(live)
    live["optim"].state.clear()
    restore(saved, small, live)
    large = [t for t in moments(live) if t.numel() > 1]
    assert [taken_out(t) for t in large] != [True, True]
    assert all(t.data_ptr() % 64 == 0 for t in large)


def test_each_is_given_away_once() -> None:
    memory, saved, _ = read(trained(1))
    name = next(name for name in read_header(memory, "image")[1].by_name if name.endswith("exp_avg"))
    assert saved.adopt(name) is not None
    assert saved.adopt(name) is None


def test_only_so_many_are_adopted(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each takes mappings of the process, which are limited."""
    monkeypatch.setattr(saved_module, "MOST_ADOPTED", 1)
    state, live = trained(2), trained(0)
    _, saved, small = read(state)
    restore(saved, small, live)
    assert same(state, live)
    assert len([t for t in moments(live) if taken_out(t)]) == 1


def test_after_a_first_refusal_no_more_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[int] = []
    monkeypatch.setattr(saved_module, "take_out", lambda view: asked.append(len(view)))
    state, live = trained(2), trained(0)
    _, saved, small = read(state)
    restore(saved, small, live)
    assert same(state, live)
    assert len(asked) == 1


def test_pages_that_children_would_not_inherit_are_put_back(monkeypatch: pytest.MonkeyPatch) -> None:
    memory = anonymous(8 << 20)
    memory[:] = before = os.urandom(8 << 20)
    advise = mapping._madvise
    monkeypatch.setattr(mapping, "_madvise", lambda *a: -1 if a[2] == mmap.MADV_DOFORK else advise(*a))
    assert take_out(memory[5000 : 5 << 20]) is None
    assert memory == before
