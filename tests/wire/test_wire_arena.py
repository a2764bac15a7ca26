"""`hinan wire explain --arena`: the slot of a run that really trains, against the page table of its trainer."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from tests.harness.job import Job, until
from typer.testing import CliRunner

from hinan.cli.arenas import held_slot, newest, on_device, slot_nodes
from hinan.cli.main import app
from hinan.core.errors import AgentError, ConfigError, TargetError
from hinan.tiers.target import Target

PAGE = os.sysconf("SC_PAGE_SIZE")
IS_ROOT = os.geteuid() == 0
CAPABILITIES = int(Path("/proc/self/status").read_text().split("CapEff:")[1].split()[0], 16)
SEES_FRAMES = bool(CAPABILITIES >> 21 & 1)  # CAP_SYS_ADMIN


@pytest.fixture
def ram() -> Iterator[Path]:
    """A directory in RAM in which no other agent of this machine keeps an arena."""
    path = Path(f"/dev/shm/hinan-wire-{os.getpid()}")
    path.mkdir()
    yield path
    shutil.rmtree(path)


@pytest.fixture
def paused(ram: Path, make_job: Callable[..., Job]) -> Job:
    """A run that stands still after step 7; step 6 is held."""
    job = make_job(tmpfs=ram)
    job.start_agent()  # before the trainer does: one that is slow to start would outlive the first one's end
    job.start(pause_at=[7], pause_file=str(job.root / "pause"))
    until(lambda: (job.root / "pause.7").exists(), what="step 7")
    until(lambda: job.status()["watermark"] == {"step": 6, "attempt": 1}, what="step 6 held")
    return job


def explain(*arguments: str) -> Any:
    return json.loads(CliRunner().invoke(app, ["wire", "explain", *arguments, "--json"], catch_exceptions=False).stdout)


def frames_seen_by(pid: int, path: Path) -> dict[int, int]:
    """Offset in the file -> physical address, from the page table of another process that maps it."""
    found = {}
    for line in Path(f"/proc/{pid}/maps").read_text().splitlines():
        if line.endswith(str(path)):
            start, end = (int(text, 16) for text in line.split()[0].split("-"))
            with Path(f"/proc/{pid}/pagemap").open("rb", buffering=0) as table:
                for address in range(start, end, PAGE):
                    table.seek(address // PAGE * 8)
                    entry = int.from_bytes(table.read(8), "little")
                    if entry >> 63:
                        found[address - start] = (entry & (1 << 55) - 1) * PAGE
    return found


@pytest.mark.skipif(not SEES_FRAMES, reason="frames are shown to root only")
def test_the_address_is_where_the_trainer_writes(paused: Job) -> None:
    """Every page shown lies in the frame that the trainer's own page table names; its range is System RAM."""
    answer = explain("--arena", str(paused.target_path))
    (slot,) = [s for s in paused.status()["slots"] if s["step"] == 6]
    path = paused.arena.path(slot["slot"])
    frames = frames_seen_by(paused.children[0].pid, path)
    assert answer["pages"]
    assert {page["offset_bytes"]: page["physical"] for page in answer["pages"]}.items() <= frames.items()
    assert answer["address"] == frames[0]
    assert answer["iomem"][-1]["name"] == "System RAM"
    assert (
        all(page["node"] is not None for page in answer["pages"]) == Path("/sys/devices/system/node/node0/memory0").exists()
    )
    assert (answer["labels"]["address"], answer["labels"]["iomem"], answer["labels"]["walks"]) == (
        "read",
        "read",
        "illustration",
    )
    assert "step 6 of rank 0, attempt 1" in answer["address_from"]
    assert f"kept by agent {paused.status()['pid']}" in answer["address_from"]


def test_file_and_arena_are_one_way(paused: Job) -> None:
    """`--file SLOT` explains the same page as `--arena TARGET`."""
    slot = held_slot(paused.target_path)
    by_file, by_arena = explain("--file", str(slot.path)), explain("--arena", str(paused.target_path))
    for answer in (by_file, by_arena):
        answer.pop("address_from")
        for page in answer["pages"]:
            page.pop("virtual")
    if SEES_FRAMES:
        assert by_file == by_arena
    assert by_file["labels"] == by_arena["labels"]


