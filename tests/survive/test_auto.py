"""`every="auto"` in real processes: one decision for all ranks, at one step, that can be read with its reasons."""

from __future__ import annotations

import json
import re
import sys
from typing import Any

import pytest

from hinan.cli import main as cli
from hinan.formats.records import ClaimRecord, encode, now_text
from tests.harness.job import Job, MakeJob, until
from tests.harness.zygote import Child

AUTO = {"every": "auto", "commit_every": "auto"}
LAST = 400


def held(child: Child) -> list[int]:
    """The steps that a rank has evacuated, in order."""
    return [int(step) for step in re.findall(r"\bheld step=(\d+)", child.output)]


def changes(child: Child) -> list[tuple[int, int]]:
    """(step, interval) of each change that a rank has followed."""
    found = re.findall(
        r"cadence\.changed from_step=(\d+) every=(\d+) .*why=evacuations: .*stall.*; commits: ", child.output
    )
    return [(int(step), int(every)) for step, every in found]


def status(job: Job, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, *words: str) -> str:
    """What the command prints."""
    monkeypatch.setattr(sys, "argv", ["hinan", "agent", "status", str(job.target_path), *words])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert not ended.value.code
    return capsys.readouterr().out


def fail_often(job: Job, times: int) -> None:
    """As if so many attempts had died before they resumed, so that intervals are short enough for a test."""
    job.target.open_or_create()
    run_id = job.target.run().run_id
    for attempt in range(1, times + 1):
        claim = ClaimRecord(attempt, run_id, "elsewhere", 1, 1, 1, now_text())
        (job.target_path / "attempts" / f"{attempt:06d}.claim").write_bytes(encode(claim))


def test_all_ranks_change_at_one_step_and_status_says_why(
    make_job: MakeJob, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two ranks leave the warm-up of ten steps for the same interval at the same step, and evacuate the same steps."""
    job = make_job(ranks=2, steps=LAST, **AUTO)
    fail_often(job, 300)
    pause = str(job.root / "pause")
    children = job.start(pause_file=pause, pause_at=[9, LAST])
    until((job.root / "pause.9").exists, what="the pause at step 9")
    text = status(job, capsys, monkeypatch)
    assert "evacuations every 10 steps: asked for is auto; not enough is measured yet" in text
    assert "nothing was decided by measurements yet" in text
    (job.root / "pause.9").unlink()
    until((job.root / f"pause.{LAST}").exists, timeout_s=60, what="the pause at the end")
    cadence: dict[str, Any] = json.loads(status(job, capsys, monkeypatch, "--json"))["cadence"]
    text = status(job, capsys, monkeypatch)
    (job.root / f"pause.{LAST}").unlink()
    for child in children:
        child.ok()
    of_rank_0, of_rank_1 = map(changes, children)
    assert of_rank_0 == of_rank_1
    assert held(children[0]) == held(children[1])
    from_step, every = of_rank_0[0]
    assert every > 10
    assert [step for step in held(children[0]) if step < from_step] == list(range(10, from_step, 10))
    following = cadence["next"]
    now = following if following is not None and following["from_step"] <= LAST else cadence
    assert (now["from_step"], now["evacuate"]["interval_steps"]) == of_rank_0[-1]
    assert cadence["is_decided"]
    assert cadence["evacuate"]["interval_s"] == pytest.approx(cadence["evacuate"]["interval_steps"] * cadence["step_s"])
    assert cadence["commit"]["interval_steps"] % cadence["evacuate"]["interval_steps"] == 0
    kinds = {name: each["kind"] for name, each in cadence["inputs"].items() if name != "drain_s"}  # known a little later
    assert kinds == {"step_s": "measured", "stall_s": "measured", "ram_mtti_s": "default", "target_mtti_s": "default",
                     "interference_ratio": "guessed"}  # fmt: skip
    assert cadence["inputs"]["ram_mtti_s"]["source"].startswith("300 seen in ")
    assert f"evacuations every {cadence['evacuate']['interval_steps']} steps (" in text
    assert re.search("not measured yet: .*restart", text)
    assert "lost by that, expected: stall" in text


@pytest.mark.parametrize("lost", ["trainer", "host"])
def test_a_killed_attempt_counts_as_a_failure(make_job: MakeJob, lost: str) -> None:
    """In the tier that answered it. Kill to first step is a restart, where RAM remembers. Closed attempts are none."""
    job = make_job(steps=200, wait_committed=[20], **AUTO)
    (child,) = job.start(die_at=90)
    child.wait()
    assert "(0 seen in" in child.output
    if lost == "host":
        job.kill_agent()
        job.arena.wipe()
    (child,) = job.start(pause_file=str(job.root / "pause"), pause_at=[199])
    until((job.root / "pause.199").exists, what="the pause at step 199")
    inputs = job.status()["cadence"]["inputs"]
    (job.root / "pause.199").unlink()
    child.ok()
    seen = {name: inputs[name]["source"].partition(" in ")[0] for name in ("ram_mtti_s", "target_mtti_s")}
    kinds = {name: inputs[name]["kind"] for name in seen}
    assert kinds == {"ram_mtti_s": "default", "target_mtti_s": "default"}  # seconds: the prior rules
    if lost == "trainer":
        assert seen == {"ram_mtti_s": "1 seen", "target_mtti_s": "0 seen"}
        assert 0 < inputs["restart_s"]["value"] < 30
    else:
        assert seen == {"ram_mtti_s": "0 seen", "target_mtti_s": "1 seen"}
        assert "restart_s" not in inputs
    (child,) = job.start(steps=300)
    child.ok()
    assert job.target.closed().keys() == {2, 3}
    assert "(2 seen in" not in child.output
