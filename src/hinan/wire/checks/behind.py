"""What a GPU should have had while all copied, and why it had less.

Owns:      the cause that `below-share` names.
Promises:  no cause that the same run refutes: what several GPUs share is not narrow where one of them had its part of it,
           and clearly more than the one that fell behind. A GPU that needed less than that refutes nothing, and neither
           does one that had hardly more, or of which nobody tells whether it writes to the same memory.
"""

from __future__ import annotations

import msgspec

from hinan.wire.checks.case import PROVEN_RATIO
from hinan.wire.checks.measured import best_measurement, runs_at_once
from hinan.wire.facts.model import Gpu, Machine
from hinan.wire.facts.placement import node_for_gpu
from hinan.wire.paths.shares import shares_at_once

CLEARLY_MORE_RATIO = 0.97 / 0.91
"""Whole links do 91 to 97 % of their ceiling: two GPUs whose rates lie nearer to each other than that need differ in
nothing, least of all in what both write to.
"""

_NARROWER = (
    "what the GPUs of a node share beside the links is narrower: its DRAM writes, or the link between sockets",
    "spread the buffers over the GPUs' own nodes, or stagger the ranks; the planner takes the measured rate",
)
_NARROWER_IN_A_VM = (
    "something that several GPUs share is narrower; what, a VM cannot tell: a link of the physical machine may be among it",
    "stagger the ranks; the planner takes the measured rate",
)
_NODE_UNTOLD = (
    "whether it is slow by itself, or what the GPUs of a node share is narrow, cannot be told: no source tells which of "
    "them write to the same memory",
    "join a source that tells the nodes (lspci -vvv or hwloc of the host); then look at this GPU's own links, or stagger",
)
_OWN_WAY_FIX = (
    "measure again; if it stays, read its links under load, and look for AER errors, a throttled GPU, and the node of its "
    "buffer"
)


def expected_at_once(machine: Machine, gpu: Gpu) -> tuple[float | None, str]:
    """What a GPU should get while all copy: its share of the links, unless it does less when it copies alone.

    None where a path is not told up to the root: a link that nobody tells may be what all share.
    """
    share = shares_at_once(machine).get(gpu.address or "")
    alone = best_measurement(machine, gpu, node_for_gpu(machine, gpu.index).near)
    if share is not None and alone is not None and alone.bytes_per_s < share:
        return alone.bytes_per_s, "it does alone"
    return share, "its links leave it"


def why_behind(machine: Machine, gpu: Gpu) -> tuple[str, str]:
    """Why a GPU had less than it should, and what to do about it."""
    others = _others(machine, gpu)
    kept = [other.gpu for other in others if other.kept and other.same_memory]
    if not kept and any(other.kept and other.same_memory is None for other in others):
        return _NODE_UNTOLD
    slow_too = [other.gpu for other in others if other.slow_too and other.same_memory]
    if not kept:
        cause, fix = _NARROWER_IN_A_VM if machine.virtual else _NARROWER
        level = [other.gpu for other in others if other.level and other.same_memory]
        return f"{_named(level)} had hardly more in the same run: {cause}" if level else cause, fix
    whole = f"{_named(kept)} had {'its' if len(kept) == 1 else 'their'} part in the same run, into the same memory"
    own = f", or shares with {_named(slow_too)}" if slow_too else ""
    return f"{whole}: what is slow is on the way that only this GPU takes{own}", _OWN_WAY_FIX


def _named(gpus: list[Gpu]) -> str:
    return f"GPU{'s' if len(gpus) > 1 else ''} {' '.join(str(gpu.index) for gpu in gpus)}"


class _Other(msgspec.Struct, frozen=True):
    """Another GPU in the slowest run of one that fell behind.

    same_memory: does its state go to the same node? None: no source tells. kept: it had its part, and clearly more than
    the one that fell behind. level: it had its part, and that is hardly more. slow_too: level, or it had less than its
    part. One that had its part, and less than the one that fell behind, is none of these.
    """

    gpu: Gpu
    same_memory: bool | None
    kept: bool
    level: bool
    slow_too: bool


def _others(machine: Machine, gpu: Gpu) -> tuple[_Other, ...]:
    at = gpu.address or ""
    rates = min((run for run in runs_at_once(machine) if at in run), key=lambda run: run[at], default={})
    node = node_for_gpu(machine, gpu.index).node
    found: list[_Other] = []
    for other in machine.gpus:
        rate = rates.get(other.address or "")
        expected, _ = expected_at_once(machine, other)
        if other.address == gpu.address or not rate or not expected:
            continue
        its = node_for_gpu(machine, other.index).node
        same = None if node is None or its is None else its == node
        whole = rate >= PROVEN_RATIO * expected
        clearly = rate >= CLEARLY_MORE_RATIO * rates[at]
        level = whole and not clearly and rate >= rates[at]
        found.append(_Other(other, same, kept=whole and clearly, level=level, slow_too=level or not whole))
    return tuple(found)
