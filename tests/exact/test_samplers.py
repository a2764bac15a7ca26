"""Orders of samples that torchdata's position does not say: drawn as an epoch begins, or told by the loop (A-EXACT-2)."""

from __future__ import annotations

import copy
import gc
import random
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import torch
from torch.utils import data
from torchdata.stateful_dataloader import StatefulDataLoader

from hinan.core.errors import StructureError
from hinan.trainer.state.capture import Capture
from tests.exact.twins import Step, assert_resumes, evacuated, restored, seed

COUNT, BATCH = 10, 3
STEPS, STOPS = 13, (6, 8, 9)
"""Of epochs of four steps: twice in the middle of the second one, and in the third."""

pytestmark = pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")  # torchdata says it to each loader


class Samples(data.Dataset[torch.Tensor]):
    """Numbers that depend on the epoch, which the loop sets."""

    epoch = 0

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor(float(index + 100 * self.epoch))


class Still(Samples):
    """Numbers alone: workers that persist have the dataset of the first epoch."""

    epoch = property(lambda self: 0, lambda self, epoch: None)  # type: ignore[assignment]


class ByEpoch(data.Sampler[int]):
    """Shuffles by the epoch that it is told."""

    epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return COUNT

    def __iter__(self) -> Iterator[int]:
        return iter(torch.randperm(COUNT, generator=torch.Generator().manual_seed(self.epoch)).tolist())


class Drawn(ByEpoch):
    """Shuffles by Python's and NumPy's generators, as samplers of buckets do."""

    def __iter__(self) -> Iterator[int]:
        order = np.random.permutation(COUNT).tolist()
        random.shuffle(order)
        return iter(order)


class OneByOne(Drawn):
    """Draws each sample as it is asked for."""

    def __iter__(self) -> Iterator[int]:
        yield from (random.randrange(COUNT) for _ in range(COUNT))


class WithItsOwn(ByEpoch):
    """Shuffles by generators of its own, whatever they are called, and by that of a sampler inside it."""

    def __init__(self) -> None:
        self.numbers, self.more, self.g = np.random.default_rng(7), random.Random(8), own()
        self.inside = data.WeightedRandomSampler(torch.ones(COUNT).tolist(), COUNT, generator=own())

    def __iter__(self) -> Iterator[int]:
        order = [*self.inside]
        self.more.shuffle(order)
        for index in self.numbers.permutation(COUNT):
            yield (order[index] + int(torch.randint(COUNT, (), generator=self.g))) % COUNT


def own() -> torch.Generator:
    return torch.Generator().manual_seed(3)


SAMPLERS: dict[str, Callable[[], dict[str, Any]]] = {
    "distributed": lambda: {"sampler": data.DistributedSampler(Samples(), 1, 0, seed=3)},
    "told": lambda: {"sampler": ByEpoch()},
    "drawn": lambda: {"sampler": Drawn()},
    "one by one": lambda: {"sampler": OneByOne()},
    "weighted": lambda: {"sampler": data.WeightedRandomSampler(torch.ones(COUNT).tolist(), COUNT)},
    "weighted, own": lambda: {"sampler": data.WeightedRandomSampler(torch.ones(COUNT).tolist(), COUNT, generator=own())},
    "subset": lambda: {"sampler": data.SubsetRandomSampler(range(COUNT))},
    "random": lambda: {"sampler": data.RandomSampler(Samples())},
    "replacing, own": lambda: {
        "sampler": data.RandomSampler(Samples(), replacement=True, num_samples=COUNT, generator=own())
    },
    "batches": lambda: {"batch_sampler": data.BatchSampler(Drawn(), BATCH, False), "batch_size": 1},
    "its own": lambda: {"sampler": WithItsOwn()},
    "batches, its own": lambda: {"batch_sampler": data.BatchSampler(WithItsOwn(), BATCH, False), "batch_size": 1},
    "no batches": lambda: {"sampler": data.RandomSampler(Samples(), num_samples=4), "batch_size": None},
}


def loop(state: dict[str, Any], loader: Any) -> Iterator[list[float]]:
    """What a user writes: the epoch is told before the loader is asked. Each step draws from all generators."""
    while True:
        for told in (loader.sampler, loader.batch_sampler):
            if hasattr(told, "set_epoch"):
                told.set_epoch(state["at"]["epoch"])
        loader.dataset.epoch = state["at"]["epoch"]
        for batch in loader:
            yield [*batch.reshape(-1).tolist(), float(torch.rand(())), random.random(), np.random.random()]
        state["at"]["epoch"] += 1


def make(workers: int = 0, dataset: type[Samples] = Samples, **options: Any) -> Callable[[], tuple[dict[str, Any], Step]]:
    def made() -> tuple[dict[str, Any], Step]:
        chosen = {key: value() if callable(value) else value for key, value in options.items()}
        if "batch_sampler" not in chosen:
            chosen = {"batch_size": BATCH, **chosen}
        loader: Any = StatefulDataLoader(dataset(), num_workers=workers, **chosen)
        state = {"data": loader, "at": {"epoch": 0}}
        steps = loop(state, loader)
        return state, lambda: next(steps)

    return made


def sampled(kind: str, workers: int = 0, **options: Any) -> Callable[[], tuple[dict[str, Any], Step]]:
    """A maker whose sampler is made anew each time."""
    return lambda: make(workers, **SAMPLERS[kind](), **options)()


