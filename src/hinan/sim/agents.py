"""What a node agent does when it is given the processor: one task of its agenda, or one effect of its part of a round.

An agent looks (gathers what it can see into a `NodeState`), asks the agenda and acts. It re-reads the target before each
commit and each delete, as rule A5 asks. The agent on the first place coordinates rounds, commits and deletes.
"""

from __future__ import annotations

from dataclasses import replace

from hinan.core.agenda import Bury, Commit, Drain, Forget, Lose, NodeState, Prove, Release, Remove, Stop, Stored, Task
from hinan.core.commit import Do, DrainEffect
from hinan.core.ids import StepId
from hinan.core.rounds import Wish
from hinan.core.slot import Event, Phase
from hinan.sim import checks
from hinan.sim.target import VISIBLE_AFTER, WriteError
from hinan.sim.values import Manifest, Proven
from hinan.sim.world import Agent, Host, Part, Trainer, World

REFUSALS = 3
"""A round is abandoned after this many refused writes in one part."""


def who(agent: Agent) -> str:
    return f"agent h{agent.host} p{agent.pid}"


def revive(world: World, host: Host, t: Trainer) -> Agent:
    """The host's agent, started by this trainer if there is none (rule B7); the trainer says hello.

    A new agent reads the claims before it serves anybody, else an overtaken trainer would start one after another.
    """
    if host.agent is None:
        host.agent = Agent(world.new_pid(), host.number, t.job.attempt, world.now)
        host.agent.newest_claim = world.history(host.agent.pid).newest_claim
        world.say(who(host.agent), f"started by rank {t.rank} of attempt {t.job.attempt}")
    host.agent.served = max(host.agent.served, t.job.attempt)
    return host.agent


def kill(world: World, host: Host, how: str) -> None:
    """SIGKILL: the arena stays, the memory goes."""
    if host.agent is not None:
        world.say(who(host.agent), f"killed {how}")
        host.agent = None
        for files in host.slots.values():
            files.told = None


def look(world: World, agent: Agent) -> NodeState:
    """All that this agent can know now."""
    me, target, rules = world.hosts[agent.host], world.target, world.rules
    reached = [h for h in world.peers(me) if h.agent is not None]
    history = world.history(agent.pid)
    agent.newest_claim = max(agent.newest_claim, history.newest_claim)
    manifests = [m for m in map(rules.read_manifest, target.seen_manifests(world.now, agent.pid).values()) if m]
    commits, tombs = (target.seen(names, world.now, agent.pid) for names in (target.commits, target.tombs))
    stored = {
        step_id: Stored(
            ranks=frozenset(m.rank for m in manifests if m.step_id == step_id),
            world_size=max((m.world_size for m in manifests if m.step_id == step_id), default=0),
            committed=step_id in commits,
            buried=step_id in tombs,
            readers=bool(target.readers.get(step_id)),
        )
        for step_id in sorted({m.step_id for m in manifests} | commits | tombs | {s for s, _ in target.images})
    }
    part_of = agent.part.step_id if agent.part else None
    return NodeState(
        slots=tuple(slot for h in reached for slot in world.slots(h)),
        history=history,
        served=agent.served,
        stored=stored,
        lost=frozenset(step_id for h in reached for step_id in h.lost),
        round=agent.round[0] if agent.round else part_of,
        failed=frozenset(agent.failed),
        wish=_wish(world, agent),
        keep=world.keep,
        settled=history.newest_claim == 0 or history.newest_claim in history.resumes,
        reachable=world.now >= target.failing_until,
        absence_is_final=not target.slow or world.now >= agent.since + VISIBLE_AFTER,
    )


def _wish(world: World, agent: Agent) -> Wish:
    mine = [t for job in world.jobs if job.attempt == agent.served for t in job.trainers]
    wanted = {s for t in mine if t.alive for s in t.wanted}
    return Wish(wanted, newest_at_any_rate=bool(mine) and not any(t.alive for t in mine))


def coordinates(world: World, agent: Agent) -> bool:
    """Whether it is the agent on the first place that it reaches."""
    return next(h for h in world.peers(world.hosts[agent.host]) if h.agent is not None).agent is agent


def turn(world: World, agent: Agent) -> None:
    """One effect or one task."""
    if agent.part is not None and _close_or_work(world, agent):
        return
    state = look(world, agent)
    tasks = [task for task in world.rules.agenda(state) if _is_mine(world, agent, task)]
    if tasks:
        # An agent is busy with several tasks at once: any of them may come to its effect first.
        act(world, agent, world.rng.choice(tasks), state)


