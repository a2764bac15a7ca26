"""Nothing grows: memory, descriptors, threads and files of trainer and agent, over many evacuations and many tensors."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from hinan.core.budget import SLOTS_A_RANK
from tests.harness.job import MakeJob, until


@pytest.mark.parametrize("numel", [1 << 20, pytest.param(16 << 20, marks=pytest.mark.slow)])
def test_a_mem_2_memory_is_flat(numel: int, make_job: MakeJob) -> None:
    """A-MEM-2: over 50 evacuations and commits of 4 (among the slow tests 64) MiB, memory, descriptors and files of trainer
    and agent do not grow."""
    job = make_job()
    job.start_agent()
    (child,) = job.start(program="small:many_evacuations", numel=numel)
    child.ok(110)
    sizes = job.result()["sizes"]
    early, late = sizes[10], sizes[-1]
    for who, a, b in zip(("trainer", "agent"), early[:2], late[:2], strict=True):
        assert b - a < 40 * 100, f"{who} grew from {a} to {b} KiB over 40 evacuations"
    # A third slot (four files) is made when a drain first meets a busy moment; after that there are never more. The
    # agent may be in the middle of a drain, a deletion and an answer as it is looked at.
    for what, a, b, most in zip(
        ("arena files", "agent descriptors", "descriptors"), early[2:], late[2:], (4, 4, 2), strict=True
    ):
        assert abs(b - a) <= most, f"{what}: {a}, then {b}"


def assert_flat(found: list[dict[str, Any]]) -> None:
    """Descriptors, threads and names of the first look are those of every later one, but for what a third slot brings: it
    is made when a drain first meets a busy moment, and its mapping keeps one descriptor in the trainer."""
    rest = []
    for look in found:
        slots = [name.removesuffix(".img") for name in look["names"] if name.endswith(".img")]
        of_slots = {name for name in look["names"] if name.partition(".")[0] in slots}
        assert len(slots) <= SLOTS_A_RANK and len(of_slots) <= 4 * len(slots)
        numbers = [look[what] for what in ("trainer threads", "agent descriptors", "agent threads")]
        rest.append([look["trainer descriptors"] - len(slots), *numbers, sorted(set(look["names"]) - of_slots)])
    assert all(look == rest[0] for look in rest), rest


def test_a_mem_2_nothing_grows_over_some_hundred_evacuations(make_job: MakeJob) -> None:
    """A-MEM-2: 300 evacuations of a tiny state, every tenth committed: descriptors and threads of trainer and agent and
    names in the arena are the same after 60, 180 and 300."""
    job = make_job()
    job.start_agent()
    (child,) = job.start(program="small:steady", samples=[60, 180, 300])
    child.ok(110)
    assert_flat(job.result()["found"])


@pytest.mark.slow
def test_a_mem_2_nothing_grows_over_a_thousand_evacuations(make_job: MakeJob) -> None:
    """A-MEM-2: 1,000 evacuations: nothing grows, and over the last 500 the memory of trainer and agent grows by 4 MiB at
    most, the trainer's against the same loop without evacuations."""
    looks = {}
    for name, saving in (("run", True), ("control", False)):
        job = make_job(name)
        job.start_agent()
        (child,) = job.start(program="small:steady", samples=[100, 500, 1000], saving=saving)
        child.ok(300)
        looks[name] = job.result()["found"]
        assert_flat(looks[name])
    grown = {name: found[2]["trainer kib"] - found[1]["trainer kib"] for name, found in looks.items()}
    assert grown["run"] - grown["control"] <= 4096, grown
    assert looks["run"][2]["agent kib"] - looks["run"][1]["agent kib"] <= 4096


@pytest.mark.parametrize("count", [600, pytest.param(20_000, marks=pytest.mark.slow)])
def test_a_mem_5_many_tensors_need_few_descriptors(count: int, make_job: MakeJob) -> None:
    """A-MEM-5: with at most 256 open files, thousands of tensors are evacuated and come back; descriptors stay constant."""
    job = make_job(count=count)
    job.start_agent()
    for _ in range(2):
        (child,) = job.start(program="small:many_tensors", steps=6)
        child.ok(110)
        found = job.result()
        assert found["right"]
        assert max(found["descriptors"] or [0]) - min(found["descriptors"] or [0]) <= 2
    assert found["resumed"] == 6


def test_a_mem_7_the_agent_knows_no_device(make_job: MakeJob) -> None:
    """A-MEM-7 (what a machine without a GPU can show): an agent that a trainer started, that has proven and committed an
    image, has neither torch nor a driver's library mapped, and no device open. So it holds no device memory either."""
    job = make_job(every=2, commit_every=2)
    pause = job.root / "pause"
    (child,) = job.start(steps=4, pause_file=str(pause), pause_at=[3], wait_committed=[2])
    until(Path(f"{pause}.3").exists, what="step 3")
    assert job.agent is not None
    proc = Path(f"/proc/{job.agent.pid}")
    mapped = {line.split()[5] for line in (proc / "maps").read_text().splitlines() if len(line.split()) > 5}
    opened = set()
    for fd in (proc / "fd").iterdir():
        with suppress(FileNotFoundError):  # the agent goes on, and closes what it has read
            opened.add(os.readlink(fd))
    Path(f"{pause}.3").unlink()
    child.ok()
    assert any("xxhash" in name for name in mapped)  # it is the right process
    assert not [
        n for n in mapped for word in ("torch", "cuda", "nvidia", "hip", "level_zero") if word in Path(n).name.lower()
    ]
    assert not [n for n in opened if n.startswith("/dev/") and n not in ("/dev/null",) and not n.startswith("/dev/shm/")]
