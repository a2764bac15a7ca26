"""Calls that an Evacuator refuses, each with the way out: after its end, in a forked child, inside another call."""

from __future__ import annotations

import os
from collections.abc import Collection
from types import CodeType

from hinan.core.errors import ConfigError
from hinan.host.signals import has_interrupted, is_in_handler, is_inside


def refuse_after_end(*, ended: bool, pid: int) -> None:
    """Refuse a call after the loop's end, and in a process that only inherited the object.

    Args:
        pid: of the process that made it.
    """
    if ended:
        raise ConfigError("this Evacuator is closed: nothing is saved any more. Close it after the last step.")
    if os.getpid() != pid:
        raise ConfigError(
            f"this Evacuator belongs to process {pid}: a forked child has neither its threads nor its slots. "
            "Call it in the process that made it."
        )


def refuse_nested(call: str, owner: object, calls: Collection[CodeType]) -> None:
    """Refuse a call inside another one of the same object: that one owns the slots meanwhile. Called by the method itself.

    Args:
        calls: the code of the methods that exclude each other.
    """
    if is_inside(owner, calls):
        where = "in a signal's handler that interrupted" if is_in_handler() else "in a hook or a state_dict() that runs in"
        raise ConfigError(
            f"{call} {where} another call of this Evacuator, which cannot go on meanwhile. Set a flag there, and look at "
            "it behind evac.step()"
        )


def refuse_wait_in_handler(owner: object, calls: Collection[CodeType]) -> None:
    """Refuse to wait for an evacuation in a signal's handler that has interrupted a call: what is waited for may need what
    the call below holds."""
    if has_interrupted(owner, calls):
        raise ConfigError(
            "handle.wait() in a signal's handler that interrupted a call of this Evacuator, which cannot go on meanwhile. "
            "Set a flag there, and look at it behind evac.step()"
        )


def mid_iteration(step: int) -> ConfigError:
    """An evacuation would keep the state of an unfinished iteration under the number of the last finished one."""
    return ConfigError(
        f"evac.evacuate() in the middle of an iteration: an optimizer has stepped since step {step} was counted, and the "
        "next one is not finished. Call it right behind evac.step(); in a signal's handler set a flag, and look at it there"
    )
