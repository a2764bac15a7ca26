"""How the planner's verbs say that something is impossible: the reasons, and the nearest that is possible. Exit code 1."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable

import typer

from hinan.plan.model.checks import Infeasible

EXIT_FAILED = 1


def plan_word(name: str, text: str) -> str:
    """A setting as `hinan plan` takes it; an empty text means that it is to be left out."""
    return f"--{name} {text}" if text else f"(without --{name})"


def refuse(error: Infeasible, *, as_json: bool, summary: str = "", word: Callable[[str, str], str] = plan_word) -> None:
    """Print it, as JSON on stdout or as lines on stderr.

    Args:
        summary: what was measured in a run, if one was asked.
        word: a setting's name and value as the verb takes them.
    """
    if as_json:
        from hinan.plan.decision.answer import refusal_json

        typer.echo(json.dumps(refusal_json(error) | ({"measured": summary} if summary else {}), indent=1))
        return
    lines = [summary] if summary else []
    lines += [f"impossible: {reason}" for reason in error.impossible]
    ways = " ".join(word(name, text) for name, text in error.nearest.items())
    sys.stderr.write("\n".join([*lines, f"nearest that is possible: {ways or 'none found'}"]) + "\n")
