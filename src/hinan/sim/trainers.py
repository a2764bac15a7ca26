"""What a trainer does between two optimizer steps: train, lease, fill, seal; and how a process ends.

The copy is made of separate events, so that a kill, a restart or another process can come between any two of them.
"""

from __future__ import annotations

from dataclasses import replace

from hinan.core.ids import StepId
from hinan.core.lineage import History
from hinan.core.slot import Effect, Event, Phase, Slot
from hinan.sim import agents
from hinan.sim.checks import check_grant, check_write
from hinan.sim.values import CHUNKS, Content, Sealed, SlotFiles, Violation
from hinan.sim.world import Doing, Trainer, World


def who(t: Trainer) -> str:
    return f"rank {t.rank} a{t.job.attempt} p{t.pid}"


def end(world: World, t: Trainer, why: str) -> None:
    """The process is gone: its pidfd reports it, its read leases end."""
    if not t.alive:
        return
    t.alive = False
    for host in world.hosts:
        for files in host.slots.values():
            files.readers.discard(t.pid)
            if files.inode.writer == t.pid:
                files.filling = False
    for readers in world.target.readers.values():
        readers.discard(t.pid)
    world.say(who(t), f"ends: {why}")


def train(world: World, t: Trainer) -> None:
    """One step, if the collective inside it can complete: every rank alive, installed and not behind."""
    mates = t.job.trainers
    if any(not m.alive or m.doing in (Doing.INSTALL, Doing.VERIFY, Doing.WAIT) or m.step < t.step for m in mates):
        return
    t.step += 1
    t.is_due = t.is_due or world.cadence.due(t.step)
    if t.is_due and t.step % world.accumulations[t.rank % len(world.accumulations)] == 0:
        t.is_due, t.doing = False, Doing.LEASE
        if world.rng.random() < world.wishes:
            t.wanted.add(StepId(t.job.attempt, t.step))


def lease(world: World, t: Trainer) -> None:
    """Ask the agent for a slot; without one wait for a time-out, then publish LOST and train on (rule C2).

    The wait is more than patience: what frees a slot may be that another rank seals this very step.
    """
    agent = agents.revive(world, world.hosts[t.host], t)
    known = max(agent.served, agent.newest_claim)
    if world.rules.is_fenced(History(frozenset({known})), t.job.attempt):
        end(world, t, f"fenced, attempt {known} has taken over")
        return
    step_id = StepId(t.job.attempt, t.step)
    state = agents.look(world, agent)
    slot = world.rules.slot_to_lease(world.slots(world.hosts[t.host]), t.pid, t.rank, 1, world.rules.stays(state))
    if slot is None:
        if world.rng.random() < world.patience:
            return
        world.hosts[t.host].lost.add(step_id)
        t.doing = Doing.TRAIN
        world.say(who(t), f"no free slot: {step_id} is LOST")
        return
    files = world.files(slot.name)
    assert files is not None
    check_grant(world, known, t, files)
    if _recycle(world, t, slot, files):
        files.filling = True
        t.slot, t.inode, t.filled, t.doing = slot.name, files.inode, 0, Doing.FILL
        world.say(who(t), f"leases {slot.name} for {step_id}" + (f", recycling {slot.holds}" if slot.holds else ""))


def _recycle(world: World, t: Trainer, slot: Slot, files: SlotFiles) -> bool:
    """Withdraw the facts, the seal first; False if the agent was killed between two of them."""
    event = Event.LEASE if slot.phase is Phase.FREE else Event.RECYCLE
    _, effects = world.rules.advance(slot.phase, event)
    for effect in effects:
        if world.rng.random() < world.fault_in_between:
            agents.kill(world, world.hosts[t.host], f"in mid-recycling of {slot.name}")
            return False
        if effect is Effect.WITHDRAW_PROVEN:
            files.proven = None
        if effect is Effect.WITHDRAW_SEALED:
            files.sealed = files.told = None
    return True


def fill(world: World, t: Trainer) -> None:
    """Copy one chunk."""
    assert t.inode is not None
    check_write(world, t)
    content = Content(t.past, t.step, t.rank)
    t.inode.chunks = tuple(content if i == t.filled else c for i, c in enumerate(t.inode.chunks))
    t.filled += 1
    t.inode.damaged = t.inode.damaged and t.filled < CHUNKS
    world.say(who(t), f"copies {t.filled}/{CHUNKS} of step {t.step} into {t.slot}")
    if t.filled == CHUNKS:
        t.doing = Doing.SEAL


def seal(world: World, t: Trainer) -> None:
    """Publish the fact `.sealed`. A kill in mid-publish on a file system without whole renames leaves a torn one."""
    files = world.files(t.slot)
    if files is None:
        raise Violation(f"{who(t)} seals {t.slot}, which was unlinked under it (rule B2)")
    step_id = StepId(t.job.attempt, t.step)
    world.rules.advance(Phase.FILLING, Event.SEAL)
    fact = Sealed(step_id, t.rank, t.job.world_size, world.cadence.commit_at(t.step))
    if world.rng.random() < world.fault_in_between:
        files.sealed = replace(fact, torn=True)
        end(world, t, f"killed in mid-publish of {t.slot}.sealed")
        return
    files.filling = False
    files.told = fact
    files.sealed = world.rules.seal_known(fact, None)
    t.doing = Doing.TRAIN
    world.say(who(t), f"seals {step_id} in {t.slot}")