@pytest.mark.parametrize("kind", SAMPLERS)
def test_the_order_of_the_running_epoch_goes_on(kind: str) -> None:
    assert_resumes(sampled(kind), steps=STEPS, at=STOPS)


@pytest.mark.parametrize("kind", ["distributed", "weighted", "no batches", "drawn", "its own", "batches"])
def test_the_epoch_that_the_loop_tells_reaches_workers(kind: str) -> None:
    """They are started when the loop asks for the iterator, with the dataset as it is then."""
    assert_resumes(sampled(kind, workers=1), steps=10, at=(6,))


def test_workers_that_persist() -> None:
    """They begin later epochs by themselves: what is told goes on, of what is drawn torchdata's own samplers."""
    persist = {"persistent_workers": True, "dataset": Still}
    for options in ({"shuffle": True}, SAMPLERS["distributed"]()):
        assert_resumes(lambda o=options: make(1, **copy.deepcopy(o), **persist)(), steps=7, at=(6,))  # type: ignore[misc]


@pytest.mark.parametrize("kind", ["weighted", "subset", "random", "drawn", "no batches"])
@pytest.mark.parametrize("workers", [0, 1])
def test_two_at_once_and_draws_before_the_first_sample(kind: str, workers: int) -> None:
    """A sampler that is a generator draws as the first sample is taken: after what others have drawn since it was asked."""

    def made() -> tuple[dict[str, Any], Step]:
        loaders = [StatefulDataLoader(Samples(), **{"batch_size": BATCH, **SAMPLERS[kind]()}) for _ in range(2)]
        loaders.append(StatefulDataLoader(Samples(), **{"batch_size": BATCH, **SAMPLERS[kind]()}, num_workers=workers))
        state: dict[str, Any] = {"loaders": loaders, "more": {"noise": torch.zeros(())}}

        def steps() -> Iterator[list[Any]]:
            while True:
                iterators = [iter(loader) for loader in loaders]
                state["more"]["noise"] += torch.rand(())
                for batches in zip(*iterators, strict=True):
                    yield [[batch.tolist() for batch in batches], float(torch.rand(()))]

        going = steps()
        return state, lambda: next(going)[0]

    # What the loop itself draws before it goes on it draws again: only the order is looked at.
    seed(1)
    _, step = made()
    expected = [step() for _ in range(7)]
    seed(1)
    state, step = made()
    Capture(state)
    assert [step() for _ in range(6)] == expected[:6]
    image, small = evacuated(state)
    live, step = made()
    restored(image, small, live)
    assert step() == expected[6]


class Mine(StatefulDataLoader):  # type: ignore[type-arg]
    """A class of the user's that has a part in making iterators."""

    def _get_iterator(self) -> Any:
        return super()._get_iterator()


def test_a_class_of_the_users_beside_one_of_torchdatas() -> None:
    """Both are followed; what is made in one by the other is made once."""
    plain = StatefulDataLoader(Samples())
    Capture({"plain": plain})

    def made() -> tuple[dict[str, Any], Step]:
        loader: Any = Mine(Samples(), batch_size=BATCH, sampler=data.SubsetRandomSampler(range(COUNT)))
        state = {"data": loader, "at": {"epoch": 0}, "plain": plain}
        steps = loop(state, loader)
        return state, lambda: next(steps)

    assert_resumes(made, steps=STEPS, at=STOPS)


def test_stopped_at_the_end_of_an_epoch_and_before_the_first_batch_of_one() -> None:
    assert_resumes(sampled("weighted"), steps=STEPS, at=(4, 8))
    (state, _), (live, _) = sampled("weighted")(), sampled("weighted")()
    Capture(state)
    seed(1)
    iter(state["data"])  # begun, and nothing taken
    image, small = evacuated(state)
    restored(image, small, live)
    assert evacuated(live)[1]["state"] == small["state"]


def test_a_copy_of_a_loader_is_a_loader_of_its_own() -> None:
    state, step = sampled("weighted")()
    Capture(state)
    step()
    twin = copy.copy(state["data"])
    before = evacuated(state)[1]["state"]["data"]
    assert sum(batch.numel() for batch in twin) == COUNT
    assert evacuated(state)[1]["state"]["data"] == before


def test_what_is_noted_keeps_no_loader() -> None:
    """Nor its workers: they end with the last reference, and wait for no collection of garbage."""
    state, step = sampled("weighted", workers=1)()
    Capture(state)
    step()
    image, small = evacuated(state)
    live, live_step = sampled("weighted", workers=1)()
    restored(image, small, live)
    live_step()
    evacuated(live)
    gone = [weakref.ref(loader) for loader in (state["data"], live["data"])]
    iterators = [weakref.ref(loader._iterator) for loader in (state["data"], live["data"])]
    gc.collect()
    gc.disable()
    try:
        del state, step, live, live_step
        assert [ref() for ref in (*gone, *iterators)] == [None] * 4
    finally:
        gc.enable()


def test_one_that_cannot_go_on_says_so_where_it_is_asked() -> None:
    state, step = sampled("told")()
    step()
    image, small = evacuated(state)
    live, live_step = sampled("told", workers=1)()
    restored(image, small, live)
    before = torch.get_rng_state()
    with pytest.raises(StructureError, match=r"^data is a StatefulDataLoader that does not go on .*workers"):
        live_step()
    assert torch.equal(torch.get_rng_state(), before)
