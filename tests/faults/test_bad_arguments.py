"""Arguments and states that cannot work: refused with an error that names each, before anything is kept."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

import hinan
from hinan.core.errors import ConfigError
from tests.faults.starts import refused, saved, still_resumes
from tests.harness.job import MakeJob, until


def test_ranks_with_different_targets(make_job: MakeJob) -> None:
    """A-AGREE-5: two ranks are started with different targets: every rank is refused at start, with both values."""
    job = make_job(ranks=2)
    other = make_job("other")
    saved(other)
    targets = [str(job.target_path), str(other.target_path)]
    refused(job, "ConfigError", *targets, "different targets", targets=targets)
    assert job.result(1)["error"]["type"] == "ConfigError"
    refused(job, "ConfigError", "no run there", targets=[targets[0], str(job.root / "nothing")])
    still_resumes(other)


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        ({"every": 2}, {"every": 3}, "every: 2 steps (rank 0); 3 steps (rank 1)"),
        ({"commit_every": "30s"}, {}, "commit_every: 30 s (rank 0); 1 steps (rank 1)"),
        ({"ram": "1GiB"}, {}, "ram: 1073741824 bytes (rank 0); auto (rank 1)"),
        ({}, {"fresh": True}, "fresh: False (rank 0); True (rank 1)"),
    ],
)
def test_ranks_with_different_arguments(
    first: dict[str, Any], second: dict[str, Any], said: str, make_job: MakeJob
) -> None:
    """What counts for the whole job is asked for alike, or every rank is refused, before the target is touched."""
    job = make_job(ranks=2)
    refused(job, "ConfigError", said, each=[first, second])
    assert job.result(1)["error"]["type"] == "ConfigError"
    assert not job.target_path.exists()


def test_several_ranks_without_a_process_group(make_job: MakeJob) -> None:
    """A launcher started two ranks and the script made no process group: an error that says which call is missing."""
    refused(make_job(ranks=2), "ConfigError", "2 ranks", "init_process_group", plain=True)


def test_steps_without_restore(make_job: MakeJob) -> None:
    """`step()` and `evacuate()` before `restore()` say so."""
    job = make_job()
    job.start_agent()
    (child,) = job.start(program="small:no_restore")
    child.ok()
    for call in ("step", "evacuate"):
        assert job.result()[call]["type"] == "ConfigError"
        assert "restore()" in job.result()[call]["text"]


@pytest.mark.parametrize(
    ("arguments", "names"),
    [
        ({"every": 0}, "every=0"),
        ({"every": -5}, "every=-5"),
        ({"every": True}, "every=True"),
        ({"every": 2.5}, "every=2.5"),
        ({"every": "often"}, "'often'"),
        ({"every": "30"}, "'30'"),
        ({"every": "0s"}, "every='0s'"),
        ({"commit_every": "never"}, "'never'"),
        ({"keep": 3}, "keep=3"),
        ({"ram": 5}, "ram=5"),
        ({"ram": "much"}, "'much'"),
        ({"ram": "/dev/null/absent"}, "'/dev/null/absent'"),
        ({"ram": "/etc/hostname"}, "'/etc/hostname'"),
        ({"timeout_s": 0}, "timeout_s=0"),
        ({"timeout_s": "10"}, "timeout_s='10'"),
        ({"timeout_s": float("nan")}, "timeout_s=nan"),
        ({"restore_timeout_s": -1}, "restore_timeout_s=-1"),
        ({"tolerate": -1}, "tolerate=-1"),
    ],
    ids=lambda value: None if isinstance(value, dict) else value,
)
def test_arguments_that_cannot_work(arguments: dict[str, Any], names: str, tmp_path: Path) -> None:
    """An argument of the wrong kind or out of range is named with its value before anything is made."""
    with pytest.raises(ConfigError, match=re.escape(names)):
        hinan.Evacuator(tmp_path / "target", {"n": [1]}, **arguments)
    assert not (tmp_path / "target").exists()


@pytest.mark.parametrize("state", [{}, [1], {1: 2}, None], ids=str)
def test_a_state_that_is_no_dict(state: Any, tmp_path: Path) -> None:
    """The state must be a dict with text keys; the error shows one."""
    with pytest.raises(ConfigError, match="dict with text keys"):
        hinan.Evacuator(tmp_path / "target", state)


@pytest.mark.parametrize("value", [0, -1, True, 1.5])
def test_a_keep_6_values_that_other_tools_read_as_all_are_refused(value: Any) -> None:
    """A-KEEP-6: 0 and -1 are refused rather than read as "all" (and then as "delete all")."""
    for name in ("last", "every"):
        with pytest.raises(ConfigError, match=f"Keep.{name}="):
            hinan.Keep(**{name: value})


@pytest.mark.parametrize(
    ("kind", "says"),
    [
        ("loader", ["bad.inner.[1]", "plain DataLoader", "StatefulDataLoader"]),
        ("dtensor", ["bad.inner.[1]", "DTensor", "not supported yet"]),
        ("sparse", ["bad.inner.[1]", "sparse", "Keep its parts"]),
        ("meta", ["bad.inner.[1]", "meta device", "materialise"]),
        ("lambda", ["bad.inner.[1]", "builtins.function", "register_codec"]),
        ("object", ["bad.inner.[1]", "_thread.lock", "register_codec"]),
    ],
)
def test_a_value_that_cannot_be_kept(kind: str, says: list[str], make_job: MakeJob) -> None:
    """A value that cannot be stored is refused at the first step, with its path in the state, its kind and the way out."""
    job = make_job()
    job.start_agent()
    (child,) = job.start(program="small:hold_state", kind=kind, steps=1)
    child.ok()
    (error,) = job.result()["errors"]
    assert error["type"] == "CaptureError", error
    for text in says:
        assert text in error["text"], error["text"]


def test_an_object_that_raises_once_as_it_is_asked(make_job: MakeJob) -> None:
    """A state_dict() that fails at one step costs that step, for the reason that it gave, and is said with its path."""
    job = make_job()
    job.start_agent()
    (child,) = job.start(program="small:hold_state", kind="raises", steps=4)
    child.ok()
    first, error, *later = job.result()["errors"]
    assert (first, later) == (None, [None, None])
    assert error["type"] == "CaptureError"
    why = "bad.inner.[1] is a Raises, and its state_dict() does not answer: KeyError: 'not ready'"
    assert error["text"].startswith(why)
    assert f"report lost step=2 rank=0 why={why}" in child.output and "interrupted" not in child.output
    assert [child.output.count(f"held step={step} ") for step in (1, 2, 3, 4)] == [1, 0, 1, 1]


def test_a_structure_that_changes_between_evacuations(make_job: MakeJob) -> None:
    """Tensors come to the state while training: each evacuation keeps what there is then, and a restart into the old
    structure brings all of it back."""
    job = make_job()
    job.start_agent()
    (child,) = job.start(program="small:hold_state", kind="grows", steps=5)
    child.ok()
    assert "errors" not in job.result()
    until(lambda: job.agent is None, what="the agent's end")
    job.start_agent()
    (child,) = job.start(program="small:hold_state", kind="grows", steps=5)
    child.ok()
    assert (job.result()["w"], job.result()["more"]) == ([5.0] * 4, ["t0", "t1", "t2", "t3", "t4"])
