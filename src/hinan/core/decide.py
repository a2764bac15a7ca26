"""Which step to resume from, from where, and why not from the others (rules A3, F2, G1).

Rank 0 gathers what every tier shows (`View`) and calls `decide`; the answer is a ranked list that all ranks walk
together, and a reason for everything refused. The same function prints the table of `hinan decide`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from hinan.core.ids import StepId
from hinan.core.lineage import History, lineage

TIER_ORDER = ("ram", "target")
"""Fastest first; a rank reads its image from the first tier that has it."""

MIXED = "mixed"


@dataclass(frozen=True)
class Image:
    """One rank's image as found on a tier.

    Attributes:
        place: slot name or path below the target, for people and for the reader.
        world_size: number of ranks that make the step complete; 0 where nothing says how many.
        flaw: why it cannot be used (not proven, wrong length, unreadable record); None if it can.
        late_digest: its digest was not taken right after the copy but by a later agent: evidence of less.
    """

    step_id: StepId
    rank: int
    world_size: int
    place: str
    image_bytes: int
    flaw: str | None = None
    late_digest: bool = False


@dataclass(frozen=True)
class View:
    """What one tier of one node shows. `status`: present, empty (looked, nothing there), absent (could not look)."""

    tier: str
    node: str
    status: str
    images: tuple[Image, ...] = ()
    detail: str = ""


@dataclass(frozen=True)
class Candidate:
    """A step as one could resume from it: `sources[rank]` is the image that the rank would read.

    `was_whole`: every rank's image stands or was promised by a commit record, so that a refusal is a loss. What never was
    whole (a kill between two ranks' seals, an interrupted drain) loses nothing that anyone could have resumed from.
    """

    tier: str
    step_id: StepId
    ok: bool
    reason: str
    sources: Mapping[int, Image]
    was_whole: bool = True


@dataclass(frozen=True)
class Decision:
    """`ranked` holds the usable candidates, best first; `candidates` all of them, refused ones with their reason."""

    candidates: tuple[Candidate, ...]
    views: tuple[View, ...]

    @property
    def ranked(self) -> tuple[Candidate, ...]:
        return tuple(c for c in self.candidates if c.ok)

    @property
    def chosen(self) -> Candidate | None:
        return next(iter(self.ranked), None)


def decide(
    views: Iterable[View],
    history: History,
    *,
    failures: Collection[tuple[StepId, str]] = (),
    world_size: int | None = None,
) -> Decision:
    """Rank all steps found, newest first, fastest source first.

    Args:
        failures: (step, tier) pairs that already failed at an earlier restart; not tried again.
        world_size: number of ranks that want to resume; None when only asking (any is fine).
    """
    seen = tuple(views)
    line = lineage(history)
    candidates = []
    for step_id in sorted({i.step_id for v in seen for i in v.images}, reverse=True):
        for tier, found in _by_source(step_id, seen):
            reason = line.why_not(step_id) or _why_not(step_id, tier, found, failures, world_size)
            usable = {rank: i for rank, i in sorted(found.items()) if i.flaw is None}
            note = ", digest taken late" if any(i.late_digest for i in usable.values()) else ""
            text = reason or f"all {len(usable)} images found and proven{note}"
            whole = set(found) == set(range(max(image.world_size for image in found.values())))
            candidates.append(Candidate(tier, step_id, reason is None, text, usable, was_whole=whole))
    return Decision(tuple(candidates), seen)


def may_be_late(decision: Decision, history: History, failures: Collection[tuple[StepId, str]] = ()) -> bool:
    """Whether names that a shared store does not show yet could change the decision for the better (rule F1).

    So where nothing can be used, and where a committed step newer than the chosen one lacks a file. What was refused for
    its lineage, or has failed before, is refused whatever shows up.
    """
    line, chosen = lineage(history), decision.chosen
    if chosen is None:
        return True
    newer = [c for c in decision.candidates if c.step_id > chosen.step_id and c.step_id in line and c.tier != "ram"]
    return any(c.was_whole and not c.ok and (c.step_id, c.tier) not in failures for c in newer)


def _by_source(step_id: StepId, views: tuple[View, ...]) -> list[tuple[str, dict[int, Image]]]:
    """The ways to read a step: each tier alone, and, where no tier is whole, the best of each rank."""
    by_tier: dict[str, dict[int, Image]] = {}
    for view in views:
        for image in view.images:
            if image.step_id == step_id:
                known = by_tier.setdefault(view.tier, {})
                if image.rank not in known or known[image.rank].flaw is not None:
                    known[image.rank] = image
    ways = [(tier, by_tier[tier]) for tier in TIER_ORDER if tier in by_tier]
    if len(ways) > 1 and not any(_is_whole(images) for _, images in ways):
        best = dict(ways[-1][1])
        for _, images in reversed(ways):
            best.update({rank: image for rank, image in images.items() if image.flaw is None})
        ways.insert(0, (MIXED, best))
    return ways


def _is_whole(images: Mapping[int, Image]) -> bool:
    usable = {rank for rank, image in images.items() if image.flaw is None}
    return bool(usable) and usable == set(range(next(iter(images.values())).world_size))


def _why_not(
    step_id: StepId,
    tier: str,
    found: Mapping[int, Image],
    failures: Collection[tuple[StepId, str]],
    world_size: int | None,
) -> str | None:
    saved_world = max(image.world_size for image in found.values())
    if missing := sorted(set(range(saved_world)) - set(found)):
        return f"no image of rank {_some(missing)} of {saved_world}"
    if flawed := [image for image in found.values() if image.flaw is not None]:
        who = f"rank {flawed[0].rank}: " if saved_world else ""
        return f"{who}{flawed[0].flaw}" + (f" (and {len(flawed) - 1} more)" if flawed[1:] else "")
    if (step_id, tier) in failures:
        return "an earlier restart from it failed"
    if world_size is not None and world_size != saved_world:
        return f"saved by {saved_world} ranks, asked for by {world_size}: start {saved_world} ranks"
    return None


def _some(ranks: list[int]) -> str:
    shown = ", ".join(map(str, ranks[:8]))
    return shown if len(ranks) <= 8 else f"{shown} and {len(ranks) - 8} more"
