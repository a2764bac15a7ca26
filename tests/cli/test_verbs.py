"""The verbs on a run that was really killed: what they say, their JSON, their exit codes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hinan.core.ids import StepId
from tests.cli.conftest import Verb
from tests.harness.job import Job, until
from tests.harness.zygote import Zygote


@pytest.fixture(scope="module")
def killed(zygote: Zygote, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Job]:
    """A run that died at steps 7 and 13: step 12 of attempt 2 in RAM and committed, step 6 of attempt 1 committed."""
    job = Job(zygote, tmp_path_factory.mktemp("cli") / "run")
    for die_at, committed in ((7, 6), (13, 12)):
        (child,) = job.start(die_at=die_at)
        child.wait()
        until(lambda committed=committed: committed in job.committed(), what=f"commit of step {committed}")
    yield job
    job.clean()


def test_decide_says_which_step_from_where_and_why(killed: Job, verb: Verb) -> None:
    """The newest step, from RAM; the same step on the target is second; the views are listed."""
    code, answer = verb("decide", killed.target_path, "--json")
    assert code == 0
    assert (answer["step"], answer["attempt"]) == (12, 2)
    assert [(s["rank"], s["tier"]) for s in answer["sources"]] == [(0, "ram")]
    assert [(c["tier"], c["step"], c["ok"]) for c in answer["candidates"]][:2] == [("ram", 12, True), ("target", 12, True)]
    assert [(v["tier"], v["status"]) for v in answer["views"]] == [("ram", "present"), ("target", "present")]
    assert "resume from step 12" in verb("decide", killed.target_path)[1]


def test_decide_refuses_another_world_size_with_the_reason(killed: Job, verb: Verb) -> None:
    """Two ranks cannot resume what one rank saved; nothing to resume from is exit code 1."""
    code, answer = verb("decide", killed.target_path, "--ranks", 2, "--json")
    assert code == 1
    assert answer["step"] is None
    assert "saved by 1 ranks" in answer["candidates"][0]["reason"]


def test_ls_lists_steps_and_where_they_stand(killed: Job, verb: Verb) -> None:
    """Step, attempt, images by tier, committed or not."""
    _, answer = verb("ls", killed.target_path, "--json")
    last = answer["steps"][-1]
    assert (last["step"], last["ram_images"], last["target_images"], last["committed"], last["orphan"]) == (
        12,
        1,
        1,
        True,
        None,
    )
    assert answer["problems"] == {}


def test_show_lists_kept_and_left(killed: Job, verb: Verb) -> None:
    """Names and bytes of what was kept; the ratio to the memory in use; unknown steps are refused with the known ones."""
    _, answer = verb("show", killed.target_path, "--json")
    assert {"model.first.weight", "optim.model.first.weight.exp_avg"} <= {t["name"] for t in answer["kept"]}
    assert sum(t["bytes"] for t in answer["kept"]) == answer["kept_bytes"]
    assert 0 < answer["ratio_to_device_memory"] <= 1
    of_class = {word: sum(t["bytes"] for t in answer["kept"] if t["class"] == word) for word in ("gated", "ungated")}
    assert of_class == {word: found["bytes"] for word, found in answer["classes"].items()}
    assert of_class["gated"] > of_class["ungated"] > 0
    text = verb("show", killed.target_path)[1]
    assert "copied before training goes on; reported above 64.0 MiB or 1% of the image" in text
    code, text = verb("show", killed.target_path, "--step", 7)
    assert code == 2
    assert "12" in text


def test_verify_finds_a_flipped_byte_and_names_it(killed: Job, verb: Verb) -> None:
    """Good bytes are good; one flipped byte names file, chunk and tensor, and decide --verify turns to another source."""
    code, answer = verb("verify", killed.target_path, "--json")
    assert (code, answer["ok"], answer["bad"]) == (0, True, [])
    assert answer["checked_bytes"] >= 2 * 32768
    path = killed.target.image_path(StepId(2, 12), 0)
    good = path.read_bytes()
    path.write_bytes(good[:5000] + bytes([good[5000] ^ 1]) + good[5001:])
    try:
        code, answer = verb("verify", killed.target_path, "--json")
        assert (code, answer["ok"]) == (1, False)
        (bad,) = answer["bad"]
        assert bad["file"] == str(path)
        assert len(bad["tensors"]) == 1
        assert bad["chunks"][0][0] <= 5000 < bad["chunks"][0][1]
        _, decided = verb("decide", killed.target_path, "--verify", "--json")
        refused = next(c for c in decided["candidates"] if c["tier"] == "target" and c["step"] == 12)
        assert not refused["ok"]
        assert bad["tensors"][0] in refused["reason"]
        assert decided["sources"][0]["tier"] == "ram"
    finally:
        path.write_bytes(good)
    slot = next(f for f in killed.arena.scan() if f.proven is not None)
    assert verb("verify", killed.arena.path(slot.name), "--json")[1]["ok"]
    assert verb("verify", killed.target.directory(StepId(2, 12)), "--json")[1]["checked_files"] == 1


def test_agent_status_tells_slots_and_survival(killed: Job, verb: Verb) -> None:
    """Watermark, slots with the reason they stay, and what the RAM copy survives."""
    code, answer = verb("agent", "status", killed.target_path, "--json")
    assert code == 0
    assert answer["watermark"] == {"step": 12, "attempt": 2}
    assert any(s["stays"] == "it is the watermark" for s in answer["slots"])
    assert answer["survives"]
    assert "held everywhere: step 12" in verb("agent", "status", killed.target_path)[1]


def test_rm_deletes_what_is_named_and_refuses_what_a_restart_needs(killed: Job, verb: Verb) -> None:
    """Nothing named, an unknown step, and the last committed step are refused; nothing is deleted then."""
    before = killed.committed()
    for arguments, word in (((), "--step"), (("--step", 7), "no step 7"), (("--step", 12, "--step", 6), "last committed")):
        code, text = verb("rm", killed.target_path, *arguments)
        assert code == 2
        assert word in text
    assert killed.committed() == before
    assert verb("rm", killed.target_path, "--step", 6, "--json")[1]["deleted"] == [{"step": 6, "attempt": 1}]
    assert killed.committed() == [12]


@pytest.mark.parametrize("name", ["demo", "run", "agent", "ls", "show", "verify", "decide", "rm"])
def test_every_verb_has_help_with_an_example(verb: Verb, name: str) -> None:
    """--help of each verb ends with an example."""
    code, text = verb(name, "--help")
    assert code == 0
    assert f"Example:  hinan {name}" in text


def test_bad_usage_names_the_thing(verb: Verb, tmp_path: Path) -> None:
    """A path that is no target, a script that is not there: exit code 2 and a message that names it."""
    for arguments in (("ls", tmp_path), ("decide", tmp_path / "no"), ("verify", tmp_path), ("run", tmp_path / "no.py")):
        code, text = verb(*arguments)
        assert code == 2
        assert str(arguments[1]) in text


def test_an_unreadable_resume_is_named_and_nothing_is_deleted(killed: Job, verb: Verb) -> None:
    """One flipped bit in a resume record hides an attempt: decide and verify name the file, rm calls nothing an orphan."""
    path = killed.target_path / "attempts" / "000002.resume"
    good = path.read_bytes()
    path.write_bytes(good.replace(b'"parent_step":6', b'"parent_step":7'))
    try:
        assert "attempts/000002.resume" in verb("decide", killed.target_path, "--json")[1]["problems"]
        code, answer = verb("verify", killed.target_path, "--json")
        assert code == 1
        assert str(path) in {bad["file"] for bad in answer["bad"]}
        code, text = verb("rm", killed.target_path, "--orphans")
        assert code == 2
        assert "000002.resume" in text
        assert 12 in killed.committed()
    finally:
        path.write_bytes(good)


def test_swapped_step_directories_are_found(killed: Job, verb: Verb) -> None:
    """A manifest must say what its place says."""
    directory = killed.target.directory(StepId(2, 12))
    elsewhere = directory.with_name("0000000013-000002")
    directory.rename(elsewhere)
    try:
        code, answer = verb("verify", killed.target_path, "--json")
        assert code == 1
        assert any("step 12" in bad["reason"] for bad in answer["bad"])
    finally:
        elsewhere.rename(directory)
