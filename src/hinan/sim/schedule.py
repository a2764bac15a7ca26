"""One schedule: a seed, a world, a storm of faults, then a calm in which the run must get on again."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from random import Random

from hinan.core.cadence import Cadence
from hinan.core.ids import StepId
from hinan.core.retention import Keep
from hinan.core.slot import IllegalTransition
from hinan.sim import agents, checks, faults, restart, trainers
from hinan.sim.plants import Plant
from hinan.sim.rules import RULES, Rules
from hinan.sim.target import Target
from hinan.sim.values import Violation
from hinan.sim.world import Agent, Doing, Host, Marks, Trainer, World

STORM_EVENTS = 500
CALM_EVENTS = 4000
"""With failures stopped a new step must be held everywhere and committed within this many events."""


PATIENCE = 0.8
"""Chance that a rank without a slot asks once more. In the calm agents answer long before a time-out is over."""


@dataclass(frozen=True)
class Outcome:
    """`violation` is None for a schedule that kept every promise."""

    seed: int
    events: int
    violation: str | None
    transcript: tuple[str, ...]

    def text(self, last: int = 60) -> str:
        """The end of the schedule for people."""
        lines = self.transcript[-last:]
        cut = [f"... {len(self.transcript) - last} lines before"] if len(self.transcript) > last else []
        return "\n".join([f"seed {self.seed}, {self.events} events", *cut, *lines, f"=> {self.violation or 'held'}"])


def make_world(seed: int, rules: Rules) -> World:
    """A world of one or two hosts; size, cadence, retention and moods are drawn from the seed."""
    rng = Random(seed)  # noqa: S311 - a schedule, not a secret
    places = rng.choice((1, 1, 2))
    every = rng.choice((1, 2, 3))
    world = World(
        rng=rng,
        rules=rules,
        target=Target(slow=rng.random() < 0.3),
        cadence=Cadence(0, every, rng.choice((1, 2, 3))),
        keep=Keep(last=rng.choice((1, 1, 2)), every=rng.choice((None, None, 4))),
        world_size=rng.choice((1, 2, 3)) if places == 1 else rng.choice((2, 3)),
        hosts=[Host(n) for n in range(places)],
        places=list(range(places)),
    )
    if world.world_size > 1 and rng.random() < 0.15:
        world.accumulations = rng.choice(((1, 2), (1, 3), (2, 3)))
    world.say(
        "world",
        f"{places} hosts, {world.world_size} ranks, every {every} steps, commit each {world.cadence.commit_multiple}, "
        f"{world.keep}, {'slow' if world.target.slow else 'prompt'} store"
        + (f", accumulations of {world.accumulations} steps" if len(world.accumulations) > 1 else ""),
    )
    faults.start_job(world, take_over=False)
    return world


def play(seed: int, rules: Rules = RULES) -> Outcome:
    """Play one schedule to its end or to the first broken promise."""
    world = make_world(seed, rules)
    violation = None
    try:
        marks = _storm(world)
        _calm(world, marks)
    except (Violation, IllegalTransition) as broken:
        violation = str(broken)
    return Outcome(seed, world.now, violation, tuple(world.transcript))


def explore(seeds: Iterable[int], plant: Plant | None = None) -> Iterator[Outcome]:
    """Play these seeds one after another, by the product's rules or with a planted bug."""
    for seed in seeds:
        if plant is None:
            yield play(seed)
        elif plant.where(make_world(seed, plant.rules)):
            yield play(seed, plant.rules)


def first_violation(seeds: Iterable[int], plant: Plant | None = None) -> Outcome | None:
    """The first schedule that breaks a promise; None if all keep them."""
    return next((outcome for outcome in explore(seeds, plant) if outcome.violation is not None), None)


def _storm(world: World) -> Marks:
    rng = world.rng
    chance = rng.choice((0.004, 0.01, 0.03))
    world.fault_in_between = rng.choice((0.0, 0.02, 0.1))
    world.wishes = rng.choice((0.0, 0.05, 0.1))
    world.cut_after_commit = rng.choice((0.0, 0.1, 0.4))
    world.patience = rng.choice((0.0, PATIENCE))
    # Each schedule has a mood of its own: some kinds of fault often, some never (swarm testing).
    kinds = [kind for kind, weight in faults.FAULTS for _ in range(weight * rng.choice((0, 1, 1, 5)))] or [
        faults.kill_agent
    ]
    marks = Marks()
    for _ in range(STORM_EVENTS):
        marks = _event(world, marks, rng.choice(kinds) if rng.random() < chance else None)
    return marks


def _calm(world: World, marks: Marks) -> None:
    """Failures stop; then the newest attempt must hold a step everywhere and commit a step, both its own."""
    world.fault_in_between = world.cut_after_commit = 0.0
    world.target.failing_until = 0
    world.patience = PATIENCE
    world.say("world", "failures stop")
    goal_from = world.now
    committed: set[StepId] = set(world.target.commits)
    for _ in range(CALM_EVENTS):
        marks = _event(world, marks, None)
        attempt = world.job.attempt
        new = {s for s in world.target.commits if s not in committed and s.attempt == attempt}
        if new and marks.w is not None and marks.w.attempt == attempt:
            return
    raise Violation(
        f"no progress in {world.now - goal_from} events without failures: W {marks.w}, {marks.committed} committed"
    )


def _event(world: World, marks: Marks, fault: object) -> Marks:
    """One event, then the checks if it changed anything."""
    world.now += 1
    world.excused = False
    commits, lines = len(world.target.commits), len(world.transcript)
    if callable(fault):
        fault(world)
    else:
        _somebody(world)
    if len(world.transcript) > lines:  # whoever changes anything says so
        marks = checks.check_all(world, marks)
    if len(world.target.commits) > commits and world.rng.random() < world.cut_after_commit:
        # The moment after a commit is when most is half done.
        return _event(world, marks, world.rng.choice((faults.power_loss, faults.power_loss, faults.kill_agent)))
    return marks


def _somebody(world: World) -> None:
    """Give the processor to one process, or to the launcher."""
    actors: list[Trainer | Agent] = [*(t for t in world.trainers.values() if t.alive), *world.agents()]
    chosen = world.rng.randrange(len(actors) + 1)
    if chosen == len(actors):
        faults.restart_if_broken(world)
        return
    actor = actors[chosen]
    if isinstance(actor, Agent):
        agents.turn(world, actor)
    else:
        _trainer(world, actor)


def _trainer(world: World, t: Trainer) -> None:
    match t.doing:
        case Doing.TRAIN:
            trainers.train(world, t)
        case Doing.LEASE:
            trainers.lease(world, t)
        case Doing.FILL:
            trainers.fill(world, t)
        case Doing.SEAL:
            trainers.seal(world, t)
        case _:
            restart.turn(world, t)
