"""`hinan plan`: how often, to which tier, at what price."""

from __future__ import annotations

import inspect
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer

from hinan.cli.refusal import EXIT_FAILED, refuse
from hinan.cli.words import pairs
from hinan.core.errors import ConfigError, HinanError

if TYPE_CHECKING:
    from hinan.plan.observed.measured import MeasuredRun
    from hinan.plan.observed.traces import Trace

_HELP = """Answer how often to save, to which tier, and at what price.

Give what you know; every other number is measured in a run (--from-run), read from a machine's links (--wire), a sourced
default or a marked guess (--explain and --json say which).
Exit codes: 0 there is a design, 1 what was asked is impossible (the nearest that is possible is printed), 2 usage."""


def plan(**options: Any) -> None:
    """Runs the verb; options are the words of `hinan.plan.model.settings` and the switches below."""
    from hinan.plan.model.checks import Infeasible

    settings = {
        name.replace("_", "-"): str(text) for name, text in options.items() if name in _names() and text is not None
    }
    switches = {name: value for name, value in options.items() if name not in _names()}
    measured: MeasuredRun | None = None
    try:
        _check(switches)
        if switches["self_check"]:
            _self_check(as_json=switches["json"])
        elif switches["formula"]:
            _formula(switches["formula"], switches["given"], as_json=switches["json"])
        elif switches["scale"]:
            measured = _measured(switches)
            _scale(settings, switches, measured)
        else:
            measured = _measured(switches)
            _answer(settings, switches, measured)
    except Infeasible as error:
        summary = measured.summary(_typed(settings, switches)) if measured else ""
        refuse(error, as_json=switches["json"], summary=summary)
        raise typer.Exit(EXIT_FAILED) from error
    except HinanError as error:
        if switches["json"]:
            typer.echo(json.dumps({"feasible": False, "impossible": [str(error)], "nearest": {}}))
        raise


def _check(switches: dict[str, Any]) -> None:
    """Refuse switches that would be left unread, or that no simulation can begin with."""
    if switches["given"] and switches["formula"] == "list":
        raise ConfigError("--given belongs to --formula NAME; --formula list takes nothing")
    if switches["given"] and not switches["formula"]:
        raise ConfigError("--given belongs to --formula NAME, and no formula was named (--formula list shows them)")
    if switches["html"] and (switches["scale"] or switches["formula"] or switches["self_check"]):
        raise ConfigError(
            "--html is the report of one design (with its scale): leave out --scale, --formula and --self-check"
        )
    for name in ("trace_nodes", "trace_from"):
        if switches[name] is not None and not switches["trace"]:
            raise ConfigError(f"{_flag(name)} says something about a trace, and none was given (--trace FILE)")
        if switches[name] is not None and not switches[name] >= (name == "trace_nodes"):
            raise ConfigError(f"{_flag(name)}: {switches[name]} cannot be; a fleet has nodes, and days count from 0")
    if switches["seed"] is not None and switches["seed"] < 0:
        raise ConfigError(f"--seed: {switches['seed']} is below zero; any whole number from 0 will do")


def _names() -> set[str]:
    from hinan.plan.model.settings import SETTINGS

    return {name.replace("-", "_") for name in SETTINGS}


def _measured(switches: dict[str, Any]) -> MeasuredRun | None:
    """What is known beside the settings: by a run, and of the machine's links."""
    from hinan.cli.fromrun import measured_run
    from hinan.cli.fromwire import wired
    from hinan.plan.observed.measured import together

    if switches["gpu"] is not None and not switches["wire"]:
        raise ConfigError("--gpu says which GPU's wire is meant; it needs --wire (for the size of the job there is --gpus)")
    run = measured_run(Path(switches["from_run"])) if switches["from_run"] else None
    return together(run, wired(switches["wire"], switches["gpu"]) if switches["wire"] else None)


def _typed(settings: dict[str, str], switches: dict[str, Any]) -> set[str]:
    return {*settings, "failures"} if switches["trace"] else {*settings}


def _answer(settings: dict[str, str], switches: dict[str, Any], measured: MeasuredRun | None) -> None:
    from hinan.plan.decision.answer import answer, to_json
    from hinan.plan.decision.nearest import solve_settings
    from hinan.plan.decision.shapes import arrivals_named
    from hinan.plan.decision.witnesses import LIVES, seed_of
    from hinan.plan.observed.traces import table_of
    from hinan.plan.show import terminal
    from hinan.plan.show.explain import explain

    trace = _trace(switches)
    fitted = table_of(trace) if trace else None
    scenario, design = solve_settings(settings, fitted=fitted, measured=measured)
    shape = None
    seed = seed_of(design) if switches["seed"] is None else switches["seed"]
    if switches["arrivals"]:
        shape = arrivals_named(switches["arrivals"], design, nodes=scenario.nodes, lives=LIVES, seed=seed, trace=trace)
    found = answer(scenario, design, seed=seed, arrivals=shape)
    if switches["html"]:
        from hinan.plan.show.webpage import report

        _write(Path(switches["html"]), report(found))
    if switches["json"]:
        typer.echo(json.dumps(_finite(to_json(found)), indent=1))
        return
    typer.echo(terminal.table(found))
    typer.echo("\n" + terminal.curve(found))
    if switches["explain"]:
        typer.echo("\n" + explain(found))
    if switches["html"]:
        typer.echo(f"\nreport: {switches['html']}")


