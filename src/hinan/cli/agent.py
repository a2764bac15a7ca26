"""`hinan agent`: start, look at and stop the agent that keeps a run's RAM copies on this node."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from hinan.cli.cadence import cadence_lines
from hinan.cli.output import Json, emit, table
from hinan.cli.places import TargetPath, arena_of, open_target
from hinan.cli.verbs import Verbs
from hinan.core.errors import AgentError
from hinan.core.units import format_bytes, format_seconds
from hinan.formats import messages as m
from hinan.host.node import node_name
from hinan.host.rpc import AgentClient
from hinan.host.spawn import connect
from hinan.tiers.target import Target

ANSWER_S = 10.0

app = Verbs(
    help="Start, look at and stop the agent that keeps a run's RAM copies on this node.",
    no_args_is_help=True,
    epilog="Example:  hinan agent status /shared/runs/gpt",
)


@app.command(epilog="Example:  hinan agent start /shared/runs/gpt")
def start(target: TargetPath, json: Json = False) -> None:
    """Start the agent before the job, outside its cgroup or job step, so that it outlives them. Makes the run if needed."""
    place = Target(target.absolute())
    place.open_or_create()
    arena = arena_of(place)
    arena.create()
    client = connect(arena.root, ANSWER_S, (place.root, arena.root, node_name()))
    detail = ask_status(client)
    emit(
        detail,
        as_json=json,
        text=lambda: [f"agent {detail['pid']} keeps {detail['arena']}; it survives {detail['survives']}"],
    )


@app.command(epilog="Example:  hinan agent status /shared/runs/gpt --json")
def status(target: TargetPath, json: Json = False) -> None:
    """Show slots, watermark, drains, failures, what RAM survives, how often is saved and why. Exit code 1: no agent."""
    detail = ask_status(AgentClient(arena_of(open_target(target)).root / "agent.sock", ANSWER_S))
    emit(detail, as_json=json, text=lambda: _lines(detail))


@app.command(epilog="Example:  hinan agent stop /shared/runs/gpt")
def stop(
    target: TargetPath,
    grace: Annotated[float, typer.Option(help="Seconds a running drain may take to finish.")] = 25.0,
    json: Json = False,
) -> None:
    """Stop the agent; the RAM copies stay for the next one. Trainers that still run start a new one by themselves."""
    client = AgentClient(arena_of(open_target(target)).root / "agent.sock", ANSWER_S)
    client.ask(m.Stop(grace), ANSWER_S)
    client.close()
    emit({"stopped": True}, as_json=json, text=lambda: ["the agent stops"])


def ask_status(client: AgentClient) -> dict[str, Any]:
    """What an agent says of itself (docs/cli.md). The connection is closed."""
    answer = client.ask(m.Status(), ANSWER_S)
    client.close()
    if not isinstance(answer, m.Done):
        raise AgentError(f"the agent answered {answer.reason if isinstance(answer, m.Refused) else answer}")
    return answer.detail


def _placement(placed: dict[str, Any]) -> str:
    """One sentence on where the slots of a rank that has a device lie."""
    where = f"slots of rank {placed['rank']} (device {placed['device']})"
    if placed["node"] is None:
        return f"{where} are not placed: {placed['why']}"
    if placed["problem"] is not None:
        return f"{where} belong on node {placed['node']}: {placed['problem']}"
    return f"{where} are made on NUMA node {placed['node']}: {placed['why']}"


def _lines(detail: dict[str, Any]) -> list[str]:
    w = detail["watermark"]
    drain_s = detail["drain_s"]
    held = "nothing yet" if w is None else f"step {w['step']}"
    committed = f"step {detail['committed']}" if detail["committed"] else "nothing yet"
    lines = [
        f"agent {detail['pid']} on {detail['node']}, run {detail['run_id']}, attempt {detail['attempt']}",
        f"held everywhere: {held}; committed: {committed}; "
        f"draining: {detail['draining'] or 'nothing'}"
        + ("" if drain_s is None else f"; last drain {format_seconds(drain_s)}{' direct' if detail['direct_io'] else ''}"),
        f"the RAM copy survives {detail['survives']}",
        *[f"  but not: {killer}" for killer in detail["killers"]],
        *cadence_lines(detail["cadence"]),
        "",
        *table(
            ("slot", "rank", "phase", "step", "size", "stays because"),
            [
                (
                    s["slot"],
                    s["rank"],
                    s["phase"],
                    s["step"] if s["step"] is not None else "-",
                    format_bytes(s["image_bytes"]),
                    s["stays"] or "",
                )
                for s in detail["slots"]
            ],
        ),
    ]
    if (made := detail["reserving"]) is not None:
        lines.append(f"a slot of {format_bytes(made['image_bytes'])} is being reserved for rank {made['rank']}")
    lines += [_placement(placed) for placed in detail["placement"] if placed["device"] is not None]
    problems = [f"unreadable: {name}: {reason}" for name, reason in detail["unreadable_facts"].items()]
    return lines + [f"failed: {text}" for text in detail["failures"]] + problems
