"""What the RAM copy survives is read from the host, and every known killer is named."""

from __future__ import annotations

from pathlib import Path

import pytest

from hinan.core.survival import Survives, survival
from hinan.host.survival import host_facts


def files(root: Path, **texts: str) -> Path:
    for name, text in texts.items():
        path = root / name.replace("__", "/").replace("_dot_", ".")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return root


def test_a_container_with_its_own_shm_survives_only_its_session(tmp_path: Path) -> None:
    """A private /dev/shm ends with the container; a volume that was mounted from outside does not."""
    mounts = "1 0 0:1 / / rw - overlay o rw\n2 1 0:2 / /dev/shm rw - tmpfs shm rw\n3 1 0:3 / /ram rw - tmpfs t rw\n"
    root = files(tmp_path, _dot_dockerenv="", proc__self__mountinfo=mounts, proc__self__cgroup="0::/\n")
    private = host_facts(Path("/dev/shm/hinan-0/r/n"), None, root=root)
    assert private.in_container
    assert private.tmpfs_is_private
    level, killers = survival(private)
    assert level is Survives.SESSION or not private.own_session
    assert any("/dev/shm" in k for k in killers)
    assert host_facts(Path("/ram/hinan-0/r/n"), None, root=root).tmpfs_is_private is False


@pytest.mark.parametrize(
    ("config", "expected"),
    [("", True), ("[Login]\nRemoveIPC=no\n", False), ("#RemoveIPC=no\n", True), ("RemoveIPC=no\nRemoveIPC=yes\n", True)],
)
def test_remove_ipc_is_on_unless_switched_off(tmp_path: Path, config: str, expected: bool) -> None:
    """logind's default deletes /dev/shm files of ordinary users at logout."""
    root = files(tmp_path, run__systemd__system__x="", etc__systemd__logind_dot_conf=config, proc__self__cgroup="0::/\n")
    assert host_facts(Path("/dev/shm/x"), None, root=root).remove_ipc is expected


def test_one_cgroup_for_agent_and_trainer_is_named(tmp_path: Path) -> None:
    """Agent and trainer in one job cgroup: a kill of it takes both; memory.oom.group=1 is named too."""
    group = "0::/job/step0\n"
    root = files(tmp_path, proc__self__cgroup=group, proc__77__cgroup=group)
    oom = root / "sys/fs/cgroup/job/step0/memory.oom.group"
    oom.parent.mkdir(parents=True)
    oom.write_text("1\n")
    facts = host_facts(Path("/dev/shm/x"), 77, root=root)
    assert facts.same_cgroup_as_trainer
    assert facts.oom_group
    text = " ".join(survival(facts)[1])
    assert "cgroup" in text
    assert "oom.group" in text


def test_a_slurm_step_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Slurm kills a step's cgroup at its end."""
    monkeypatch.setenv("SLURM_JOB_ID", "1")
    facts = host_facts(Path("/dev/shm/x"), None, root=files(tmp_path, proc__self__cgroup="0::/\n"))
    assert "Slurm" in " ".join(survival(facts)[1])
