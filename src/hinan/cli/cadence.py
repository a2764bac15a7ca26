"""The cadence of a run in words: how often, why, and on which numbers that rests (part of `hinan agent status`)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from hinan.cli.output import table
from hinan.core.units import format_seconds

_MEASURED_BY_THE_RUN = {"step_s": "step", "stall_s": "stall", "drain_s": "drain", "restart_s": "restart"}
_NAMES = {
    **_MEASURED_BY_THE_RUN,
    "ram_mtti_s": "failure that RAM survives",
    "target_mtti_s": "failure that takes the RAM",
    "interference_ratio": "slow-down by a drain",
}


def cadence_lines(cadence: Mapping[str, Any] | None) -> Iterator[str]:
    """The part `cadence` of the agent's status as lines for people."""
    if cadence is None:
        yield "how often is evacuated was not written down: no trainer has begun here"
        return
    yield from _intervals(cadence, "")
    if cadence["next"] is not None:
        yield from _intervals(cadence["next"], f"from step {cadence['next']['from_step']} on ")
    if not cadence["inputs"]:
        yield "  nothing was decided by measurements yet"
        return
    yield f"  decided for step {cadence['from_step']} on, from:" if cadence["is_decided"] else "  measured by then:"
    rows = [(_NAMES.get(name, name), _value(name, each["value"]), f"{each['kind']}: {each['source']}")
            for name, each in cadence["inputs"].items()]  # fmt: skip
    yield from (f"    {line}" for line in list(table(("", "", ""), rows))[1:])
    missing = [text for name, text in _MEASURED_BY_THE_RUN.items() if name not in cadence["inputs"]]
    if missing:
        yield f"    not measured yet: {', '.join(missing)}"
    if cadence["lost"]:
        yield "  lost by that, expected: " + ", ".join(f"{cause} {share:.2%}" for cause, share in cadence["lost"].items())


def _intervals(cadence: Mapping[str, Any], when: str) -> Iterator[str]:
    for what, name in (("evacuations", "evacuate"), ("commits", "commit")):
        each = cadence[name]
        steps, seconds = each["interval_steps"], each["interval_s"]
        often = "every step" if steps == 1 else f"every {steps} steps"
        then = "" if seconds is None else f"{format_seconds(seconds)} in steps of {format_seconds(seconds / steps)}"
        time = f" ({then}, measured before step {cadence['from_step']})" if then else ""
        yield f"{when}{what} {often}{time}: {each['why']}"


def _value(name: str, value: float) -> str:
    if name.endswith("_mtti_s"):
        return f"every {format_seconds(value)}"
    return f"{value:.0%}" if name.endswith("_ratio") else format_seconds(value)
