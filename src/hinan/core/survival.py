"""What the RAM copy survives on this host (rule B5): process, session, pod or host.

A session of its own is not survival: a container that ends, a cgroup that is killed or a login that is cleaned up takes
the copy along. The class is derived from facts, never assumed, and everything printed promises only that class.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum


class Survives(IntEnum):
    """The largest thing that may end without taking the RAM copy along. Ordered."""

    PROCESS = 1
    SESSION = 2
    POD = 3
    HOST = 4

    def __str__(self) -> str:
        return _WORDS[self]


_WORDS = {
    Survives.PROCESS: "the end of any single process",
    Survives.SESSION: "the end of all processes of the job and its launcher",
    Survives.POD: "the end of the pod or container",
    Survives.HOST: "the end of the host",
}


@dataclass(frozen=True)
class HostFacts:
    """What was read from /proc, cgroups and mounts; None where it could not be read.

    Attributes:
        own_session: the agent leads a session of its own.
        in_container: the agent runs in a container's namespaces.
        tmpfs_is_private: the arena's mount belongs to this container and ends with it.
        same_cgroup_as_trainer: agent and trainers are in one cgroup below the root, so that one kill takes both.
        oom_group: `memory.oom.group` of that cgroup: the out-of-memory killer takes the whole group.
        remove_ipc: systemd-logind removes /dev/shm files of ordinary users when they log out.
        ordinary_user: uid is that of an ordinary user, to whom `remove_ipc` applies.
        slurm_job: started inside a Slurm job step, which is killed as a cgroup.
    """

    own_session: bool = True
    in_container: bool | None = False
    tmpfs_is_private: bool | None = False
    same_cgroup_as_trainer: bool | None = False
    oom_group: bool | None = False
    remove_ipc: bool | None = False
    ordinary_user: bool = False
    slurm_job: bool = False


def survival(facts: HostFacts) -> tuple[Survives, tuple[str, ...]]:
    """The class, and each known killer in this place with the way out."""
    killers: list[str] = []
    level = Survives.POD
    if facts.in_container or facts.tmpfs_is_private:
        level = Survives.SESSION
        killers.append(
            "the container's end: its /dev/shm goes with it; mount a host directory or a tmpfs of the node instead"
        )
    if facts.slurm_job:
        level = Survives.SESSION
        killers.append("the end of the Slurm step kills its cgroup: start `hinan agent` outside the step")
    if facts.same_cgroup_as_trainer:
        killers.append("a kill of the job's cgroup takes the agent too; a new agent finds the arena again")
    if facts.oom_group:
        killers.append("memory.oom.group=1: running out of memory kills agent and trainers together")
    if facts.remove_ipc and facts.ordinary_user:
        level = min(level, Survives.PROCESS)
        killers.append("systemd RemoveIPC=yes deletes /dev/shm files at logout: `loginctl enable-linger`, or RemoveIPC=no")
    if not facts.own_session:
        level = Survives.PROCESS
        killers.append("the agent shares its caller's session: start it by `hinan run` or `hinan agent start`")
    return level, tuple(killers)
