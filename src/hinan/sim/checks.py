"""The invariants: what no schedule may ever break (section H of the protocol).

Some hold at one kind of event (`check_grant`, `check_write`, `check_unlink`, `check_commit`, `check_delete`,
`check_part`, `check_choice`, `check_install`), the others after every event (`check_all`). They compare what processes
believe with the truth and use none of the core's decisions.
"""

from __future__ import annotations

from hinan.core.ids import StepId
from hinan.sim.values import Chunks, SlotFiles, Violation
from hinan.sim.world import Agent, Host, Marks, Part, Trainer, World


def watermark(
    world: World, hosts: list[Host] | None = None, *, intact: bool = False, up_to: StepId | None = None
) -> StepId | None:
    """The newest step of the true lineage that all ranks hold on `hosts` (those of the run); `intact`: undamaged too."""
    held: dict[StepId, set[int]] = {}
    worlds: dict[StepId, int] = {}
    for host in hosts if hosts is not None else [world.hosts[n] for n in world.places]:
        for files in host.slots.values():
            if files.sealed is None and files.told is None:
                continue
            fact = world.rules.seal_known(files.sealed, files.told)
            if fact is None or fact.torn or not world.truth.on_line(fact.step_id):
                continue
            if (intact and files.inode.damaged) or (up_to is not None and fact.step_id > up_to):
                continue
            held.setdefault(fact.step_id, set()).add(fact.rank)
            worlds[fact.step_id] = fact.world_size
    return max((s for s, ranks in held.items() if len(ranks) == worlds[s]), default=None)


def committed(world: World, *, owed: bool = False, up_to: StepId | None = None) -> StepId | None:
    """The newest committed, unburied step of the true lineage; `owed`: undamaged and seen by everybody too.

    What an overtaken attempt commits before it can see the newer claim is owed to nobody: it may become an orphan (A5).
    """
    target = world.target
    steps = (s for s in target.commits if s not in target.tombs and world.truth.on_line(s))
    known = (s for s in steps if up_to is None or s <= up_to)
    return max((s for s in known if not owed or _is_owed(world, s)), default=None)


def _is_owed(world: World, step_id: StepId) -> bool:
    target = world.target
    stamps = [target.commits[step_id], *(stamp for (s, _), (_, stamp) in target.manifests.items() if s == step_id)]
    damaged = any(f.damaged for (s, _), f in target.images.items() if s == step_id)
    return not damaged and all(stamp.visible_at <= world.now for stamp in stamps)


def check_all(world: World, before: Marks) -> Marks:
    """After every event: W does not go back, the lineage keeps a committed step, facts describe their bytes."""
    after = Marks(watermark(world), committed(world))
    if not world.excused:
        if before.w is not None and (after.w is None or after.w < before.w):
            raise Violation(f"W went back from {before.w} to {after.w}, and nothing was damaged (rules C1, B1)")
        if before.committed is not None and after.committed is None:
            raise Violation(f"the lineage had {before.committed} committed and now has nothing (rule F3)")
    for host in world.hosts:
        for files in host.slots.values():
            if files.sealed is not None or files.told is not None:
                _check_facts(world, files)
    return after


def _check_facts(world: World, files: SlotFiles) -> None:
    fact = world.rules.read_seal(world.rules.seal_known(files.sealed, files.told))
    if fact is None or files.inode.damaged:
        return
    if files.inode.chunks != world.truth.image(fact.step_id, fact.rank):
        raise Violation(f"{files.name}.sealed says {fact.step_id}, the image holds {files.inode.chunks} (rules M1, B2)")


def check_grant(world: World, known: int, t: Trainer, files: SlotFiles) -> None:
    """A lease is for the slot's one writer, of the newest attempt the agent knows, and nobody reads it."""
    if t.job.attempt < known:
        raise Violation(f"an agent that knows of attempt {known} leases to attempt {t.job.attempt} (rule A4)")
    if files.inode.writer != t.pid:
        raise Violation(f"{files.name} belongs to process {files.inode.writer} and is leased to {t.pid} (rule B2)")


def check_write(world: World, t: Trainer) -> None:
    """The image that is written has one writer, no reader, no fact beside it, and no round drains it."""
    for host in world.hosts:
        for files in host.slots.values():
            if files.inode is not t.inode:
                continue
            if files.readers:
                raise Violation(f"{files.name} is written while processes {sorted(files.readers)} read it (rule B3)")
            if files.sealed is not None or files.proven is not None:
                raise Violation(f"{files.name} is written while facts describe it (rule B1)")
            for agent in world.agents():
                if agent.part is not None and files.name in agent.part.slots.values():
                    raise Violation(f"{files.name} is written while {agent.part.step_id} is drained from it (rule C3)")


