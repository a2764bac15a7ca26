"""Finds what a verb is about: the target, and the arena of this node that belongs to it; and what in them is unreadable."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from hinan.core.agenda import Stored
from hinan.core.decide import View
from hinan.core.errors import TargetError
from hinan.core.ids import StepId
from hinan.core.lineage import Lineage
from hinan.host.node import node_name
from hinan.tiers.arena import Arena, arena_path
from hinan.tiers.target import COMMIT, Target
from hinan.tiers.views import arena_view, target_view

DEFAULT_TMPFS = Path("/dev/shm")  # noqa: S108 - arenas below it are 0700

TargetPath = Annotated[Path, typer.Argument(metavar="TARGET", help="The target directory of a run.")]


def open_target(path: Path) -> Target:
    """The target of an existing run.

    Raises:
        TargetError: there is none.
    """
    target = Target(path.absolute())
    if not target.root.is_dir():
        why = "is a file, not the directory of a run" if target.root.exists() else "does not exist"
        raise TargetError(f"{path} {why}", target=str(path))
    target.run()
    return target


def arena_of(target: Target) -> Arena:
    """The arena of a run on this node: where its agent said it is, else where it would be."""
    node = node_name()
    known = [a for a in target.agents() if a.node == node]
    if known:
        return Arena(Path(known[0].arena))
    return Arena(arena_path(DEFAULT_TMPFS, target.run().run_id, node))


def views_of(target: Target, *, verify: bool) -> list[View]:
    """What this node's RAM, the other nodes and the target show. Another node's RAM cannot be looked into from here."""
    node = node_name()
    elsewhere = [
        View("ram", a.node, "absent", detail=f"{a.arena} is on another host") for a in target.agents() if a.node != node
    ]
    return [
        arena_view(arena_of(target), node, verify=verify, before_settling=True),
        *elsewhere,
        target_view(target, node, verify=verify),
    ]


def standing(target: Target, step_id: StepId, stored: Stored | None, line: Lineage) -> dict[str, Any]:
    """What a step is to a restart. `committed` is None where its record stands and cannot be read."""
    unreadable = target.problem(step_id, COMMIT) is not None
    return {
        "committed": None if unreadable else bool(stored and stored.committed),
        "being_deleted": bool(stored and stored.buried),
        "orphan": line.why_not(step_id),
    }


def problems_of(target: Target) -> dict[str, str]:
    """Records that stand and cannot be read: they count as absent, which may be why a step is refused.

    Of the target those of attempts and failures, and what was read of the steps before this; by their paths below it. Of
    this node's RAM all; by their whole paths.
    """
    target.failures()
    arena = arena_of(target)
    arena.scan()
    # A slot may go between two looks at it; what is gone is nobody's problem.
    in_ram = {str(arena.root / name): why for name, why in arena.problems.items() if (arena.root / name).exists()}
    return {**target.unreadable_attempts(), **target.problems, **in_ram}


def unreadable(problems: dict[str, str]) -> list[str]:
    """The problems for people."""
    return [f"unreadable: {name}: {reason}" for name, reason in sorted(problems.items())]
