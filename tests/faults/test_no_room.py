"""Host RAM that does not suffice: an error with the sum, never a signal, and training goes on."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.harness.disks import MARGIN, Disks, fill
from tests.harness.job import Job, MakeJob, assert_same_run, until
from tests.programs.loop import resumes

Reference = Callable[[int], Job]


def test_a_mem_1_a_tmpfs_that_is_too_small_is_refused_with_the_sum(disks: Disks, make_job: MakeJob) -> None:
    """A-MEM-1: two slots do not fit on the tmpfs: BudgetError with the need, the room and the ways out; no SIGBUS."""
    job = make_job(tmpfs=disks.tmpfs("ram", 16 << 20))
    job.start_agent()
    (child,) = job.start(program="small:start_once")
    child.ok()
    error = job.result()["error"]
    assert error["type"] == "BudgetError", child.output
    assert "1 ranks x 2 slots x 8.0 KiB = 16.0 KiB" in error["text"]
    assert str(job.tmpfs) in error["text"] and "Ways out" in error["text"]
    assert "step" not in job.result()  # restore() refused it, before training


def test_a_mem_1_the_state_that_optimizers_will_make_is_in_the_sum(disks: Disks, make_job: MakeJob) -> None:
    """A-MEM-1: there is room for two images of the parameters, not for two with AdamW's state: refused by `restore()`, so
    before a step is trained and before a slot is made; the same model with plain SGD starts."""
    ram = disks.tmpfs("ram", MARGIN + (4 << 20))
    for optimizer in ("AdamW", "SGD"):
        job = make_job(optimizer, tmpfs=ram)
        job.start_agent()
        (child,) = job.start(program="small:sized", numel=[1 << 18], optimizer=optimizer)
        child.ok()
        found = job.result()
        if optimizer == "SGD":
            assert found["error"] is None, found
            continue
        assert (found["error"]["type"], found["slots"]) == ("BudgetError", 0)
        lines = found["error"]["text"].splitlines()
        assert "1 ranks x 2 slots x 3.0 MiB = 6.0 MiB" in lines[0] and f"but {ram} leaves" in lines[0]
        assert any("2.0 MiB of it are optimizer state that the first step makes" in line for line in lines)
        assert sum(line.startswith("  ") and line.split()[1] in ("KiB", "MiB") for line in lines) >= 3


def test_a_mem_1_a_refusal_reaches_every_rank(disks: Disks, make_job: MakeJob) -> None:
    """A-MEM-1: only rank 1's state is too large for the node: both ranks get the same BudgetError, which names the rank,
    at once; nobody waits for the other."""
    job = make_job(tmpfs=disks.tmpfs("ram", MARGIN + (4 << 20)), ranks=2)
    job.start_agent()
    for child in job.start(program="small:sized", numel=[1 << 10, 1 << 20]):
        child.ok()
    first, second = job.result(0), job.result(1)
    assert first["error"]["type"] == second["error"]["type"] == "BudgetError"
    assert first["error"]["text"] == second["error"]["text"]
    assert "(ranks 0 to 1): 2 ranks x 2 slots x 4.0 MiB" in first["error"]["text"]
    assert "the largest image is that of rank 1" in first["error"]["text"]
    assert max(first["restore_s"], second["restore_s"]) < 10


def test_a_mem_1_what_older_slots_hold_counts_as_room(disks: Disks, make_job: MakeJob) -> None:
    """A-MEM-1: the slots of the killed attempt leave no room for two more: the next one is not refused for them."""
    job = make_job(tmpfs=disks.tmpfs("ram", MARGIN + (10 << 20)))
    job.start_agent()
    sources = []
    for steps in (3, 4):
        (child,) = job.start(program="small:sized", numel=[1 << 20], steps=steps)
        child.ok()
        assert job.result()["error"] is None, child.output
        sources.append(job.result()["source"])
    assert sources == ["", "ram"]


def test_a_mem_1_a_tmpfs_that_fills_up_costs_evacuations_only(
    disks: Disks, make_job: MakeJob, reference: Reference, tmp_path: Path
) -> None:
    """A-MEM-1: the tmpfs is filled to the last byte after two slots exist: evacuations that cannot be sealed are lost and
    said so, training goes on without a signal; with room again they are held as before."""
    ram = disks.tmpfs("ram", MARGIN + (4 << 20))
    job = make_job(tmpfs=ram, every=1, commit_every=1000)
    job.start_agent()
    pause = tmp_path / "pause"
    (child,) = job.start(pause_file=str(pause), pause_at=[4, 12], options={"timeout_s": 1.0})
    until(Path(f"{pause}.4").exists, what="step 4")
    filler = fill(ram)
    Path(f"{pause}.4").unlink()
    until(Path(f"{pause}.12").exists, what="step 12")
    assert "report lost step=" in child.output and "held step=12" not in child.output
    filler.unlink()
    Path(f"{pause}.12").unlink()
    child.ok()
    assert "held step=20" in child.output
    assert_same_run(job, reference(1))


def test_a_mem_1_nobody_dies_by_a_signal_on_a_full_tmpfs(disks: Disks, make_job: MakeJob, tmp_path: Path) -> None:
    """A-MEM-1: the tmpfs is filled to the last byte after the slots were made, and stays full: evacuations, seals, changes
    of the cadence, the agent's proofs and log, an agent that starts anew, a restart: nothing of it meets a SIGBUS. Training
    goes on to its end, and the next attempt is refused with the sum after it has its state back."""
    ram = disks.tmpfs("ram", MARGIN + (4 << 20))
    job = make_job(tmpfs=ram, every="1ms", commit_every="2ms")
    agent = job.start_agent()
    pause = tmp_path / "pause"
    (child,) = job.start(pause_file=str(pause), pause_at=[23, 40], steps=60, close=False, options={"timeout_s": 0.5})
    until(Path(f"{pause}.23").exists, what="step 23")
    until(lambda: any(f.proven for f in job.arena.scan()), what="a proof")
    until(lambda: all(f.proven for f in job.arena.scan() if f.sealed), what="all proofs")
    held = max(f.proven.step for f in job.arena.scan() if f.proven)
    fill(ram)
    Path(f"{pause}.23").unlink()
    until(Path(f"{pause}.40").exists, what="step 40")
    assert "report lost step=" in child.output
    job.kill_agent()
    assert agent.wait() == -signal.SIGKILL
    second = job.start_agent()  # on the full tmpfs
    Path(f"{pause}.40").unlink()
    child.ok()
    assert "held step=60" not in child.output
    (child,) = job.start(steps=70)
    assert child.wait() == 1, child.output
    assert "BudgetError" in child.output and f"restored step={held} " in child.output
    assert job.connects(), second.output


def test_a_mem_1_close_does_not_wait_for_a_proof_that_finds_no_room(make_job: MakeJob, tmp_path: Path) -> None:
    """A-MEM-1: there is no room for the digests of the newest image, and there will be none: close() says why, in bounded
    time; with room again the agent proves and commits it."""
    job = make_job(every=10, commit_every=1000)
    full = tmp_path / "full"
    full.touch()
    job.start_agent(heartbeat_s=0.05, no_room_file=str(full))
    (child,) = job.start(steps=20)
    assert child.wait() == 1
    assert "SavingError: the run was closed, but the RAM copy of step 20, rank 0 cannot be used: [Errno 28]" in child.output
    full.unlink()
    until(lambda: [s.step for s, stored in job.target.stored().items() if stored.committed] == [20], what="the commit")


def test_a_mem_1_a_proof_that_found_no_room_is_taken_later(disks: Disks, make_job: MakeJob, tmp_path: Path) -> None:
    """A-MEM-1: the tmpfs is full when the agent wants to publish the digests of a sealed image: it says so, and takes them
    when there is room again, so that the step can be resumed from."""
    ram = disks.tmpfs("ram", MARGIN + (4 << 20))
    job = make_job(tmpfs=ram, every=10, commit_every=1000)
    agent = job.start_agent(heartbeat_s=0.05)
    pause = tmp_path / "pause"
    (child,) = job.start(pause_file=str(pause), pause_at=[9, 11], steps=20, close=False)
    until(Path(f"{pause}.9").exists, what="step 9")
    job.kill_agent(signal.SIGSTOP)
    Path(f"{pause}.9").unlink()
    until(Path(f"{pause}.11").exists, what="step 11")
    filler = fill(ram)
    job.kill_agent(signal.SIGCONT)
    until(lambda: "the RAM copy of step 10, rank 0 cannot be used" in agent.output, what="the report")
    for _ in range(100):  # the time of several heartbeats: it is told once, however often it is tried
        job.status()
    assert agent.output.count("report the RAM copy of step 10, rank 0 cannot be used") == 1
    filler.unlink()
    until(lambda: any(f.proven and f.proven.step == 10 for f in job.arena.scan()), what="the proof")
    child.kill()
    child.wait()
    job.run(steps=12)
    assert resumes(job.out)[-1][1:] == (10, "ram")


@pytest.mark.parametrize("to_bytes", [0, 1000, 4096, 20_000])
def test_a_mem_1_a_slot_that_somebody_cut_short_is_no_source(make_job: MakeJob, to_bytes: int) -> None:
    """A-MEM-1: a foreign process truncates the newest image in RAM: the next attempt and its agent read no page that is
    not there; the state comes from the target."""
    job = make_job(every=2, commit_every=2)
    job.start_agent()
    (child,) = job.start(die_at=7)
    child.wait()
    until(lambda: 6 in job.committed(), what="commit of step 6")
    job.end_agent()
    for files in job.arena.scan():
        os.truncate(job.arena.path(files.name), to_bytes)
    agent = job.start_agent()
    job.run(steps=9)
    assert resumes(job.out)[-1][1:] == (6, "target"), agent.output
