"""`hinan plan --from-run` on a run that was really killed: what is measured, what wins over it, what is refused."""

from __future__ import annotations

import json
import re
import shutil
import signal
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from hinan.cli.fromrun import measured_run
from hinan.cli.main import app
from hinan.cli.places import arena_of
from hinan.core.errors import ConfigError, TargetError
from hinan.core.ids import StepId, manifest_file
from hinan.formats import records
from hinan.formats.records import InputRecord
from hinan.tiers.cadences import PROPOSAL, cadence_name
from hinan.tiers.target import Target
from tests.harness.job import Job
from tests.harness.zygote import Zygote


@pytest.fixture(scope="module")
def ran(zygote: Zygote, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Job]:
    """Killed after step 5, closed after step 12; committed are steps 2 and 4 of attempt 1, and 6 to 12 of attempt 2."""
    job = Job(zygote, tmp_path_factory.mktemp("from-run") / "run", every=2, commit_every=2, keep_last=20)
    (child,) = job.start(die_at=5, wait_committed=[2, 4])
    assert child.wait() == -signal.SIGKILL
    job.run(steps=12, wait_committed=[6, 8, 10, 12])
    yield job
    job.clean()


def plan(*words: object) -> Result:
    return CliRunner().invoke(app, ["plan", *map(str, words)])


def ask(*words: object) -> dict[str, Any]:
    result = plan(*words, "--json")
    assert result.exit_code == 0, result.output
    answer: dict[str, Any] = json.loads(result.output)
    return answer


def test_a_real_run_replaces_defaults(ran: Job) -> None:
    """State, step, stall and drain are those of the manifests; one restart is no figure; the MTTI given wins."""
    answer = ask("--from-run", ran.target_path, "--mtti", "3h")
    inputs = answer["inputs"]
    measured = {name for name, each in inputs.items() if each["kind"] == "measured" and not name.startswith("machine.")}
    assert measured == {f"job.{n}" for n in ("gpus", "state_bytes", "shard_gpus", "step_s", "stall_s")} | {"store.drain_s"}
    sealed = [ran.target.manifest(step_id, 0).sealed for step_id in ran.target.step_ids()]  # type: ignore[union-attr]
    assert [s.step for s in sealed] == [2, 4, 6, 8, 10, 12]
    assert [s.settled_stall_s is None for s in sealed] == [True, False, True, False, False, False]
    settled = [s.settled_stall_s for s in sealed if s.settled_stall_s is not None]
    assert inputs["job.stall_s"]["value"] == pytest.approx(median(settled))
    assert answer["tiers"][0]["limited_by"] == "measured"
    assert inputs["job.state_bytes"]["value"] == sealed[-1].image_bytes
    assert 0 < inputs["job.step_s"]["value"] < 10
    assert 0 < inputs["store.drain_s"]["value"] < 10
    run_id = ran.target.run().run_id
    assert inputs["store.drain_s"]["source"].startswith(f"run {run_id} at {ran.target_path}: median of 6 x commit")
    assert inputs["failures"]["kind"] == "given"
    (note,) = [text for text in answer["warnings"] if "not measured" in text]
    assert "restart (1 usable x restart" in note


def test_one_failure_gives_no_mtti(ran: Job) -> None:
    """One death in the seconds it lived: the failures are the table's, and why is said."""
    answer = ask("--from-run", ran.target_path, "--restart", "1ms", "--floor", "1ms", "--tiers", "ram,shared")
    assert answer["inputs"]["failures"]["kind"] == "default"
    assert answer["mtti_s"] > 3600
    (note,) = [text for text in answer["warnings"] if "not measured" in text]
    assert re.search(r"mtti \(1 failure in \S+ s alive, 2 are needed\)", note)


def test_a_refusal_says_what_was_measured(ran: Job) -> None:
    """An MTTI of seconds with default restarts is impossible: the figures of the run stand beside it."""
    result = plan("--from-run", ran.target_path, "--mtti", "9s")
    assert result.exit_code == 1
    assert f"measured in run {ran.target.run().run_id} at {ran.target_path}: gpus 1" in result.output
    assert "a restart takes" in result.output
    refused = json.loads(plan("--from-run", ran.target_path, "--mtti", "9s", "--json").output)
    assert "mtti" in refused["nearest"]
    assert "gpus 1" in refused["measured"]


def test_table_explanation_scale_and_report_say_measured(ran: Job, tmp_path: Path) -> None:
    """Each way of answering names the run; a table that is still 80 columns wide."""
    page = tmp_path / "report.html"
    words = ("--from-run", ran.target_path, "--mtti", "30d")
    text = plan(*words, "--explain", "--html", page).output
    head = text.split("tier ")[0]
    assert f"measured in run {ran.target.run().run_id}" in " ".join(head.split())
    assert re.search(r"\n  store\.drain_s = .* \(measured: run ", text)
    assert "restart.total_s" not in text
    assert "store.drain_s" in page.read_text()
    assert '"measured", "run ' in page.read_text()
    swept = plan(*words, "--scale")
    assert swept.exit_code == 0
    measured, note = swept.output.splitlines()[-2:]
    assert measured.startswith("measured in run ")
    assert note.startswith("! not measured in run ")
    points = json.loads(plan(*words, "--scale", "--json", "--tiers", "ram,shared").output)
    assert "stall" in points["measured"]
    sealed = [ran.target.manifest(step_id, 0).sealed for step_id in ran.target.step_ids()]  # type: ignore[union-attr]
    stalls = [each.settled_stall_s for each in sealed if each.settled_stall_s is not None]
    answered = [point["stall_s"] for point in points["points"] if point["stall_s"]]
    assert answered == pytest.approx([median(stalls)] * len(answered))
    assert answered


