"""torchdata's StatefulDataLoader, stopped in the middle of an epoch: the same samples, the same draws, no draw more."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torchdata.stateful_dataloader import StatefulDataLoader

from tests.exact.twins import assert_resumes, evacuated, restored

EPOCHS = 3

pytestmark = pytest.mark.filterwarnings("ignore:'set_vital' is deprecated")  # torchdata says it to each loader


class Samples(torch.utils.data.Dataset[torch.Tensor]):
    """Numbers."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.tensor(float(index))


def loop(state: dict[str, Any]) -> Iterator[list[float]]:
    """What a user writes: epochs around batches. Each step draws from the global generator, as dropout would."""
    while state["at"]["epoch"] < EPOCHS:
        for batch in state["data"]:
            yield [*batch.tolist(), float(torch.rand(()))]
        state["at"]["epoch"] += 1


def make(workers: int, count: int = 10, own: bool = False, **options: Any) -> Any:
    """A maker for `assert_resumes`; the loader has a generator of its `own` or torch's."""

    def made() -> tuple[dict[str, Any], Any]:
        generator = torch.Generator().manual_seed(1) if own else None
        settings = {"batch_size": 2, "shuffle": True, **options}
        data = StatefulDataLoader(Samples(count), num_workers=workers, generator=generator, **settings)
        state = {"at": {"epoch": 0}, "data": data}
        steps = loop(state)
        return state, lambda: next(steps)

    return made


@pytest.mark.parametrize("own", [False, True], ids=["global generator", "own generator"])
@pytest.mark.parametrize("at", [7, 5, 1], ids=["in epoch 2", "at the end of epoch 1", "in epoch 1"])
def test_the_order_goes_on_in_a_later_epoch(own: bool, at: int) -> None:
    """A-EXACT-2: 10 samples, 3 epochs, stopped in the middle of epoch 2: samples and draws of the uninterrupted run."""
    assert_resumes(make(0, own=own), steps=15, at=at)


@pytest.mark.parametrize("own", [False, True], ids=["global generator", "own generator"])
def test_two_resumes_in_one_epoch(own: bool) -> None:
    """A-EXACT-3: 30 batches, resume, 10 batches, resume: the next is batch 40, and each is that of the straight run."""
    assert_resumes(make(0, count=60, own=own, batch_size=1), steps=130, at=(30, 40))


@pytest.mark.parametrize(
    "own", [pytest.param(False, marks=pytest.mark.slow), True], ids=["global generator", "own generator"]
)
def test_two_workers(own: bool) -> None:
    """A-EXACT-2, 3: the same with worker processes, stopped twice in the middle of epoch 2."""
    assert_resumes(make(2, own=own), steps=15, at=(6, 8))


@pytest.mark.parametrize("workers", [0, 2])
def test_a_loader_that_has_not_begun_is_not_begun_by_saving(workers: int) -> None:
    """Rule D8: asked for its state, torchdata's loader would draw a seed and start workers; hinan does not ask it then."""
    straight, _ = assert_resumes(make(workers, own=True), steps=3, at=0)
    state, _ = make(workers)()
    evacuated(state)
    assert state["data"]._iterator is None
    assert straight["data"]._iterator is not None
    image, small = evacuated(straight)
    restored(image, small, state)
    assert evacuated(state)[1]["state"] == small["state"]  # saved again before the loop has asked for a batch


@pytest.mark.parametrize("at", [3, 5])
def test_without_shuffling(at: int) -> None:
    """No generator but torch's for the seed of workers; the epoch's last batch is the boundary at 5."""
    assert_resumes(make(0, shuffle=False), steps=15, at=at)


def test_the_older_form_of_a_loader_loads() -> None:
    """Before generators were stored with it, a loader was what its state_dict() returned."""
    saved, step = make(0)()
    for _ in range(7):
        step()
    image, small = evacuated(saved)
    small["state"]["data"] = {"$stateful": small["state"]["data"]["$loader"]["position"]}
    live, live_step = make(0)()
    restored(image, small, live)
    assert live_step()[:2] == step()[:2]