def _is_mine(world: World, agent: Agent, task: Task) -> bool:
    if isinstance(task, Prove | Release):
        return task.slot in world.hosts[agent.host].slots
    return isinstance(task, Stop) or coordinates(world, agent)


def act(world: World, agent: Agent, task: Task, state: NodeState) -> None:
    """Do what one task says. The state was read in this same event: this is the re-reading of rule A5."""
    match task:
        case Stop():
            _stop(world, agent, task.reason)
        case Prove():
            prove(world, agent, task.slot)
        case Release():
            _release(world, agent, task.slot)
        case Drain():
            _open_round(world, agent, task, state)
        case Lose():
            world.hosts[agent.host].lost.add(task.step_id)
            world.say(who(agent), f"gives up {task.step_id}: rank {task.passed.rank} has gone past it")
        case Forget():
            for host in world.peers(world.hosts[agent.host]):
                host.lost.discard(task.step_id)
            world.say(who(agent), f"forgets that {task.step_id} was lost")
        case Commit():
            _publish_commit(world, agent, task.step_id, state.stored[task.step_id].world_size)
        case Bury():
            _bury(world, agent, task.step_id)
        case Remove():
            checks.check_delete(world, agent, task.step_id, "removes")
            world.target.remove(task.step_id)
            world.say(who(agent), f"removes the payload of {task.step_id}")


def _stop(world: World, agent: Agent, reason: str) -> None:
    world.say(who(agent), f"stops: {reason}")
    world.hosts[agent.host].agent = None
    for files in world.hosts[agent.host].slots.values():
        files.told = None


def prove(world: World, agent: Agent, name: str) -> None:
    """Digest the image and publish the fact beside it."""
    files = world.files(name)
    assert files is not None
    world.rules.advance(Phase.SEALED, Event.PROVE)
    files.proven = Proven(files.inode.chunks, late=files.told is None)
    world.say(who(agent), f"proves {name}" + (" late" if files.proven.late else ""))


def _release(world: World, agent: Agent, name: str) -> None:
    files = world.files(name)
    assert files is not None
    phase = next(s.phase for s in world.slots(world.hosts[agent.host]) if s.name == name)
    world.rules.advance(phase, Event.RELEASE)
    checks.check_unlink(world, files)
    del world.hosts[agent.host].slots[name]
    world.say(who(agent), f"releases {name}")


def _bury(world: World, agent: Agent, step_id: StepId) -> None:
    checks.check_delete(world, agent, step_id, "buries")
    try:
        world.target.tombs[step_id] = world.target.stamp(world.now, agent.pid, world.rng)
    except WriteError:
        return
    world.say(who(agent), f"buries {step_id}")


def _open_round(world: World, agent: Agent, task: Drain, state: NodeState) -> None:
    """Tell every host that holds an image of the step to pin and drain it."""
    by_name = {s.name: s for s in state.slots}
    agent.round = (task.step_id, by_name[task.slots[0]].world_size)
    world.say(who(agent), f"opens a round on {task.step_id}")
    for host in world.peers(world.hosts[agent.host]):
        if not any(name in host.slots for name in task.slots):
            continue
        assert host.agent is not None
        step_id = world.rules.step_of_part(task.step_id, world.slots(host))
        slots = {s.rank: s.name for s in world.slots(host) if s.holds == step_id and s.phase is Phase.PROVEN}
        effects = [e for e in world.rules.drain_effects(sorted(slots)) if e.rank is not None or host.agent is agent]
        host.agent.part = Part(step_id, slots, effects, opened_by=agent.pid)
        checks.check_part(world, host, host.agent.part, task.step_id)


def _close_or_work(world: World, agent: Agent) -> bool:
    """Close the part if the round is over; else, half of the time, do one effect of it. False: nothing was done."""
    part = agent.part
    assert part is not None
    coordinator = next((a for a in world.agents() if a.pid == part.opened_by), None)
    if coordinator is None or coordinator.round is None or coordinator.round[0] != part.step_id:
        agent.part = None
        return False
    if agent is coordinator and _a_part_is_missing(world, agent):
        _abandon(world, agent, "a node's part is gone")
        return True
    if not part.effects or world.rng.random() < 0.25:
        return False
    effect = part.effects[0]
    if effect.rank is None and any(p.effects and p is not part for p in _parts(world, agent)):
        return False
    try:
        done = _perform(world, agent, part, effect)
    except WriteError:
        done = False
        part.refusals += 1
        if part.refusals >= REFUSALS:
            _abandon(world, coordinator, "the store refuses writes")
    if done and agent.part is part:
        part.effects.pop(0)
    return True