def test_every_rank_is_read_and_a_step_without_one_is_left_out(ran: Job, tmp_path: Path) -> None:
    """The run's steps as two ranks would have left them, rank 1 a second slower and missing in the last one."""
    copy = tmp_path / "copy"
    shutil.copytree(ran.target_path, copy)
    target = Target(copy)
    for step_id in target.step_ids():
        of_one = ran.target.manifest(step_id, 0)
        assert of_one is not None
        for rank in (0, 1) if step_id.step < 12 else (0,):
            sealed = replace(of_one.sealed, rank=rank, world_size=2, settled_stall_s=float(rank))
            fact = records.encode(records.ManifestRecord(sealed, replace(of_one.proven, rank=rank)))
            (target.directory(step_id) / manifest_file(rank)).write_bytes(fact)
    figures = measured_run(copy).figures
    assert (figures["gpus"].value, figures["stall"].value) == (2, 1.0)
    assert "median of 5 x save" in figures["stall"].source


def test_what_auto_measured_fills_in_what_the_target_does_not_tell(ran: Job) -> None:
    """One restart is no figure of the target's, but auto decides on it; what the target tells stays the target's."""
    arena = arena_of(ran.target)
    if was_gone := not arena.exists:
        arena.create()
    inputs = {
        "restart_s": InputRecord(2.5, "measured", "median of 1 in this run"),
        "drain_s": InputRecord(77.0, "measured", "median of 3 in this run"),
        "ram_mtti_s": InputRecord(9.0, "measured", "1 seen"),
    }
    name = cadence_name(9, 0, PROPOSAL)
    arena.publish(name, records.CadenceRecord(9, 0, 0, 2, 1, "", "", 0.1, True, inputs))
    try:
        answer = ask("--from-run", ran.target_path, "--mtti", "3h")
        guess = replace(inputs["restart_s"], kind="guessed")
        arena.publish(
            cadence_name(10, 0, PROPOSAL), records.CadenceRecord(10, 0, 0, 2, 1, "", "", 0.1, True, {"restart_s": guess})
        )
        of_guess = measured_run(ran.target_path)
    finally:
        for each in (name, cadence_name(10, 0, PROPOSAL)):
            (arena.root / each).unlink(missing_ok=True)
        if was_gone:
            arena.wipe()
    restart = answer["inputs"]["restart.total_s"]
    assert (restart["value"], restart["kind"]) == (2.5, "measured")
    assert restart["source"] == f"{arena.root}: median of 1 in this run"
    assert answer["inputs"]["store.drain_s"]["source"].startswith("run ")
    assert not any("restart (1 usable" in text for text in answer["warnings"])
    assert "restart" not in of_guess.figures


def test_bad_input_says_what_is_missing_and_the_way_out(ran: Job, tmp_path: Path) -> None:
    """No target, a target without a run, a run without a step, damaged records."""

    def refusal(path: Path, kind: type[Exception] = TargetError) -> str:
        result = plan("--from-run", path, "--mtti", "3h")
        assert isinstance(result.exception, kind), result.output
        assert "--stall" in str(result.exception)
        return str(result.exception)

    assert "does not exist" in refusal(tmp_path / "none")
    (tmp_path / "file").write_bytes(b"")
    assert "file is a file, not the directory of a run" in refusal(tmp_path / "file")
    (tmp_path / "empty").mkdir()
    assert "has no run.json" in refusal(tmp_path / "empty")
    copy = tmp_path / "copy"
    shutil.copytree(ran.target_path, copy)
    claim, manifest = copy / "attempts" / "000002.claim", copy / "steps" / "0000000012-000002" / "rank-00000.json"
    claim.write_text(claim.read_text()[:-20])
    manifest.write_text(manifest.read_text().replace('"step":12', '"step":13'))
    answer = ask("--from-run", copy, "--step", "1s", "--restart", "1min")
    notes = "\n".join(answer["warnings"])
    assert answer["inputs"]["failures"]["kind"] == "default"
    assert "records of attempts cannot be read: attempts/000002.claim" in notes
    assert "unreadable, left out: steps/0000000012-000002/rank-00000.json" in notes
    assert "median of 3 x save" in answer["inputs"]["job.stall_s"]["source"]
    shutil.rmtree(copy / "steps")
    assert "no step stands on the target" in refusal(copy, ConfigError)
    (copy / "run.json").write_text("{")
    assert "run.json is not a whole hinan record" in refusal(copy)
    assert ran.target.manifest(StepId(2, 12), 0) is not None
