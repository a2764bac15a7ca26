"""The agent's log lies in RAM: it stays small, loses nothing recent, and fails nobody."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.harness.disks import Disks, fill

PROGRAM = """
import contextlib, logging, os, sys
from pathlib import Path
from hinan.agent.log import CappedLog
arena, lines, cap = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
logging.basicConfig(level=logging.INFO, handlers=[CappedLog(arena, cap)], force=True)
for i in range(lines):
    logging.info("line %d %s", i, "x" * 100)
with contextlib.suppress(OSError):
    os.write(2, b"a traceback\\n")
print(len(os.listdir("/proc/self/fd")), file=open(sys.argv[4], "w"))
"""


def log(arena: Path, lines: int, cap: int = 1 << 16, log: Path | None = None) -> int:
    """Run a process that logs as an agent does; how many descriptors it had open at the end."""
    told = arena.parents[1] / "descriptors"
    with (log or arena / "agent.log").open("ab") as out:
        subprocess.run(
            [sys.executable, "-c", PROGRAM, str(arena), str(lines), str(cap), str(told)], stdout=out, stderr=out, check=True
        )
    return int(told.read_text())


def test_a_mem_2_the_log_stays_small_and_keeps_its_end(tmp_path: Path) -> None:
    """A-MEM-2: twenty times the cap is logged: two files of about the cap each stand, the newer ends with the last line
    and with what was printed beside the log; descriptors are those of a short log."""
    arena = tmp_path / "ram" / "arena"
    arena.mkdir(parents=True)
    few = log(arena, 1)
    assert log(arena, 10_000) == few
    assert sorted(os.listdir(arena)) == ["agent.log", "agent.log.1"]
    assert all(p.stat().st_size <= (1 << 16) + 200 for p in arena.iterdir())
    text = (arena / "agent.log").read_text()
    assert f"line 9999 {'x' * 100}\na traceback\n" in text
    older = (arena / "agent.log.1").read_text()
    first = int(text.split("line ", 1)[1].split()[0])
    assert f"line {first - 1} " in older.splitlines()[-1]


def test_a_log_that_is_somebody_elses_is_not_cut(tmp_path: Path) -> None:
    """Standard output that is no file of the arena is written to and left alone."""
    arena = tmp_path / "ram" / "arena"
    arena.mkdir(parents=True)
    (arena / "agent.log").write_text("another agent's\n")
    log(arena, 2_000, log=tmp_path / "mine")
    assert (tmp_path / "mine").stat().st_size > 2_000 * 100
    assert (arena / "agent.log").read_text() == "another agent's\n"
    assert os.listdir(arena) == ["agent.log"]


def test_a_mem_1_a_full_tmpfs_does_not_reach_the_agent_through_its_log(disks: Disks) -> None:
    """A-MEM-1: nothing can be written any more: the lines are lost, and the process ends well."""
    ram = disks.tmpfs("ram", 1 << 20)
    arena = ram / "arena"
    arena.mkdir()
    fill(ram)
    log(arena, 2_000)
