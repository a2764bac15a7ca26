"""RAM copies outlive whoever made them, for as long as a restart may need them, and are given back after that."""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from hinan.formats.messages import Stop
from tests.harness.disks import MARGIN, Disks
from tests.harness.job import Job, MakeJob, assert_same_run, until
from tests.programs.loop import resumes

Reference = Callable[[int], Job]


@pytest.mark.parametrize("number", [None, signal.SIGTERM, signal.SIGKILL], ids=lambda n: n.name if n else "exit")
def test_a_mem_3_slots_outlive_whoever_maps_them(number: signal.Signals | None, make_job: MakeJob) -> None:
    """A-MEM-3: a slot is mapped by its trainer and its agent; whichever of them ends, however, the image stays under its
    name, and the next attempt resumes from it."""
    job = make_job(every=1, commit_every=1000)
    job.start_agent()
    (child,) = job.start(steps=10**6 if number else 5, close=False, ending="_exit")
    until(lambda: job.step() >= 4, what="step 4")
    if number is not None:
        child.kill(number)
    child.wait()
    held = max(f.sealed.step for f in job.arena.scan() if f.sealed)
    assert held >= 4
    if number is None:
        job.ask(Stop(grace_s=5.0))
    else:
        job.kill_agent(number)
    until(lambda: job.agent is None, what="the agent's end")
    assert held in {f.sealed.step for f in job.arena.scan() if f.sealed}
    job.start_agent()
    job.run(steps=held + 3)
    assert resumes(job.out)[-1][1:] == (held, "ram")


def test_a_mem_3_the_ram_copy_stays_while_the_target_is_not_mounted(
    disks: Disks, make_job: MakeJob, tmp_path: Path
) -> None:
    """A-MEM-3: an agent whose target's file system was unmounted does not take it for deleted: the only copy stays in RAM,
    and serves when the file system is back."""
    store = disks.tmpfs("store", 8 << 20)
    mounted = disks.bind("mounted", store)
    always = tmp_path / "always"
    always.write_text("1")
    job = make_job("mounted/run", every=1, commit_every=1000)
    agent = job.start_agent(
        idle_s=0.4, heartbeat_s=0.1, first_wait_s=0.001,
        fail={"do": "WRITE_ASIDE", "errno": 5, "file": str(always), "always": True},
    )  # fmt: skip
    arena = job.arena
    (child,) = job.start(die_at=5)
    child.wait()
    disks.unmount(mounted)
    agent.log = store / "run" / agent.log.name
    agent.wait(20)
    assert {f.sealed.step for f in arena.scan() if f.sealed} >= {5}, agent.output
    disks.bind("mounted", store)
    job.run(steps=8)
    assert resumes(job.out)[-1][1:] == (5, "ram")


def test_a_mem_4_five_kills_of_everything_on_a_small_tmpfs(disks: Disks, make_job: MakeJob, reference: Reference) -> None:
    """A-MEM-4: five times trainers and agent are SIGKILLed at once, on a tmpfs with room for two rings: each start works,
    resumes from RAM, and the slots of dead processes are given back."""
    ram = disks.tmpfs("ram", MARGIN + 6 * (32 << 10) + (1 << 20))
    job = make_job(tmpfs=ram, every=2, commit_every=4)
    for round_ in range(5):
        job.start_agent()
        (child,) = job.start(die_at=3 + 3 * round_)
        child.wait()
        job.end_agent()
    job.start_agent()
    job.run()
    taken = {(attempt, step, source) for attempt, step, source in resumes(job.out)}
    assert taken == {(1, 0, ""), (2, 2, "ram"), (3, 6, "ram"), (4, 8, "ram"), (5, 12, "ram"), (6, 14, "ram")}
    assert_same_run(job, reference(1))
    # By a walk: unlike rglob it does not mind directories that vanish under it, which is what is waited for.
    until(lambda: not any(n.endswith(".img") for _, _, names in os.walk(ram) for n in names), what="the freed arena")


def test_a_mem_4_arenas_of_runs_that_are_gone_are_reclaimed(disks: Disks, make_job: MakeJob) -> None:
    """A-MEM-4: the arena of a run whose processes were killed and whose target was deleted is removed by the next agent on
    that tmpfs; that of a run whose newest step is nowhere else stays."""
    ram = disks.tmpfs("ram", MARGIN + (2 << 20))
    gone, needed = make_job("gone", tmpfs=ram), make_job("needed", tmpfs=ram)
    arenas = []
    for job in (gone, needed):
        job.start_agent()
        pause = job.root / "pause"
        (child,) = job.start(commit_every=1000, pause_file=str(pause), pause_at=[7])
        until(Path(f"{pause}.7").exists, what="step 7")
        job.end_agent()  # first, so that it does not commit the newest step by itself
        child.kill()
        child.wait()
        arenas.append(job.arena)
    shutil.rmtree(gone.target_path)
    next_ = make_job("next", tmpfs=ram)
    next_.start_agent()
    until(lambda: not arenas[0].exists, what="the abandoned arena's end")
    assert list(arenas[1].root.glob("*.img"))
    needed.start_agent()
    needed.run()
    assert resumes(needed.out)[-1][2] == "ram"
