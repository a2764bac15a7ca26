"""How much a drain in the background slows training down, until somebody measures it on the machine in question."""

from __future__ import annotations

from hinan.plan.model.origin import guessed

INTERFERENCE_RATIO = 0.02
"""Slow-down of a step while a drain runs; the price of a drain is this share of its duration."""

INTERFERENCE_ORIGIN = guessed(
    "all-gather lost 8-11 % beside copies on V100 (NVIDIA/nccl issue 2218); paced, over a step"
)  # fmt: skip
