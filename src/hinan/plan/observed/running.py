"""Both intervals of a running job: evacuations to RAM and commits to the target, decided from what it has measured.

Owns:      which failures each tier answers, what a commit costs, how the overhead cap is shared, and the numbers that a
           decision rests on, each with its kind and source.
Promises:  pure. Nothing is decided before a step and a stall were measured, and no commit interval before a drain was.
           Evacuations and commits together stay below the overhead cap.
Relies on: `online.decide` for each tier.
Never:     counts a failure twice: RAM answers those that it survives, the target the others.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from hinan.core.units import format_seconds
from hinan.plan.model.failures import LLAMA3, SURVIVAL, Tier
from hinan.plan.model.interference import INTERFERENCE_ORIGIN, INTERFERENCE_RATIO
from hinan.plan.model.origin import Origin, default, measured
from hinan.plan.observed.attempts import Failures
from hinan.plan.observed.online import MAX_OVERHEAD_RATIO, Decision, Measured, Words, decide
from hinan.plan.observed.posterior import PRIOR_FAILURES, SMALL_JOB_MTTI_S, Prior, Rate, posterior, prior_of

TABLE = LLAMA3
"""What is thought of failures before any was seen."""

_RAM = Words(failure="a failure that RAM survives")
_TARGET = Words(
    cost=f"drain {{drain}}, {INTERFERENCE_RATIO:.0%} of it paid by training",
    failure="a failure that takes the RAM too",
    at_least="only evacuated steps can be committed",
)


@dataclass(frozen=True)
class Input:
    """A number and where it is from."""

    value: float
    origin: Origin


@dataclass(frozen=True)
class RunningJob:
    """What a job knows about itself; None where nothing was measured yet. Durations are medians [s]."""

    step_s: float | None = None
    stall_s: float | None = None
    drain_s: float | None = None
    restart_s: float | None = None
    failures: Failures = field(default_factory=Failures)
    observed_s: float = 0.0
    """Time that all attempts of the run were alive."""
    nodes: int = 1
    samples: dict[str, int] = field(default_factory=dict)
    """How many measurements are behind each duration, by its name above."""


@dataclass(frozen=True)
class Intervals:
    """What was decided for each tier; None: not automatic, or not measured yet."""

    evacuate: Decision | None = None
    commit: Decision | None = None

    @property
    def changed(self) -> bool:
        return any(each is not None and each.changed for each in (self.evacuate, self.commit))

    def adds_to(self, standing: Intervals) -> bool:
        """Whether it decides something about which nothing was decided so far."""
        return any(
            mine is not None and theirs is None
            for mine, theirs in ((self.evacuate, standing.evacuate), (self.commit, standing.commit))
        )


def intervals(
    job: RunningJob,
    *,
    evacuate_steps: int | None,
    commit_steps: int | None,
    current: tuple[int | None, int | None],
) -> Intervals:
    """The intervals of evacuations and commits; neither before a step and a stall were measured.

    Args:
        evacuate_steps, commit_steps: intervals that the user has fixed; None where they are to be decided.
        current: (evacuations, commits) in steps; None for one about which nothing was decided yet.
    """
    if not job.step_s or job.stall_s is None:
        return Intervals()
    by_ram, by_target = _priors(job.nodes)
    # A drain never outruns itself, so commits cost at most the interference, all the time. The rest is the evacuations'.
    commit_cap = min(INTERFERENCE_RATIO, MAX_OVERHEAD_RATIO / 2)
    evacuate = commit = None
    if evacuate_steps is None:
        evacuate = decide(
            Measured(job.step_s, job.stall_s, 0.0, job.failures.ram, job.observed_s),
            by_ram,
            current[0],
            max_overhead_ratio=MAX_OVERHEAD_RATIO - commit_cap,
            words=_RAM,
        )
        evacuate_steps = evacuate.every_steps
    if commit_steps is None and job.drain_s is not None:
        commit = decide(
            Measured(job.step_s, INTERFERENCE_RATIO * job.drain_s, job.drain_s, job.failures.target, job.observed_s),
            by_target,
            current[1],
            max_overhead_ratio=commit_cap,
            taken_from_steps=evacuate_steps,
            words=_TARGET,
        )
    return Intervals(evacuate, commit)


def _priors(nodes: int) -> tuple[Prior, Prior]:
    """What the table says of failures that RAM survives, and of those that it does not."""
    total = TABLE.total_per_node_day
    survived = sum(rate for failure, rate in TABLE.per_node_day.items() if Tier.RAM in SURVIVAL[failure]) / total
    ram, target = (prior_of(per_node_day=total, nodes=nodes, share_ratio=share) for share in (survived, 1 - survived))
    return ram, target


def rates(job: RunningJob) -> tuple[Rate, Rate]:
    """How often RAM is needed, and how often the target: what the table says, and what the run has seen since."""
    by_ram, by_target = _priors(job.nodes)
    return (
        posterior(by_ram, failures=job.failures.ram, observed_s=job.observed_s),
        posterior(by_target, failures=job.failures.target, observed_s=job.observed_s),
    )


def inputs(job: RunningJob) -> dict[str, Input]:
    """The numbers behind a decision, each with kind and source. What was not measured is not among them."""
    found: dict[str, Input] = {}
    for name in ("step_s", "stall_s", "drain_s", "restart_s"):
        value = getattr(job, name)
        if value is not None:
            found[name] = Input(value, measured(f"median of {job.samples.get(name, 1)} in this run"))
    counts = (job.failures.ram, job.failures.target)
    for name, rate, count in zip(("ram_mtti_s", "target_mtti_s"), rates(job), counts, strict=True):
        found[name] = Input(1 / rate.mean_per_s, _rate_origin(job, rate, count))
    found["interference_ratio"] = Input(INTERFERENCE_RATIO, INTERFERENCE_ORIGIN)
    return found


def _rate_origin(job: RunningJob, rate: Rate, count: int) -> Origin:
    """Measured only where the rate's own band holds what was seen; elsewhere it is the prior's more than the run's."""
    low_s, high_s = (1 / rate.quantile_per_s(chance) for chance in (0.95, 0.05))
    nodes = "1 node" if job.nodes == 1 else f"{job.nodes} nodes"
    seen = f"{count} seen in {format_seconds(job.observed_s)}"
    is_seen = count > 0 and low_s <= job.observed_s / count <= high_s
    if count and not is_seen:
        seen += f" (alone every {format_seconds(job.observed_s / count)}: the prior outweighs it)"
    text = (
        f"{seen}, 90 % between {format_seconds(low_s)} and {format_seconds(high_s)}; prior, as good as {PRIOR_FAILURES:g} "
        f"failures seen: {TABLE.name} x {nodes}, no rarer than {format_seconds(SMALL_JOB_MTTI_S)} for all kinds"
    )
    return measured(text) if is_seen else default(text)


def lost(job: RunningJob, *, evacuate_steps: int, commit_steps: int) -> dict[str, float]:
    """Shares of time that are expected to be lost, by cause: stall, interference, redo, restart [0-].

    First order: C/tau for each tier; per failure half an interval of the tier that answers it, for the target also its
    drain. A cause without its measurement is left out. Source: Young 1974.
    """
    found: dict[str, float] = {}
    if not job.step_s:
        return found
    evacuate_s, commit_s = evacuate_steps * job.step_s, commit_steps * job.step_s
    ram, target = (rate.mean_per_s for rate in rates(job))
    if job.stall_s is not None:
        found["stall"] = job.stall_s / evacuate_s
    if job.drain_s is not None:
        found["interference"] = INTERFERENCE_RATIO * job.drain_s / commit_s
        found["redo"] = ram * evacuate_s / 2 + target * (commit_s / 2 + job.drain_s)
    if job.restart_s is not None:
        found["restart"] = (ram + target) * job.restart_s
    return found