def test_the_only_run_needs_no_name(ram: Path, paused: Job, make_job: Callable[..., Job]) -> None:
    """One agent: its slot. Two: both are listed. None: the way out is named."""
    assert held_slot(None, tmpfs=ram) == held_slot(paused.target_path)
    second = make_job("second", tmpfs=ram)
    second.start_agent()
    with pytest.raises(ConfigError, match="2 agents") as told:
        held_slot(None, tmpfs=ram)
    for job in (paused, second):
        assert f"--arena {job.target_path}" in str(told.value)
    with pytest.raises(ConfigError, match="no step yet"):
        held_slot(second.target_path)
    for job in (paused, second):
        job.kill_all()
        job.end_agent()
    with pytest.raises(ConfigError, match="--arena TARGET"):
        held_slot(None, tmpfs=ram)
    left = held_slot(paused.target_path)
    assert (left.step, left.agent) == (6, None)


def test_the_slot_of_a_gpu_is_its_ranks() -> None:
    """With `--gpu` the rank that writes from it; where no rank's device is known, any; a GPU of nobody is an error."""
    devices = {0: "0000:52:00.0", 1: "0000:12:00.0"}
    assert on_device(devices, "0000:12:00.0") == {1}
    assert on_device(devices, None) is on_device({}, "0000:12:00.0") is None
    with pytest.raises(ConfigError, match=r"no rank .* from 0000:22:00.0; rank 0 from 0000:52:00.0, rank 1"):
        on_device(devices, "0000:22:00.0")


def test_the_newest_slot_of_some_ranks(paused: Job) -> None:
    """Only theirs count."""
    slots = paused.arena.scan()
    assert newest(slots, {0}) == newest(slots) is not None
    assert newest(slots, {1}) is None


def test_check_asks_the_agent_where_its_slots_lie(paused: Job) -> None:
    """A run on the CPU has no device, so there is nothing to find; without its agent it is an error, not a clean bill."""
    found = CliRunner().invoke(app, ["wire", "check", "--sample", "--run", str(paused.target_path)])
    assert (found.exit_code, "nothing found" in found.stdout) == (0, True)
    paused.kill_all()
    paused.end_agent()
    with pytest.raises(AgentError):
        CliRunner().invoke(app, ["wire", "check", "--sample", "--run", str(paused.target_path)], catch_exceptions=False)


def test_a_target_without_an_arena(tmp_path: Path, make_job: Callable[..., Job]) -> None:
    """No run, and a run that nobody keeps here, are told apart."""
    with pytest.raises(TargetError, match="does not exist"):
        held_slot(tmp_path / "nothing")
    job = make_job()
    job.target.open_or_create()
    with pytest.raises(ConfigError, match="no arena on this machine"):
        held_slot(job.target_path)


def test_without_root_nothing_is_made_up(ram: Path) -> None:
    """Frames are zeros for others: physical address, range and route are unknown, and no number stands there."""
    path = ram / "slot"
    path.write_bytes(b"x" * 3 * PAGE)
    command = [sys.executable, "-c", "from hinan.cli.main import main; main()", "wire", "explain", "--file", str(path)]
    user = 65534 if IS_ROOT else None
    unreadable = "another user cannot read this Python environment"
    try:
        found = subprocess.run(
            command,
            user=user,
            group=user,
            extra_groups=[] if IS_ROOT else None,
            capture_output=True,
            text=True,
            check=False,
        )
    except PermissionError:
        pytest.skip(unreadable)
    if "Permission" in found.stderr or "No module" in found.stderr:
        pytest.skip(unreadable)
    assert found.returncode == 0, found.stderr
    assert "page frame        physical         unknown" in found.stdout
    assert found.stdout.count("unknown (root needed)") == 3
    assert "3. /proc/iomem\n   unknown" in found.stdout
    assert "2. Who claims the address at each hop\n   unknown" in found.stdout
    assert "5. TLPs\n   unknown" in found.stdout
    assert "root[" not in found.stdout
    assert "below is its virtual address" not in found.stdout


@pytest.mark.parametrize("ask", [held_slot, slot_nodes])
def test_a_run_of_another_user(ram: Path, make_job: Callable[..., Job], ask: Callable[[Path], object]) -> None:
    """Who may not read the run is told so, with the file and the way out."""
    job = make_job(tmpfs=ram)
    target = Target(job.target_path)
    target.open_or_create()
    closed = target.root / "run.json"
    mode = closed.stat().st_mode
    closed.chmod(0)
    try:
        with as_another_user(), pytest.raises(ConfigError, match=r"cannot read .*: ask as the user who runs the training"):
            ask(target.root)
    finally:
        closed.chmod(mode)


@contextmanager
def as_another_user() -> Iterator[None]:
    """Root reads everything: it becomes nobody for a moment."""
    if IS_ROOT:
        os.seteuid(65534)
    try:
        yield
    finally:
        if IS_ROOT:
            os.seteuid(0)
