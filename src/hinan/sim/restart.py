"""How an attempt begins: claim, join, look, decide, verify, vote, resume, install (rules A2, A3, A6, G1-G3).

Rank 0 leads; the others follow what it says. Each `turn` is one event, so a kill can come between any two of them.
"""

from __future__ import annotations

from dataclasses import replace

from hinan.core.decide import Candidate, Image, View
from hinan.core.ids import StepId
from hinan.core.lineage import Resume
from hinan.core.slot import Phase
from hinan.sim import agents, checks
from hinan.sim.target import VISIBLE_AFTER, WriteError
from hinan.sim.trainers import end, who
from hinan.sim.values import Chunks, Content
from hinan.sim.world import Doing, Host, Stage, Trainer, World


def turn(world: World, t: Trainer) -> None:
    """One event of a process that does not train yet."""
    job = t.job
    if job.stage is Stage.CLAIM:
        if t.rank == 0:
            _claim(world, t)
    elif t.doing is Doing.JOIN:
        _join(world, t)
    elif world.hosts[t.host].agent is None and job.stage is not Stage.RUN:
        agents.revive(world, world.hosts[t.host], t)
    elif t.doing is Doing.VERIFY and t.vote is None:
        _verify(world, t)
    elif t.doing is Doing.INSTALL:
        _install(world, t)
    elif t.rank == 0:
        _lead(world, t)


def _lead(world: World, t: Trainer) -> None:
    job = t.job
    if job.stage is Stage.LOOK and all(m.alive and m.doing is Doing.WAIT for m in job.trainers):
        _look(world, t)
    elif job.stage is Stage.VOTE and all(m.alive and m.vote is not None for m in job.trainers):
        _count_votes(world, t)


def _claim(world: World, t: Trainer) -> None:
    """The next number; refused while trainers of another attempt are known to live, unless told to take over (A6)."""
    alive = [m for m in world.trainers.values() if m.alive and m.job is not t.job and world.hosts[m.host].connected]
    if alive and not t.job.take_over:
        end(world, t, f"claim refused: process {alive[0].pid} of {alive[0].job.name} lives")
        return
    number = world.history(t.pid).newest_claim + 1
    while number in world.target.claims:  # a name that is hidden still refuses a second put
        number += 1
    try:
        world.target.claims[number] = world.target.stamp(world.now, t.pid, world.rng)
    except WriteError:
        return
    t.job.attempt, t.job.claimed_at, t.job.stage = number, world.now, Stage.LOOK
    world.say(who(t), f"claims attempt {number}" + (", taking over" if alive else ""))


def _join(world: World, t: Trainer) -> None:
    """Hello to the host's agent, and slots of its own."""
    agents.revive(world, world.hosts[t.host], t)
    for _ in range(t.job.slots_a_rank):
        world.new_slot(world.hosts[t.host], t)
    t.doing = Doing.WAIT


def _look(world: World, t: Trainer) -> None:
    """Gather the views of all agents and of the target, and decide. Absence is final only after the visibility time."""
    job = t.job
    if world.target.slow and world.now < job.claimed_at + VISIBLE_AFTER:
        return
    if any(world.hosts[m.host].agent is None for m in job.trainers):
        return  # an absent view of a host that is there is waited for: its rank starts the agent again
    history = world.history(t.pid)
    # On a slow store a resume that an overtaken attempt published late is not seen; nobody could go by it.
    job.seen = replace(checks.intact_marks(world), line=max(history.resumes, default=0))
    views = [_ram_view(world, host) for host in world.hosts]
    views.append(_target_view(world, t))
    decision = world.rules.decide(views, history, failures=frozenset(world.target.failures), world_size=job.world_size)
    if decision.chosen is not None:
        job.ranked, job.entry, job.stage = decision.ranked, 0, Stage.VOTE
        world.say(who(t), "decides: " + ", ".join(f"{c.step_id} from {c.tier}" for c in job.ranked))
        _ask_votes(world, t)
    elif not decision.candidates or job.fresh:
        _publish_resume(world, t, None)
    else:
        world.refused_restarts += 1
        reasons = "; ".join(f"{c.step_id} {c.tier}: {c.reason}" for c in decision.candidates)
        end(world, t, f"nothing to resume: {reasons}")


def _ram_view(world: World, host: Host) -> View:
    name = f"h{host.number}"
    if not host.connected or host.agent is None:
        return View("ram", name, "absent")
    for slot in world.slots(host):
        if slot.phase is Phase.SEALED:
            agents.prove(world, host.agent, slot.name)
    images = [
        Image(s.holds, s.rank, s.world_size, s.name, s.image_bytes)
        for s in world.slots(host)
        if s.holds is not None and s.phase is Phase.PROVEN
    ]
    return View("ram", name, "present" if images else "empty", tuple(images))


