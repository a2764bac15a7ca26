"""Reads the facts from which `core.survival` derives what the RAM copy survives."""

from __future__ import annotations

import os
from pathlib import Path

from hinan.core.survival import HostFacts
from hinan.host.signals import ours

_FIRST_ORDINARY_UID = 1000


def host_facts(arena: Path, trainer_pid: int | None, *, root: Path = Path("/")) -> HostFacts:
    """Facts about the calling process, the arena's mount and one trainer.

    Args:
        trainer_pid: a process of the training job; None when none is known yet.
        root: where /proc, /sys and /etc are looked for.
    """
    in_container = (
        (root / ".dockerenv").exists() or (root / "run/.containerenv").exists() or "KUBERNETES_SERVICE_HOST" in os.environ
    )
    own = _cgroup_text(root, "self")
    theirs = _cgroup_text(root, str(trainer_pid)) if trainer_pid is not None else None
    below_root = own is not None and any(line.split(":", 2)[2] != "/" for line in own.splitlines())
    return HostFacts(
        own_session=os.getsid(0) == os.getpid(),
        in_container=in_container,
        tmpfs_is_private=in_container and not _is_host_mount(arena, root),
        same_cgroup_as_trainer=below_root and own == theirs,
        oom_group=_oom_group(root, own),
        remove_ipc=_remove_ipc(root),
        ordinary_user=os.getuid() >= _FIRST_ORDINARY_UID,
        slurm_job="SLURM_JOB_ID" in os.environ,
    )


def _cgroup_text(root: Path, who: str) -> str | None:
    try:
        return (root / "proc" / who / "cgroup").read_text()
    except ours(OSError):
        return None


def _is_host_mount(arena: Path, root: Path) -> bool:
    """In a container: whether the arena lies on a mount that was brought in from outside, not on its own /dev/shm."""
    mount = _mount_of(arena, root)
    return mount not in (None, "/", "/dev/shm")  # noqa: S108 - the container's own tmpfs


def _mount_of(path: Path, root: Path) -> str | None:
    try:
        lines = (root / "proc/self/mountinfo").read_text().splitlines()
    except ours(OSError):
        return None
    points = [line.split()[4] for line in lines]
    inside = [p for p in points if str(path).startswith(p.rstrip("/") + "/") or p == "/"]
    return max(inside, key=len, default=None)


def _oom_group(root: Path, cgroup: str | None) -> bool | None:
    for line in (cgroup or "").splitlines():
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            try:
                return (root / "sys/fs/cgroup" / path.strip("/") / "memory.oom.group").read_text().strip() == "1"
            except ours(OSError):
                return None
    return None


def _remove_ipc(root: Path) -> bool | None:
    """systemd-logind's RemoveIPC: yes unless configured otherwise; False where logind does not run."""
    if not (root / "run/systemd/system").exists():
        return False
    try:
        text = (root / "etc/systemd/logind.conf").read_text()
    except ours(OSError):
        return True
    words = [line.split("=", 1)[1].strip().lower() for line in text.splitlines() if line.startswith("RemoveIPC=")]
    return words[-1] in ("yes", "true", "1", "on") if words else True
