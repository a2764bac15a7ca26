"""What must hold after a kill, each thing with its reason where it does not. Reads what the run wrote; changes nothing."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from hinan.demo.job import Job
from hinan.demo.proof import Bump, Comparison
from hinan.demo.splits import split
from hinan.demo.trace import Kind, Moment


@dataclass(frozen=True)
class Act:
    """What came of one run. Lists are by rank. `why` is empty if all that must hold holds."""

    kill: str
    comparison: Comparison
    resumed_step: int | None = None
    newest_committed_step: int | None = None
    in_mid_step: bool | None = None
    source: tuple[str, ...] = ()
    redo_steps: int = 0
    kill_to_first_step_s: float | None = None
    seconds: dict[str, float] = field(default_factory=dict)
    read_bytes: dict[str, int] = field(default_factory=dict)
    bump: Bump | None = None
    why: tuple[str, ...] = ()


def judge(kill: str, job: Job, killed: Moment, comparison: Comparison, bumped: Bump | None) -> Act:
    """What must hold after a kill, each with its reason where it does not."""
    ranks = range(job.plan.ranks)
    resumed = [line for rank in ranks if (line := job.last("resumed", rank)) is not None]
    steps = {int(line["step"]) for line in resumed}
    committed = max((m.step for m in job.trace.moments if m.kind is Kind.COMMITTED and m.at <= killed.at), default=0)
    before = [m for m in job.trace.moments if m.kind is Kind.STEP and m.at <= killed.at]
    last_event = [
        line["event"] for line in job.trace.diary if line["rank"] == job.plan.ranks - 1 and line["at"] <= killed.at
    ]
    seconds = split(job.trace.diary, killed.at)
    act = Act(
        kill=kill,
        comparison=comparison,
        resumed_step=min(steps, default=0),
        newest_committed_step=committed,
        in_mid_step=last_event[-1:] == ["forward"],
        source=tuple(str(line["source"]) for line in resumed),
        redo_steps=max((m.step for m in before), default=0) - min(steps, default=0),
        kill_to_first_step_s=sum(seconds.values()) if seconds else None,
        seconds=seconds,
        read_bytes=_summed([line["read_bytes"] for line in resumed]),
        bump=bumped,
    )
    return replace(act, why=tuple(_wrong(act, len(resumed), len(steps), job.plan.ranks)))


def _wrong(act: Act, resumed: int, steps: int, ranks: int) -> Iterator[str]:
    assert act.resumed_step is not None and act.newest_committed_step is not None
    if resumed != ranks or steps != 1:
        yield f"{resumed} of {ranks} ranks resumed, at {steps} different steps"
    if act.kill == "host":
        if act.resumed_step != act.newest_committed_step:
            yield f"resumed at step {act.resumed_step} instead of the committed {act.newest_committed_step}"
    elif act.resumed_step <= act.newest_committed_step:
        yield f"resumed at step {act.resumed_step}, no newer than the committed {act.newest_committed_step}"
    if not act.seconds:
        yield "no rank made a step after the kill"
    expected = "target" if act.kill == "host" else "ram"
    if any(source != expected for source in act.source):
        yield f"resumed from {', '.join(act.source)} instead of {expected}"
    if act.bump is None:
        yield from unequal(act.comparison)


def unequal(comparison: Comparison) -> tuple[str, ...]:
    found = comparison.differences
    return () if not found else (f"{len(found)} differences from the reference, the first: {found[0]}",)


def _summed(parts: list[dict[str, int]]) -> dict[str, int]:
    return {tier: sum(part.get(tier, 0) for part in parts) for tier in {tier for part in parts for tier in part}}
