"""Host RAM: no room is an error with the sum, never a signal; nothing leaks, nothing that is needed is taken away."""

from __future__ import annotations

import json
import os
import shutil
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hinan.core.budget import SLOTS_A_RANK
from hinan.formats.messages import Stop
from tests.harness.disks import MARGIN, Disks, fill
from tests.harness.job import Job, assert_same_run, until
from tests.programs.loop import resumes

MakeJob = Callable[..., Job]
Reference = Callable[[int], Job]


def result(job: Job, rank: int = 0) -> dict[str, Any]:
    """What a small program told."""
    return dict(json.loads((job.out / f"result-{rank}.json").read_text()))


def test_a_mem_1_a_tmpfs_that_is_too_small_is_refused_with_the_sum(disks: Disks, make_job: MakeJob) -> None:
    """A-MEM-1: two slots do not fit on the tmpfs: BudgetError with the need, the room and the ways out; no SIGBUS."""
    job = make_job(tmpfs=disks.tmpfs("ram", 16 << 20))
    job.start_agent()
    (child,) = job.start(program="small:start_once")
    child.ok()
    error = result(job)["error"]
    assert error["type"] == "BudgetError", child.output
    assert "1 ranks x 2 slots x 8.0 KiB = 16.0 KiB" in error["text"]
    assert str(job.tmpfs) in error["text"] and "Ways out" in error["text"]
    assert "step" not in result(job)  # restore() refused it, before training


def test_a_mem_1_the_state_that_optimizers_will_make_is_in_the_sum(disks: Disks, make_job: MakeJob) -> None:
    """A-MEM-1: there is room for two images of the parameters, not for two with AdamW's state: refused by `restore()`, so
    before a step is trained and before a slot is made; the same model with plain SGD starts."""
    ram = disks.tmpfs("ram", MARGIN + (4 << 20))
    for optimizer in ("AdamW", "SGD"):
        job = make_job(optimizer, tmpfs=ram)
        job.start_agent()
        (child,) = job.start(program="small:sized", numel=[1 << 18], optimizer=optimizer)
        child.ok()
        found = result(job)
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
    first, second = result(job, 0), result(job, 1)
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
        assert result(job)["error"] is None, child.output
        sources.append(result(job)["source"])
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


@pytest.mark.parametrize("numel", [1 << 20, pytest.param(16 << 20, marks=pytest.mark.slow)])
def test_a_mem_2_memory_is_flat(numel: int, make_job: MakeJob) -> None:
    """A-MEM-2: over 50 evacuations and commits of 4 (among the slow tests 64) MiB, memory, descriptors and files of trainer
    and agent do not grow."""
    job = make_job()
    job.start_agent()
    (child,) = job.start(program="small:many_evacuations", numel=numel)
    child.ok(110)
    sizes = result(job)["sizes"]
    early, late = sizes[10], sizes[-1]
    for who, a, b in zip(("trainer", "agent"), early[:2], late[:2], strict=True):
        assert b - a < 40 * 100, f"{who} grew from {a} to {b} KiB over 40 evacuations"
    # A third slot (four files) is made when a drain first meets a busy moment; after that there are never more.
    for what, a, b, most in zip(
        ("arena files", "agent descriptors", "descriptors"), early[2:], late[2:], (4, 2, 2), strict=True
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
    assert_flat(result(job)["found"])


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
        looks[name] = result(job)["found"]
        assert_flat(looks[name])
    grown = {name: found[2]["trainer kib"] - found[1]["trainer kib"] for name, found in looks.items()}
    assert grown["run"] - grown["control"] <= 4096, grown
    assert looks["run"][2]["agent kib"] - looks["run"][1]["agent kib"] <= 4096


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


@pytest.mark.parametrize("count", [600, pytest.param(20_000, marks=pytest.mark.slow)])
def test_a_mem_5_many_tensors_need_few_descriptors(count: int, make_job: MakeJob) -> None:
    """A-MEM-5: with at most 256 open files, thousands of tensors are evacuated and come back; descriptors stay constant."""
    job = make_job(count=count)
    job.start_agent()
    for _ in range(2):
        (child,) = job.start(program="small:many_tensors", steps=6)
        child.ok(110)
        found = result(job)
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
    opened = {os.readlink(fd) for fd in (proc / "fd").iterdir()}
    Path(f"{pause}.3").unlink()
    child.ok()
    assert any("xxhash" in name for name in mapped)  # it is the right process
    assert not [
        n for n in mapped for word in ("torch", "cuda", "nvidia", "hip", "level_zero") if word in Path(n).name.lower()
    ]
    assert not [n for n in opened if n.startswith("/dev/") and n not in ("/dev/null",) and not n.startswith("/dev/shm/")]
