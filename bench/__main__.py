"""python -m bench: every figure beside its goal. Takes about a quarter of an hour on two quiet cores.

Each figure is measured in fresh interpreters, one after the other. `ok` is null (a question mark in the table) where the
interval covers the goal. Figures and how they are measured: docs/performance.md.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from bench.child import TMPFS, Settings
from bench.figures import MODULES
from bench.proc import end_all
from bench.row import Row

STATE_BYTES = 1_500_000_000
HEAD = ("figure", "measured", "interval", "goal", "unit", "ok", "floor")


def main(arguments: Sequence[str] | None = None) -> int:
    """0 if no figure misses its goal, 1 if one does, 2 if one could not be measured."""
    names = [goal.figure for module in MODULES for goal in module.GOALS]
    parser = argparse.ArgumentParser(prog="python -m bench", description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--only", nargs="+", metavar="NAME", choices=names, help=f"figures: {', '.join(names)}")
    parser.add_argument("--evacuations", type=int, default=20, help="samples of each figure (default 20)")
    parser.add_argument("--state-bytes", type=int, default=STATE_BYTES, help="size of the state (default 1.5 GB)")
    parser.add_argument("--dir", type=Path, default=Path(tempfile.gettempdir()), help="on the disk that is measured")
    form = parser.add_mutually_exclusive_group()
    form.add_argument("--json", action="store_true", help="print a list of objects")
    form.add_argument("--markdown", action="store_true", help="print the table for docs/performance.md")
    options = parser.parse_args(arguments)
    if options.evacuations < 1 or options.state_bytes < 1:
        parser.error("--evacuations and --state-bytes must be at least 1")
    with places(options.dir) as (directory, ram):
        settings = Settings(options.state_bytes, options.evacuations, str(directory), str(ram))
        rows, missing = measure(settings, options.only or names)
    if options.json:
        sys.stdout.write(json.dumps([row.as_json() for row in rows], indent=2) + "\n")
    else:
        print("\n".join(markdown(rows) if options.markdown else table(rows)))
        if missing:
            print(f"\nNot measured: {', '.join(missing)}.")
    return 2 if missing else int(any(row.ok is False for row in rows))


@contextmanager
def places(parent: Path) -> Iterator[tuple[Path, Path]]:
    """A directory for targets and one for arenas; both gone afterwards, with their agents, also after a SIGTERM."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(128 + signal.SIGTERM))
    directory = Path(tempfile.mkdtemp(prefix="hinan-bench-", dir=parent.absolute()))
    ram = Path(tempfile.mkdtemp(prefix="hinan-bench-", dir=TMPFS))
    try:
        yield directory, ram
    finally:
        end_all(directory)
        shutil.rmtree(directory, ignore_errors=True)
        shutil.rmtree(ram, ignore_errors=True)


def measure(settings: Settings, wanted: Sequence[str]) -> tuple[list[Row], list[str]]:
    """The wanted rows, and the figures that could not be measured. Each is said on stderr as soon as it is known.

    Whatever goes wrong with a module costs the figures of that module, never what was measured before or comes after.
    """
    rows: list[Row] = []
    missing: list[str] = []
    for module in MODULES:
        asked = [goal.figure for goal in module.GOALS if goal.figure in wanted]
        if not asked:
            continue
        try:
            found = [row for row in module.rows(settings) if row.goal.figure in asked]
        except Exception as error:  # noqa: BLE001
            missing += asked
            print(f"not measured: {', '.join(asked)}: {type(error).__name__}: {error}", file=sys.stderr, flush=True)
            found = []
        finally:
            settings.clear()
        for row in found:
            print("  ".join(cells(row)), file=sys.stderr, flush=True)
        rows += found
    return rows, missing


def cells(row: Row) -> tuple[str, ...]:
    """One row as text."""
    low, high = row.interval
    ok = {True: "yes", False: "no", None: "?" if row.goal.most is not None else ""}[row.ok]
    goal = f"≤ {row.goal.most:g}" if row.goal.most is not None else ""
    floor = f"{row.floor_s:.3f} s" if row.floor_s is not None else ""
    return (
        row.goal.figure, f"{row.amount:.3g}", f"{low:.3g} to {high:.3g}", goal, row.goal.unit, ok, floor,
    )  # fmt: skip


def table(rows: Sequence[Row]) -> Iterator[str]:
    """Columns for a terminal."""
    lines = [HEAD, *map(cells, rows)]
    widths = [max(len(line[i]) for line in lines) for i in range(len(HEAD))]
    for line in lines:
        yield "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()


def markdown(rows: Sequence[Row]) -> Iterator[str]:
    """The table for docs/performance.md, with titles and the machine."""
    yield f"{machine()}\n"
    yield "| figure | measured | interval | goal | unit | ok | floor |"
    yield "|---|---|---|---|---|---|---|"
    for row in rows:
        name, *rest = cells(row)
        yield f"| {row.goal.title} (`{name}`) | {' | '.join(rest)} |"


def machine() -> str:
    """Processor, cores, memory, kernel and day."""
    from datetime import UTC, datetime

    lines = Path("/proc/cpuinfo").read_text().splitlines()
    model = next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), "unknown processor")
    memory_gib = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    day = datetime.now(UTC).date().isoformat()
    return f"{model}, {os.cpu_count()} cores, {memory_gib:.0f} GiB, Linux {os.uname().release}, {day}."


if __name__ == "__main__":
    sys.exit(main())
