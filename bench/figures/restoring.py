"""Restoring into a live model and optimizer, every byte verified: from RAM, and cold from the disk.

The node's agent runs already when `restore()` is called, as it does where only the trainers died. From RAM one process
restores again and again, each time as a new attempt; from the disk each restore has a process of its own, because the RAM
copy is freed when the process whose run was closed has ended.
"""

from __future__ import annotations

import time
from pathlib import Path

from bench.child import Settings, call
from bench.row import Goal, Row, sampled

RAM = Goal("restore_ram", "restore from RAM, verified, into live tensors", 2.0, "× floor_ram")
DISK = Goal("restore_disk", "restore from disk, cold, verified", 1.3, "× floor_read")
GOALS = (RAM, DISK)

NEVER = 10**9


def rows(settings: Settings) -> list[Row]:
    """One run from RAM; as many processes as samples from the disk."""
    with settings.place() as (target, ram):
        from_ram = call(f"{__name__}:again_and_again", settings, target=str(target), ram=str(ram))
    with settings.place() as (target, ram):
        call(f"{__name__}:save", settings, target=str(target), ram=str(ram))
        found = [call(f"{__name__}:once", settings, target=str(target), ram=str(ram)) for _ in range(settings.evacuations)]
    return [
        sampled(RAM, from_ram["seconds"], from_ram["floors_s"]),
        sampled(DISK, [one["seconds"] for one in found], [one["floor_s"] for one in found]),
    ]


def save(settings: Settings, target: str, ram: str) -> None:
    """Evacuate and commit one step."""
    training = _training(settings)
    _evacuate(training.state, Path(target), Path(ram), keep_ram=False)


def again_and_again(settings: Settings, target: str, ram: str) -> dict[str, list[float]]:
    """Evacuate once and restore from RAM many times, each beside its floor; the first is not counted."""
    from bench.floors import Floors

    training = _training(settings)
    floors = Floors(training.ranges, Path(target))
    _evacuate(training.state, Path(target), Path(ram), keep_ram=True)
    found: dict[str, list[float]] = {"seconds": [], "floors_s": []}
    for attempt in range(settings.evacuations + 1):
        seconds = _restore(training.state, Path(target), Path(ram), "ram")
        if attempt > 0:
            found["seconds"].append(seconds)
            found["floors_s"].append(floors.ram_s())
    return found


def once(settings: Settings, target: str, ram: str) -> dict[str, float]:
    """Restore from the disk, beside its floor."""
    from bench.floors import Floors, drop_from_cache
    from bench.proc import wait_for_no_arena

    training = _training(settings)
    (image,) = Path(target).glob("run/steps/*/rank-*.safetensors")
    floors = Floors(training.ranges, Path(target))
    wait_for_no_arena(Path(ram))
    floor_s = floors.read_s(image)
    drop_from_cache(image)
    return {"seconds": _restore(training.state, Path(target), Path(ram), "target"), "floor_s": floor_s}


def _training(settings: Settings):  # type: ignore[no-untyped-def]
    import torch

    torch.set_num_threads(1)
    from bench.state import Training

    return Training(settings.state_bytes)


def _evacuate(state: dict[str, object], target: Path, ram: Path, *, keep_ram: bool) -> None:
    import hinan

    evac = hinan.Evacuator(target / "run", state, every=1, commit_every=1, ram=ram)
    evac.restore()
    evac.step()
    evac.close(keep_ram=keep_ram)


def _restore(state: dict[str, object], target: Path, ram: Path, source: str) -> float:
    """Seconds of one `restore()`, as a new attempt."""
    import hinan
    from bench.proc import wait_for_agent

    evac = hinan.Evacuator(target / "run", state, every=NEVER, commit_every=NEVER, ram=ram)
    wait_for_agent(ram)
    began = time.perf_counter()
    step = evac.restore()
    seconds = time.perf_counter() - began
    assert evac.resumed is not None
    if step != 1 or evac.resumed.source != source:
        raise AssertionError(f"restored step {step} from {evac.resumed.source}, not step 1 from {source}")
    evac.close(keep_ram=source == "ram")
    return seconds
