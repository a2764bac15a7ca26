"""`hinan simulate`: a year of a job under one or more policies, with paired seeds."""

from __future__ import annotations

import json
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path

import typer

from hinan.cli.refusal import EXIT_FAILED, plan_word, refuse
from hinan.cli.words import pairs
from hinan.core.errors import ConfigError

_OWN = ("gpus", "params", "step", "preset")
"""Settings that have options of their own here; the others come by --set."""
_OF_PLAN = ("arrivals", "trace", "from-run", "wire")
"""Options of `hinan plan` that are no settings: they bring what was seen, and a year here draws its own."""
_SET_HELP = f"any other setting of `hinan plan`, like --set mtti=1h; not {', '.join(_OF_PLAN)}"


def simulate(
    gpus: str = typer.Option("100000", help="GPUs of the job"),
    params: str | None = typer.Option(None, help="parameters of the model; 405B where nothing else says the state"),
    step: str = typer.Option("5s", help="training step"),
    preset: str = typer.Option("dgx-h100", help="machine, as in `hinan plan`"),
    settings: list[str] = typer.Option([], "--set", help=_SET_HELP),
    policy: list[str] = typer.Option([], "--policy", help="TOML file; repeat to compare with paired seeds"),
    years: int = typer.Option(1, min=1, help="simulated years, one seed each"),
    seed: int = typer.Option(1, min=0, help="first seed; the same seeds give the same years"),
    as_json: bool = typer.Option(False, "--json", help="the result as JSON"),
) -> None:
    """Live through a year of a big job: tiers, drains, spares, repairs, stragglers, evictions.

    Without --policy the planner's recommendation is simulated. A policy file changes intervals, spares or evictions:
    `spares = 8`, `evict_above = 1.2`, `[every]` with `ram = "30s"`, `peer = "never"`. What it does not say is planned.
    """
    from hinan.plan.decision.caveats import caveats
    from hinan.plan.decision.modes import compare_modes
    from hinan.plan.decision.nearest import solve_settings
    from hinan.plan.model.checks import Infeasible
    from hinan.plan.model.settings import Unreadable
    from hinan.plan.simulated.policy import planned, read_policy
    from hinan.plan.simulated.simulate import compare, to_json, to_text

    words = {"gpus": gpus, "step": step, "preset": preset} | ({} if params is None else {"params": params})
    more = pairs(settings, "--set")
    for name in more.keys() & _OWN:  # whether the option was typed or not: it has a value already, and none wins silently
        raise ConfigError(f"--set {name}={more[name]}: {name} has an option of its own, --{name} {more[name]}", name=name)
    _check(more)
    words |= more
    if not {"params", "state-bytes", "keep"} & words.keys():
        words["params"] = "405B"
    try:
        scenario, design = solve_settings(words)
    except Infeasible as error:
        refuse(error, as_json=as_json, word=_word)
        raise typer.Exit(EXIT_FAILED) from error
    except Unreadable as error:
        raise Unreadable(error.reasons, _word) from error
    base = planned(scenario, design)
    policies = [read_policy(Path(path), base) for path in policy] or [base]
    rows = compare(scenario, policies, range(seed, seed + years))
    known = caveats(scenario, design, compare_modes(scenario))
    typer.echo(json.dumps(to_json(rows, caveats=known), indent=1) if as_json else to_text(rows, caveats=known))


def _check(more: Mapping[str, str]) -> None:
    """Each is a setting and has a value.

    Raises:
        ConfigError: names the one that is not, and the nearest that is.
    """
    from hinan.plan.model.settings import SETTINGS

    for name, text in more.items():
        if name in _OF_PLAN:
            raise ConfigError(f"--set {name}={text}: --{name} is an option of `hinan plan` and no setting", name=name)
        if name not in SETTINGS:
            near = get_close_matches(name, SETTINGS, 1)
            hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(SETTINGS)}"
            raise ConfigError(f"--set {name}={text}: no setting {name!r}; {hint}", name=name)
        if not text:
            raise ConfigError(f"--set {name}= has no value, like --set {name}={SETTINGS[name].example}", name=name)


def _word(name: str, text: str) -> str:
    """A setting as this verb takes it: four by their own options, the others by --set."""
    if name in _OWN:
        return plan_word(name, text)
    return f"--set {name}={text}" if text else f"(without --set {name}=...)"


def register(app: typer.Typer) -> None:
    """Adds the verb."""
    app.command("simulate")(simulate)
