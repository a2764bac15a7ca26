"""Finds what a verb is about: the target, and the arena of this node that belongs to it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hinan.core.decide import View
from hinan.core.errors import TargetError
from hinan.host.node import node_name
from hinan.tiers.arena import Arena, arena_path
from hinan.tiers.target import Target
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
