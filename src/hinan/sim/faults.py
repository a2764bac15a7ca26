"""What the world does to a run: kills, power losses, broken sockets, damage, a store that refuses; and the launcher.

Every fault here is one that real hosts have. A fault that damages bytes or takes a host away is *excused*: W may go back.
"""

from __future__ import annotations

from collections.abc import Callable

from hinan.sim import agents
from hinan.sim.trainers import end
from hinan.sim.values import flipped
from hinan.sim.world import Host, Job, Trainer, World


def start_job(world: World, *, take_over: bool, fresh: bool = False) -> None:
    """The launcher starts all ranks; now and then they land on other places than before."""
    shift = world.rng.random() < 0.2
    job = Job(take_over, fresh, slots_a_rank=world.rng.choice((2, 3)))
    world.jobs.append(job)
    for rank in range(world.world_size):
        place = (rank + shift) % len(world.places)
        trainer = Trainer(world.new_pid(), rank, world.places[place], job)
        world.trainers[trainer.pid] = trainer
        job.trainers.append(trainer)
    world.say("launcher", f"starts {world.world_size} ranks" + (", to take over" if take_over else ""))


def restart_if_broken(world: World) -> None:
    """All ranks go when one has gone; what cannot be killed now stays as a zombie and is tried again later."""
    job = world.job
    if all(t.alive for t in job.trainers) and not job.given_up:
        return
    job.given_up = True
    for t in job.trainers:
        if t.alive and (world.fault_in_between == 0 or world.rng.random() < 0.8):
            end(world, t, "killed by the launcher")
    for t in world.trainers.values():
        if t.alive and t.job is not job and world.hosts[t.host].connected and world.rng.random() < 0.5:
            end(world, t, "killed by the launcher at last")
    start_job(world, take_over=world.rng.random() < 0.5, fresh=world.refused_restarts > 2)


def _a_trainer(world: World) -> Trainer | None:
    alive = [t for t in world.trainers.values() if t.alive]
    return world.rng.choice(alive) if alive else None


def kill_trainer(world: World) -> None:
    if (t := _a_trainer(world)) is not None:
        end(world, t, "SIGKILL")


def kill_all_trainers(world: World) -> None:
    for t in world.job.trainers:
        end(world, t, "SIGKILL to all")


def kill_agent(world: World) -> None:
    agents.kill(world, world.rng.choice(world.hosts), "by SIGKILL")


def kill_everything(world: World) -> None:
    """Every process of the run on every host; only the mounts live on."""
    for t in world.trainers.values():
        end(world, t, "SIGKILL to everything")
    for host in world.hosts:
        agents.kill(world, host, "by SIGKILL to everything")


def break_socket(world: World) -> None:
    """EOF at the agent while the process lives on (a forked worker, a proxy, a restarted agent)."""
    if (t := _a_trainer(world)) is not None:
        t.eof = True
        world.say("world", f"the socket of p{t.pid} (rank {t.rank}) breaks; it lives on")


def _lose(world: World, host: Host, what: str) -> None:
    world.excused = True
    world.say("world", f"h{host.number} {what}")
    for t in world.trainers.values():
        if t.host == host.number:
            end(world, t, "power loss")
    agents.kill(world, host, "by power loss")
    host.slots.clear()
    host.lost.clear()
    world.target.power_loss(host.number, world.rng)


def power_loss(world: World) -> None:
    _lose(world, world.hosts[world.rng.choice(world.places)], "loses power")


def replace_host(world: World) -> None:
    """A host is given up while its processes live; a new one takes its place, the launcher starts again."""
    place = world.rng.randrange(len(world.places))
    old, new = world.hosts[world.places[place]], Host(len(world.hosts))
    if sum(not h.connected for h in world.hosts) >= 2:
        return
    world.excused = True
    old.connected = False
    world.hosts.append(new)
    world.places[place] = new.number
    world.say("world", f"h{old.number} is cut off and replaced by h{new.number}; its processes live on")
    world.job.given_up = True
    for t in world.job.trainers:
        if t.host != old.number:
            end(world, t, "killed by the launcher")
    start_job(world, take_over=True)


def hang(world: World) -> None:
    """The launcher gives up on a job that lives and starts another beside it."""
    world.job.given_up = True
    world.say("launcher", f"takes {world.job.name} for hung; it lives on")
    start_job(world, take_over=True)


def flip_in_ram(world: World) -> None:
    proven = [f for h in world.hosts for f in h.slots.values() if f.proven is not None and not f.readers]
    if proven:
        files = world.rng.choice(proven)
        world.excused = True
        files.inode.chunks, files.inode.damaged = flipped(files.inode.chunks), True
        world.say("world", f"a bit flips in {files.name}")


def flip_on_target(world: World) -> None:
    images = [(key, f) for key, f in world.target.images.items() if f.name_synced and not world.target.readers.get(key[0])]
    if images:
        (step_id, rank), file = world.rng.choice(images)
        world.excused = True
        file.chunks, file.damaged = flipped(file.chunks), True
        world.say("world", f"a bit flips in the target's image of rank {rank}, {step_id}")


def fail_writes(world: World) -> None:
    world.target.failing_until = world.now + world.rng.randrange(5, 40)
    world.say("world", f"the store refuses writes until {world.target.failing_until}")


FAULTS: tuple[tuple[Callable[[World], None], int], ...] = (
    (kill_trainer, 6),
    (kill_all_trainers, 4),
    (kill_agent, 6),
    (kill_everything, 3),
    (break_socket, 3),
    (power_loss, 3),
    (replace_host, 2),
    (hang, 3),
    (flip_in_ram, 2),
    (flip_on_target, 1),
    (fail_writes, 3),
)
"""Each fault with its weight."""
