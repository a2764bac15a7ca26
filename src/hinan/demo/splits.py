"""Where the time from a kill to the first new step went, by the diaries. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from hinan.demo.diary import Line

PARTS = ("launcher", "imports", "rendezvous", "build", "decide", "read", "install", "vote", "step")
"""In order. *launcher*: until the new process existed; *build*: model, DDP, Evacuator; *vote*: what `restore()` took
beside deciding, reading and installing; *step*: the first step itself."""


def split(diary: Sequence[Line], killed_at: float) -> dict[str, float]:
    """Seconds by part, of the rank that made its first new step last; the parts add up to the whole.

    Empty if no rank has made a step after the kill.
    """
    lines = [line for line in diary if line["at"] > killed_at]
    spawned = {line["rank"]: line for line in lines if line["event"] == "imported" and line["spawned_at"] > killed_at}
    first: dict[int, Line] = {}
    for line in lines:
        imported = spawned.get(line["rank"])
        if line["event"] == "step" and imported is not None and line["at"] > imported["at"]:
            first.setdefault(line["rank"], line)
    if not first:
        return {}
    step = max(first.values(), key=lambda line: float(line["at"]))
    mine = {line["event"]: line for line in reversed(lines) if line["rank"] == step["rank"] and line["at"] <= step["at"]}
    imported, met, built, resumed = (mine[event] for event in ("imported", "met", "built", "resumed"))
    phases = {name: float(resumed["seconds"].get(name, 0.0)) for name in ("decide", "read", "install")}
    return {
        "launcher": imported["spawned_at"] - killed_at,
        "imports": imported["at"] - imported["spawned_at"],
        "rendezvous": met["at"] - imported["at"],
        "build": built["at"] - met["at"],
        **phases,
        "vote": resumed["at"] - built["at"] - sum(phases.values()),
        "step": step["at"] - resumed["at"],
    }