def _target_view(world: World, t: Trainer) -> View:
    target = world.target
    tombs = target.seen(target.tombs, world.now, t.pid)
    images = []
    for (step_id, rank), seen in target.seen_manifests(world.now, t.pid).items():
        record = world.rules.read_manifest(seen)
        if record is None or (step_id, rank) not in target.images:
            continue
        flaw = "buried" if step_id in tombs else None
        images.append(Image(record.step_id, record.rank, record.world_size, f"target/{step_id}/{rank}", 1, flaw))
    return View("target", "", "present" if images else "empty", tuple(images))


def _ask_votes(world: World, t: Trainer) -> None:
    for mate in t.job.trainers:
        mate.doing, mate.vote, mate.reads = Doing.VERIFY, None, ""


def _source(t: Trainer) -> tuple[Candidate, Image]:
    candidate = t.job.ranked[t.job.entry]
    return candidate, candidate.sources[t.rank]


def _bytes_of(world: World, image: Image) -> tuple[Chunks, Chunks] | None:
    """(bytes, digest) at a source; None if it is gone or nobody answers for it."""
    if image.place.startswith("target/"):
        key = (image.step_id, image.rank)
        if key not in world.target.images or key not in world.target.manifests or image.step_id in world.target.tombs:
            return None
        return world.target.images[key].chunks, world.target.manifests[key][0].digest
    files = world.files(image.place)
    host = world.hosts[int(image.place[1 : image.place.index("/")])]
    if files is None or files.proven is None or host.agent is None or not host.connected:
        return None
    fact = world.rules.read_seal(world.rules.seal_known(files.sealed, files.told))
    if fact is None or fact.step_id != image.step_id:
        return None
    return files.inode.chunks, files.proven.digest


def _verify(world: World, t: Trainer) -> None:
    """Take a read lease, compare bytes and digest, vote. A source that is gone makes all look again."""
    candidate, image = _source(t)
    found = _bytes_of(world, image)
    if found is None:
        world.say(who(t), f"{image.place} is gone: all look again")
        _release_reads(world, t)
        t.job.stage = Stage.LOOK
        return
    files = None if image.place.startswith("target/") else world.files(image.place)
    readers = files.readers if files else world.target.readers.setdefault(image.step_id, set())
    readers.add(t.pid)
    t.reads, t.vote = image.place, found[0] == found[1]
    if not t.vote:
        world.target.failures.add((candidate.step_id, candidate.tier))
        world.say(who(t), f"{image.place} is damaged")


def _release_reads(world: World, t: Trainer) -> None:
    for mate in t.job.trainers:
        mate.doing, mate.vote, mate.reads = Doing.WAIT, None, ""
        _stop_reading(world, mate)


def _stop_reading(world: World, t: Trainer) -> None:
    for host in world.hosts:
        for files in host.slots.values():
            files.readers.discard(t.pid)
    for readers in world.target.readers.values():
        readers.discard(t.pid)


def _count_votes(world: World, t: Trainer) -> None:
    """All yes: publish the resume. Else all take the next entry of the same list."""
    job = t.job
    if all(m.vote for m in job.trainers):
        _publish_resume(world, t, job.ranked[job.entry].step_id)
        return
    for mate in job.trainers:
        _stop_reading(world, mate)
    job.entry += 1
    if job.entry < len(job.ranked):
        _ask_votes(world, t)
    else:
        world.refused_restarts += 1
        end(world, t, "nothing to resume: every candidate failed to verify")


def _publish_resume(world: World, t: Trainer, parent: StepId | None) -> None:
    """From here on the lineage has turned. An overtaken attempt does not turn it once more."""
    job = t.job
    if world.rules.is_fenced(world.history(t.pid), job.attempt):
        end(world, t, "fenced before it resumed")
        return
    try:
        stamp = world.target.stamp(world.now, t.pid, world.rng)
    except WriteError:
        return
    checks.check_choice(world, parent, job.seen)
    world.target.resumes[job.attempt] = (Resume(job.attempt, parent), stamp)
    world.truth.resumed(job.attempt, parent)
    world.excused = True
    job.parent, job.stage = parent, Stage.RUN
    world.refused_restarts = 0
    for mate in job.trainers:
        mate.doing = Doing.INSTALL if parent is not None else Doing.TRAIN
        mate.past = world.truth.pasts[job.attempt]
    world.say(who(t), f"{job.name} resumes from {parent or 'nothing: a fresh start'}")


def _install(world: World, t: Trainer) -> None:
    """Overwrite the live state with the verified image, then give the read lease back."""
    _, image = _source(t)
    if image.place.startswith("target/"):
        chunks = world.target.images[image.step_id, image.rank].chunks
    else:
        files = world.files(image.place)
        if files is None:
            end(world, t, f"{image.place} is gone in mid-install")
            return
        chunks = files.inode.chunks
    checks.check_install(world, t, chunks)
    first = chunks[0]
    assert isinstance(first, Content)
    t.past, t.step, t.doing = f"{first.past}>{t.job.attempt}:{first.step}", first.step, Doing.TRAIN
    _stop_reading(world, t)
    world.say(who(t), f"installs step {t.step} from {image.place}")
