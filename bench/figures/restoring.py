"""Restoring into a live model and optimizer, every byte verified: from RAM, and cold from the disk.

Into live tensors, one process restores from RAM again and again, each time as a new attempt. What a restarted loop pays,
from RAM and from the disk, is measured in processes of their own, whose model was just built and whose optimizer has taken
no step, so that its moments have to be made. The node's agent runs already when `restore()` is called, as it does where
only the trainers died.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from bench.child import Settings, call
from bench.row import Goal, Row, sampled

RAM = Goal("restore_ram", "restore from RAM, verified, into live tensors", 2.0, "× floor_ram")
RAM_FRESH = Goal(
    "restore_ram_fresh", "restore from RAM, verified, into a loop that has no moments yet", None, "× floor_ram"
)
DISK = Goal("restore_disk", "restore from disk, cold, verified, into a loop that has no moments yet", 1.3, "× floor_read")
GOALS = (RAM, RAM_FRESH, DISK)

NEVER = 10**9
FRESH = 12
"""Most processes that restore from RAM: they scatter less than those that read a disk, and each takes seconds to start."""


def rows(settings: Settings) -> list[Row]:
    """One process for live tensors; for each other figure one that saves, and as many that restore as samples."""
    with settings.place() as (target, ram):
        live = call(f"{__name__}:again_and_again", settings, target=str(target), ram=str(ram))
    fresh = _samples(settings, "ram", min(FRESH, settings.evacuations))
    from_disk = _samples(settings, "target", settings.evacuations)
    return [sampled(goal, *_columns(found)) for goal, found in zip(GOALS, (live, fresh, from_disk), strict=True)]


def _columns(found: list[dict[str, float]]) -> tuple[list[float], list[float]]:
    return [one["seconds"] for one in found], [one["floor_s"] for one in found]


def _samples(settings: Settings, source: str, count: int) -> list[dict[str, float]]:
    with settings.place() as (target, ram):
        place: dict[str, Any] = {"target": str(target), "ram": str(ram), "source": source}
        call(f"{__name__}:save", settings, **place)
        return [call(f"{__name__}:once", settings, **place) for _ in range(count)]


def save(settings: Settings, target: str, ram: str, source: str) -> None:
    """Evacuate and commit one step; its RAM copy stays if it is what is restored from."""
    _evacuate(_training(settings, stepped=True).state, Path(target), Path(ram), keep_ram=source == "ram")


def again_and_again(settings: Settings, target: str, ram: str) -> list[dict[str, float]]:
    """Evacuate once and restore from RAM many times, each beside its floor; the first is not counted."""
    from bench.floors import Floors

    training = _training(settings, stepped=True)
    floors = Floors(training.ranges, Path(target))
    _evacuate(training.state, Path(target), Path(ram), keep_ram=True)
    _restore(training, Path(target), Path(ram), "ram")
    return [
        {"seconds": _restore(training, Path(target), Path(ram), "ram"), "floor_s": floors.ram_s()}
        for _ in range(settings.evacuations)
    ]


def once(settings: Settings, target: str, ram: str, source: str) -> dict[str, float]:
    """Restore into a loop that was just started, beside its floor."""
    from bench.floors import Floors, cold_read_s, drop_from_cache
    from bench.proc import wait_for_no_arena

    training = _training(settings, stepped=False)
    if training.optimizer.state:
        raise RuntimeError("a restarted loop has no moments yet; making them is part of what it pays")
    if source == "ram":
        seconds = _restore(training, Path(target), Path(ram), source)
        return {"seconds": seconds, "floor_s": Floors(training.ranges, Path(target)).ram_s()}
    (image,) = Path(target).glob("run/steps/*/rank-*.safetensors")
    wait_for_no_arena(Path(ram))
    floor_s = cold_read_s(image)
    drop_from_cache(image)
    return {"seconds": _restore(training, Path(target), Path(ram), source), "floor_s": floor_s}


def _training(settings: Settings, *, stepped: bool):  # type: ignore[no-untyped-def]
    import torch

    torch.set_num_threads(1)
    from bench.state import Training

    return Training(settings.state_bytes, stepped=stepped)


def _evacuate(state: dict[str, object], target: Path, ram: Path, *, keep_ram: bool) -> None:
    import hinan

    evac = hinan.Evacuator(target / "run", state, every=1, commit_every=1, ram=ram)
    evac.restore()
    evac.step()
    evac.close(keep_ram=keep_ram)


def _restore(training: Any, target: Path, ram: Path, source: str) -> float:
    """Seconds of one `restore()`, as a new attempt."""
    import hinan
    from bench.proc import wait_for_agent

    evac = hinan.Evacuator(target / "run", training.state, every=NEVER, commit_every=NEVER, ram=ram)
    wait_for_agent(ram)
    began = time.perf_counter()
    step = evac.restore()
    seconds = time.perf_counter() - began
    assert evac.resumed is not None
    if step != 1 or evac.resumed.source != source:
        raise RuntimeError(f"restored step {step} from {evac.resumed.source}, not step 1 from {source}")
    evac.close(keep_ram=source == "ram")
    return seconds