def _write(path: Path, text: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(
            f"--html: {path} cannot be written ({error.strerror or error}); name a file you may write"
        ) from error


def _finite(value: Any) -> Any:
    """JSON has no infinity: null stands for it."""
    if isinstance(value, dict):
        return {key: _finite(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(each) for each in value]
    return None if isinstance(value, float) and abs(value) == float("inf") else value


def _self_check(*, as_json: bool) -> None:
    from hinan.plan.selfcheck.vectors import run_all

    results = run_all()
    if as_json:
        typer.echo(json.dumps([result.to_json() for result in results], indent=1))
    else:
        for result in results:
            mark = "ok  " if result.ok else "FAIL"
            typer.echo(f"{mark} {result.id:<7} {result.value:<12.6g} expected {result.expected:<10g} {result.source}")
    if not all(result.ok for result in results):
        raise typer.Exit(EXIT_FAILED)


def _formula(name: str, given: list[str], *, as_json: bool) -> None:
    from hinan.plan.selfcheck.kinds import compute, listing

    if name == "list":
        formulas = listing()
        lines = [f"{each}({', '.join(inputs)})" for each, inputs in formulas.items()]
        typer.echo(json.dumps(formulas, indent=1) if as_json else "\n".join(lines))
        return
    values = compute(name, pairs(given, "--given"))
    typer.echo(json.dumps(values) if as_json else "\n".join(f"{key} {value:.6g}" for key, value in values.items()))


def _scale(settings: dict[str, str], switches: dict[str, Any], measured: MeasuredRun | None) -> None:
    from hinan.plan.decision.scale import scale, scale_json, scale_text
    from hinan.plan.observed.traces import table_of

    trace = _trace(switches)
    points = scale(settings, fitted=table_of(trace) if trace else None, measured=measured)
    typed = {*_typed(settings, switches), "gpus"}
    summary = measured.summary(typed) if measured else ""
    if switches["json"]:
        typer.echo(json.dumps(_finite(scale_json(points)) | ({"measured": summary} if summary else {}), indent=1))
        return
    typer.echo(scale_text(points))
    if measured:
        typer.echo("\n".join([summary, *(f"! {note}" for note in measured.notes(typed))]))


def _trace(switches: dict[str, Any]) -> Trace | None:
    from hinan.plan.observed.traces import read_trace

    if not switches["trace"]:
        return None
    return read_trace(Path(switches["trace"]), nodes=switches["trace_nodes"], first_day=switches["trace_from"])


_SWITCHES: dict[str, tuple[Any, Any, str]] = {
    "trace": (str | None, None, "failure trace to fit (InfiniteHBD's format), instead of a table"),
    "trace_nodes": (int | None, None, "nodes of the trace's fleet, with those that never failed"),
    "trace_from": (float | None, None, "day on which the trace began, in its own count"),
    "arrivals": (
        str | None,
        None,
        "shape of simulated failures: exponential, weibull:0.62, bursts:0.3,200s, lemons, racks, replay",
    ),
    "from_run": (
        str | None,
        None,
        "target of a run: its measured state, step, stall, drain, restart and failures replace what is not given",
    ),
    "wire": (
        list[str],
        [],
        "file that `hinan wire` reads (repeat to join several), 'live' or 'sample': its measured or highest possible "
        "bandwidth from HBM to RAM replaces the preset's",
    ),
    "gpu": (str | None, None, "with --wire: index or PCI address; without it the slowest counts"),
    "explain": (bool, False, "formulas, numbers put in, their sources, and what would flip the decision"),
    "scale": (bool, False, "the same question from 8 to 1,000,000 GPUs"),
    "html": (str | None, None, "write a self-contained report with interactive curves"),
    "json": (bool, False, "the answer as JSON"),
    "seed": (int | None, None, "seed of the simulation; without it one that follows from the design"),
    "self_check": (bool, False, "reproduce the published numbers: value, expected, source"),
    "formula": (str | None, None, "compute one formula ('list' shows them) with --given"),
    "given": (list[str], [], "NAME=VALUE for --formula, repeated"),
}


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")


def register(app: typer.Typer) -> None:
    """Adds the verb. Its options come from the table of settings, so help, parser and `nearest` cannot differ."""
    from hinan.plan.model.settings import SETTINGS

    parameters = []
    for name, setting in SETTINGS.items():
        option = typer.Option(None, f"--{name}", help=f"{setting.help} (like {setting.example})", show_default=False)
        parameters.append((name.replace("-", "_"), str | None, option))
    for name, (kind, initial, text) in _SWITCHES.items():
        parameters.append((name, kind, typer.Option(initial, _flag(name), help=text, show_default=False)))

    def verb(**options: Any) -> None:
        plan(**options)

    # typer reads options from the signature: it is built from the table instead of being written twice.
    signature = inspect.Signature(
        [inspect.Parameter(n, inspect.Parameter.KEYWORD_ONLY, default=o, annotation=k) for n, k, o in parameters]
    )
    verb.__signature__ = signature  # type: ignore[attr-defined]
    verb.__annotations__ = {n: k for n, k, _ in parameters}
    verb.__doc__ = _HELP
    app.command("plan")(verb)
