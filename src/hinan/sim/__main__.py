"""`python -m hinan.sim`: play seeds, with or without a planted bug, and print what broke."""

from __future__ import annotations

import argparse
import sys

from hinan.sim.plants import PLANTS
from hinan.sim.schedule import explore


def main(arguments: list[str] | None = None) -> int:
    """Exit code 0: all promises held, or the planted bug was found. 1: the other way round. 2: wrong usage."""
    parser = argparse.ArgumentParser(prog="python -m hinan.sim", description=__doc__)
    parser.add_argument("--seeds", type=int, default=1000, help="how many seeds to play (default 1000)")
    parser.add_argument("--seed", type=int, help="play this one seed and print its transcript")
    parser.add_argument("--first", type=int, default=0, help="seed to start at (default 0)")
    parser.add_argument("--plant", choices=sorted(PLANTS), help="break one rule; the exploration ends when that shows")
    parser.add_argument("--lines", type=int, default=60, help="how much of a transcript to print (default 60)")
    given = parser.parse_args(arguments)
    plant = PLANTS[given.plant] if given.plant else None
    seeds = range(given.first, given.first + given.seeds) if given.seed is None else [given.seed]
    played = events = 0
    found = False
    for outcome in explore(seeds, plant):
        played, events = played + 1, events + outcome.events
        if outcome.violation is not None or given.seed is not None:
            found = found or outcome.violation is not None
            sys.stdout.write(outcome.text(given.lines) + "\n\n")
        if outcome.violation is not None:
            break
    verdict = "a promise was broken" if found else "every promise was kept"
    sys.stdout.write(f"{played} schedules, {events} events: {verdict}\n")
    return 0 if found == (plant is not None) else 1


if __name__ == "__main__":
    sys.exit(main())
