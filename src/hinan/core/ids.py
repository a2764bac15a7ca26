"""Names of things: steps, images and the files that carry them. One place formats, the same place parses.

`StepId` orders by attempt, then step. On a lineage that is also the order of training: an attempt only makes steps above
the one it resumed from.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_STEP_DIRECTORY = re.compile(r"(\d{10})-(\d{6})")
_RANK_FILE = re.compile(r"rank-(\d{5})\.(safetensors|json)")
_SLOT = re.compile(r"(\d{5})-(\d{6})")


class StepId(NamedTuple):
    """One evacuated state: `step` finished steps, made by incarnation `attempt` of the run."""

    attempt: int
    step: int

    def __str__(self) -> str:
        return f"step {self.step} (attempt {self.attempt})"


def step_directory(step_id: StepId) -> str:
    """Name of a step's directory on the target, e.g. `0000000120-000003`."""
    return f"{step_id.step:010d}-{step_id.attempt:06d}"


def parse_step_directory(name: str) -> StepId | None:
    """The step a directory name stands for; None for a foreign name."""
    match = _STEP_DIRECTORY.fullmatch(name)
    return StepId(attempt=int(match[2]), step=int(match[1])) if match else None


def image_file(rank: int) -> str:
    """Name of a rank's image inside a step's directory."""
    return f"rank-{rank:05d}.safetensors"


def manifest_file(rank: int) -> str:
    """Name of a rank's manifest inside a step's directory."""
    return f"rank-{rank:05d}.json"


def parse_rank_file(name: str) -> tuple[int, str] | None:
    """(rank, extension) of an image or manifest name; None for a foreign name."""
    match = _RANK_FILE.fullmatch(name)
    return (int(match[1]), match[2]) if match else None


def slot_name(rank: int, number: int) -> str:
    """Name of a slot in the arena, without extension, e.g. `00003-000001`."""
    return f"{rank:05d}-{number:06d}"


def parse_slot_name(name: str) -> tuple[int, int] | None:
    """(rank, number) of a slot name; None for a foreign name."""
    match = _SLOT.fullmatch(name)
    return (int(match[1]), int(match[2])) if match else None
