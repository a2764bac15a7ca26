"""What the RAM copy survives is derived from facts, and never promised beyond them."""

from __future__ import annotations

import pytest

from hinan.core.survival import HostFacts, Survives, survival


@pytest.mark.parametrize(
    ("facts", "level", "words"),
    [
        (HostFacts(), Survives.POD, ""),
        (HostFacts(in_container=True), Survives.SESSION, "container's end"),
        (HostFacts(tmpfs_is_private=True), Survives.SESSION, "container's end"),
        (HostFacts(slurm_job=True), Survives.SESSION, "Slurm"),
        (HostFacts(remove_ipc=True, ordinary_user=True), Survives.PROCESS, "RemoveIPC"),
        (HostFacts(remove_ipc=True), Survives.POD, ""),
        (HostFacts(own_session=False), Survives.PROCESS, "session"),
        (HostFacts(same_cgroup_as_trainer=True), Survives.POD, "cgroup"),
        (HostFacts(oom_group=True), Survives.POD, "memory.oom.group"),
        (HostFacts(own_session=False, in_container=True), Survives.PROCESS, "session"),
        (HostFacts(remove_ipc=True, ordinary_user=True, slurm_job=True), Survives.PROCESS, "Slurm"),
    ],
)
def test_class_and_killers(facts: HostFacts, level: Survives, words: str) -> None:
    """B5: the weakest fact decides; each killer is named with its way out."""
    found, killers = survival(facts)
    assert found is level
    assert words in " ".join(killers)
    assert bool(killers) == bool(words)


def test_classes_are_ordered_and_have_words() -> None:
    """A class can be compared and printed."""
    assert Survives.PROCESS < Survives.SESSION < Survives.POD < Survives.HOST
    assert all(str(s).startswith("the end of") for s in Survives)


def test_no_fact_makes_it_better() -> None:
    """Adding a danger never raises the class."""
    dangers = ("in_container", "tmpfs_is_private", "same_cgroup_as_trainer", "oom_group", "remove_ipc", "slurm_job")
    for i in range(1 << len(dangers)):
        on = {name: bool(i >> bit & 1) for bit, name in enumerate(dangers)}
        level, _ = survival(HostFacts(ordinary_user=True, **on))  # type: ignore[arg-type]
        for name in dangers:
            more, _ = survival(HostFacts(ordinary_user=True, **(on | {name: True})))  # type: ignore[arg-type]
            assert more <= level
