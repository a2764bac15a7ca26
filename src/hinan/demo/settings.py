"""What one demo is: sizes and cadences as one value that the orchestrator writes and the training loop reads."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import msgspec

from hinan.core.errors import ConfigError

EVACUATIONS = 9
"""Evacuations in a run; every third one is committed. So a kill between two commits always finds newer steps in RAM."""

COMMIT_MULTIPLE = 3
FEWEST_STEPS = EVACUATIONS


@dataclass(frozen=True)
class Plan:
    """One training run.

    Attributes:
        target: directory of the run, given to `hinan.Evacuator`.
        out: directory for the diaries, the files that the proof compares.
        every: steps between evacuations to RAM.
        commit_every: steps between commits; a multiple of `every`.
        forget: part of the state that an attempt after the first resumes without: "" or "optim".
        compare_save: measure a plain `torch.save` of the same state after the last step.
        lr: of AdamW. As high as a model of this size bears: there a step without moments (AdamW's first steps are as long
            as its longest) does visible harm.
    """

    target: str
    out: str
    ranks: int = 2
    steps: int = 30
    every: int = 3
    commit_every: int = 9
    device: str = "cpu"
    forget: str = ""
    compare_save: bool = False
    seed: int = 1
    batch: int = 2
    context: int = 64
    width: int = 320
    layers: int = 8
    heads: int = 8
    dropout: float = 0.1
    lr: float = 3e-3

    def write(self, path: Path) -> None:
        """Write the plan for the training loop."""
        path.write_bytes(msgspec.json.encode(self))


def read_plan(path: Path) -> Plan:
    """The plan that the orchestrator wrote."""
    return msgspec.json.decode(path.read_bytes(), type=Plan)


def cadence(steps: int) -> tuple[int, int]:
    """(every, commit_every) in steps, for a run of this length.

    Raises:
        ConfigError: too few steps to be killed between two commits.
    """
    if steps < FEWEST_STEPS:
        raise ConfigError(
            f"--steps {steps} is too few: between two commits there must be an evacuation, so at least {FEWEST_STEPS}"
        )
    every = steps // EVACUATIONS
    return every, every * COMMIT_MULTIPLE
