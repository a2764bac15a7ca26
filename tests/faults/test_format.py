"""What a checkpoint is made of: no code, few messages, and names that a store may show late."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from dataclasses import replace

import pytest

from hinan.core.ids import StepId
from hinan.formats import records
from tests.faults.test_peers import told
from tests.harness.job import Job, MakeJob, until

READER = """
import json, sys
from safetensors import safe_open
image, manifest = sys.argv[1:]
with safe_open(image, "numpy") as tensors:
    w = tensors.get_tensor("w").tolist()
small = json.load(open(manifest))["body"]["sealed"]["small"]["state"]
known = sorted(name for name in sys.modules if name.split(".")[0] in ("hinan", "tests", "torch"))
print(json.dumps({"w": w, "book": small["book"], "known": known}))
"""


def test_a_format_3_bookkeeping_is_kept_without_code(make_job: MakeJob) -> None:
    """A-FORMAT-3: a state with NumPy's generator, NumPy scalars, a dtype, a Size, an OrderedDict, an enum and None comes
    back bit for bit; an interpreter without hinan and the user's modules reads all of it, and no file is a pickle."""
    job = make_job()
    for seed, step in ((1, 0), (2, 1)):
        job.start_agent()
        (child,) = job.start(program="records:keep_records", seed=seed)
        child.ok()
        (found,) = told(job)
        assert (found["step"], found["error"]) == (step, None)
        assert found["different"] == []
        until(lambda: job.agent is None, what="the agent's end after close")
    directory = job.target.directory(StepId(1, 1))
    files = [str(directory / name) for name in ("rank-00000.safetensors", "rank-00000.json")]
    command = [sys.executable, "-I", "-c", READER, *files]
    read = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    assert read["known"] == [] and read["w"] == [0.0] * 4
    assert read["book"]["phase"] == {"$enum": ["Phase", "TRAIN", "tests.programs.records"]}
    assert (read["book"]["dtype"], read["book"]["nothing"]) == ({"$dtype": "float32"}, None)
    pickled = [
        p for p in job.target_path.rglob("*") if p.is_file() and p.read_bytes()[:2] in (b"\x80\x02", b"\x80\x04", b"PK")
    ]
    assert pickled == []


def test_a_format_4_an_evacuation_gathers_nothing(make_job: MakeJob) -> None:
    """A-FORMAT-4: 4 ranks with 2,500 one-element tensors each: no evacuation, the first neither, takes part in a
    collective, each asks its agent for two things at most, and its bytes are those of its own rank's tensors;
    bytes and seconds are in the log."""
    job = make_job(ranks=4)
    job.start_agent()
    for child in job.start(program="records:many_ranks", count=2500, steps=4):
        child.ok()
    for found, child in zip(told(job), job.children, strict=True):
        first, *later = found["saves"]
        assert found["started"] > 0  # the counter counts: the start has gathered
        assert [save["collectives"] for save in found["saves"]] == [0] * 4
        assert all(save["asked"] <= 2 for save in found["saves"])
        assert {save["bytes"] for save in found["saves"]} == {first["bytes"]}
        assert first["bytes"] < 2500 * 200
        assert all(save["stall_s"] < 5.0 for save in later)
        assert len(re.findall(rf"held step=\d .* bytes={first['bytes']} stall_s=\d", child.output)) == 4


def from_another_host(job: Job) -> None:
    """Let the run's first attempt have been another host's, with its RAM."""
    until(lambda: job.agent is None, what="the agent's end after close")
    path = job.target_path / "attempts" / "000001.claim"
    claim = records.decode(path.read_bytes(), records.ClaimRecord, str(path))
    path.write_bytes(records.encode(replace(claim, node="another")))


@pytest.mark.parametrize("late_rank", [0, 1])
def test_a_format_5_what_a_store_shows_late_is_waited_for(late_rank: int, make_job: MakeJob) -> None:
    """A-FORMAT-5: a run goes on on another host, where rank 0 (which decides) or rank 1 (which reads) sees the steps only
    after a while: both wait and take the committed step; neither starts at 0, and the step is not held to be damaged."""
    job = make_job(ranks=2)
    job.start_agent()
    arguments = {"program": "peers:sees_late", "names": ["steps"], "late_s": 0.6}
    for child in job.start(**arguments, late_ranks=[]):
        child.ok(30)
    from_another_host(job)
    job.start_agent()
    for child in job.start(**arguments, late_ranks=[late_rank]):
        child.ok(30)
    for found in told(job):
        assert (found["error"], found["step"], found["source"], found["w"]) == (None, 1, "target", [1.0] * 4)
    assert job.target.failures() == set()
    assert ("decide waits for" in job.children[-2].output) == (late_rank == 0)


def test_a_format_5_the_wait_has_an_end(make_job: MakeJob) -> None:
    """A-FORMAT-5: another host's attempt has saved nothing: a restart looks for the visibility time, and then starts."""
    job = make_job()
    job.target.open_or_create()
    claim = records.ClaimRecord(1, job.target.run().run_id, "another", 1, 0, 1, "")
    job.target.publish_attempt(claim)
    job.start_agent()
    (child,) = job.start(program="peers:sees_late", names=[], late_s=0.0, late_ranks=[], visibility_s=0.5)
    child.ok(30)
    (found,) = told(job)
    assert (found["error"], found["step"]) == (None, 0)
    assert found["s"] > 0.5 and "decide waits for" in child.output