def _parts(world: World, coordinator: Agent) -> list[Part]:
    return [a.part for a in world.agents() if a.part is not None and a.part.opened_by == coordinator.pid]


def _a_part_is_missing(world: World, coordinator: Agent) -> bool:
    assert coordinator.round is not None
    step_id, world_size = coordinator.round
    ranks = {rank for part in _parts(world, coordinator) for rank in part.slots if part.step_id == step_id}
    return len(ranks) < world_size


def _abandon(world: World, coordinator: Agent, why: str) -> None:
    assert coordinator.round is not None
    world.say(who(coordinator), f"abandons the round on {coordinator.round[0]}: {why}")
    coordinator.failed.add(coordinator.round[0])
    coordinator.round = coordinator.part = None


def _perform(world: World, agent: Agent, part: Part, effect: DrainEffect) -> bool:
    """One effect of a drain. False: the agent or the round ended in it."""
    target, step_id = world.target, part.step_id
    if effect.rank is None:
        assert agent.round is not None
        _publish_commit(world, agent, *agent.round)
        agent.round = None
        return True
    key = (step_id, effect.rank)
    world.say(who(agent), f"{step_id} rank {effect.rank}: {effect.do.value}")
    match effect.do:
        case Do.WRITE_ASIDE:
            return _write_aside(world, agent, part, effect.rank)
        case Do.SYNC:
            target.sync(key, agent.pid)
        case Do.NAME:
            target.name(key, agent.pid)
        case Do.SYNC_DIRECTORY:
            target.sync_directory(step_id)
        case Do.PUBLISH_MANIFEST:
            return _publish_manifest(world, agent, part, effect.rank)
        case Do.PUBLISH_COMMIT:
            raise AssertionError("a commit is of the whole step")
    return True


def _write_aside(world: World, agent: Agent, part: Part, rank: int) -> bool:
    """The bytes are checked against their digest at this hop; a damaged image ends the round."""
    files = world.files(part.slots[rank])
    if files is None or files.proven is None or files.inode.chunks != files.proven.digest:
        coordinator = next(a for a in world.agents() if a.pid == part.opened_by)
        _abandon(world, coordinator, f"{part.slots[rank]} is damaged")
        return False
    world.target.write_aside((part.step_id, rank), files.inode.chunks, host=agent.host, by=agent.pid, now=world.now)
    return True


def _publish_manifest(world: World, agent: Agent, part: Part, rank: int) -> bool:
    """A kill in mid-publish on a file system without whole renames leaves a torn record."""
    files = world.files(part.slots[rank])
    assert files is not None and files.proven is not None
    world_size = files.sealed.world_size if files.sealed else world.world_size
    record = Manifest(part.step_id, rank, world_size, files.proven.digest)
    torn = world.rng.random() < world.fault_in_between
    stamp = world.target.stamp(world.now, agent.pid, world.rng)
    world.target.manifests[part.step_id, rank] = (replace(record, torn=torn), stamp)
    if torn:
        kill(world, world.hosts[agent.host], f"in mid-publish of the manifest of rank {rank}")
    return not torn


def _publish_commit(world: World, agent: Agent, step_id: StepId, world_size: int) -> None:
    """The claims and the manifests are read again, then the record is published, or the reason not to is noted."""
    seen = world.target.seen_manifests(world.now, agent.pid)
    manifests = {rank for (s, rank), m in seen.items() if s == step_id and world.rules.read_manifest(m)}
    history = world.history(agent.pid)
    reason = world.rules.why_not_commit(
        step_id, world_size=world_size, manifests=manifests, history=history, served=agent.served
    )
    if reason is not None:
        world.say(who(agent), f"does not commit {step_id}: {reason}")
        agent.failed.add(step_id)
        return
    stamp = world.target.stamp(world.now, agent.pid, world.rng)
    checks.check_commit(world, agent, step_id, world_size)
    world.target.commits.setdefault(step_id, stamp)
    world.say(who(agent), f"commits {step_id}")