def check_unlink(world: World, files: SlotFiles) -> None:
    """A slot goes only after its writer has exited, and while nobody reads it."""
    if world.trainers[files.inode.writer].alive:
        raise Violation(f"{files.name} is unlinked while its writer, process {files.inode.writer}, lives (rule B2)")
    if files.readers:
        raise Violation(f"{files.name} is unlinked while processes {sorted(files.readers)} read it (rule B3)")


def check_part(world: World, host: Host, part: Part, named: StepId) -> None:
    """All nodes drain the step that the round names."""
    if part.step_id != named:
        raise Violation(f"the round names {named}, host {host.number} drains {part.step_id} (rule C3)")


def check_commit(world: World, agent: Agent, step_id: StepId, world_size: int) -> None:
    """A committed step is complete and survives power loss at that moment; nobody who could know better commits."""
    _check_authority(world, agent, f"commits {step_id}")
    for rank in range(world_size):
        image = world.target.images.get((step_id, rank))
        manifest = world.target.manifests.get((step_id, rank))
        if manifest is None or manifest[0].torn:
            raise Violation(f"{step_id} is committed without a readable manifest of rank {rank} (rule M1)")
        if image is None:
            raise Violation(f"{step_id} is committed without the image of rank {rank} (rule F1)")
        if not image.survives:
            raise Violation(f"{step_id} is committed before the image of rank {rank} survives power loss (rule F1)")
        if not image.damaged and image.chunks != world.truth.image(step_id, rank):
            raise Violation(f"{step_id} is committed and rank {rank}'s image holds {image.chunks} (rule C3)")


def check_delete(world: World, agent: Agent, step_id: StepId, what: str) -> None:
    """Only the newest attempt's agent deletes, and never what the run resumed from before something newer is safe twice."""
    _check_authority(world, agent, f"{what} {step_id}")
    target = world.target
    if step_id not in target.commits or not world.truth.on_line(step_id):
        return
    if what != "buries":
        return  # the tombstone was the decision
    if any(step_id in t.wanted for t in world.trainers.values() if t.alive and t.job.attempt == agent.served):
        raise Violation(f"buries {step_id}, and a caller waits to see it committed (rule F3)")
    if step_id in _to_keep(world):
        raise Violation(f"buries {step_id}, which is committed and among those that {world.keep} keeps (rule F2)")
    if step_id != world.truth.parents.get(world.truth.newest):
        return
    w, safe = watermark(world, world.peers(world.hosts[agent.host])), committed(world)
    if w is None or w <= step_id or safe is None or safe <= step_id:
        raise Violation(f"buries {step_id}, which the run resumed from, while W is {w} and {safe} committed (rule F3)")


def _to_keep(world: World) -> set[StepId]:
    """Committed steps that the user asked to keep, whether or not a slow store shows their records yet."""
    target, keep = world.target, world.keep
    line = sorted(s for s in target.commits if s not in target.tombs and world.truth.on_line(s))
    newest = set(line if keep.last is None else line[-keep.last :])
    return newest | {s for s in line if keep.every is not None and s.step % keep.every == 0}


def _check_authority(world: World, agent: Agent, what: str) -> None:
    newest = world.history(agent.pid).newest_claim
    if agent.served < newest:
        raise Violation(f"an agent of attempt {agent.served} {what} although attempt {newest} has claimed (rule A5)")


def intact_marks(world: World) -> Marks:
    """The best there is to resume from now."""
    return Marks(watermark(world, intact=True), committed(world, owed=True), world.truth.newest)


def check_choice(world: World, step_id: StepId | None, seen: Marks) -> None:
    """Just before a resume is published: it goes back no further than damage forces it to.

    Args:
        seen: `intact_marks` when the views were gathered; what was sealed or damaged, or resumed by an attempt that was
            overtaken, after that could not be known.
    """
    held = None if seen.w is None else watermark(world, intact=True, up_to=seen.w)
    stored = None if seen.committed is None else committed(world, owed=True, up_to=seen.committed)
    for best, where in ((held, "held everywhere"), (stored, "committed")):
        if best is not None and (step_id is None or step_id < best):
            raise Violation(f"resumes from {step_id or 'nothing'} although {best} is {where} (rule G1)")
    if step_id is not None and not world.truth.on_line(step_id, seen.line):
        raise Violation(f"resumes from {step_id}, which is not on the lineage (rule A3)")


def check_install(world: World, t: Trainer, chunks: Chunks) -> None:
    """What is installed is, whole, this rank's image of the one step that the resume names."""
    parent = t.job.parent
    if parent is None or chunks != world.truth.image(parent, t.rank):
        raise Violation(f"rank {t.rank} installs {chunks}, the attempt resumes from {parent} (invariant 1)")
