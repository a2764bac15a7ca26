"""The verbs on a target of which records are damaged, and on RAM that is in use: nothing is hidden, nothing half done."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from hinan.core.ids import StepId, image_file, manifest_file
from hinan.formats import records as r
from hinan.formats.digest import box_records
from hinan.formats.image import Entry, lay_out
from hinan.host.node import node_name
from hinan.host.process import Process, this_process
from hinan.tiers.arena import PROVEN, SEALED, Arena
from hinan.tiers.publish import publish
from hinan.tiers.target import Target
from tests.cli.conftest import Verb

DEAD = Process(2**22 - 1, 1)
"""A process id that Linux gives to nobody, with a start that was long ago."""


@pytest.fixture
def run(tmp_path: Path) -> Target:
    """A run of one rank: attempt 1 has committed steps 3 and 6; attempt 2 went on from 6 and has committed 9."""
    target = Target(tmp_path / "run")
    target.open_or_create()
    _attempt(target, 1, None)
    for step in (3, 6):
        _store(target, StepId(1, step))
    _attempt(target, 2, StepId(1, 6))
    _store(target, StepId(2, 9))
    me = this_process()
    arena = tmp_path / "ram" / "run" / "node"
    target.publish_agent(r.AgentRecord(node_name(), target.run().run_id, me.pid, 0, str(target.root), str(arena)))
    return target


def _attempt(target: Target, number: int, parent: StepId | None) -> None:
    made = (number, target.run().run_id, node_name(), DEAD.pid, DEAD.start_ticks, 1, "then")
    target.publish_attempt(r.ClaimRecord(*made))
    went_on = (None, 0) if parent is None else (parent.attempt, parent.step)
    target.publish_attempt(r.ResumeRecord(number, *went_on, "then"))


def _store(target: Target, step_id: StepId) -> None:
    raw, header = lay_out([Entry("w", "F32", (1024,))], {})
    image = raw + bytes(header.image_bytes - len(raw))
    sealed = r.SealedRecord(
        *step_id, 0, 1, node_name(), len(image), r.fact_sum(raw), msgspec.Raw(b'{"state":{}}'), 0, "then", 0.1
    )
    proven = r.ProvenRecord(*step_id, 0, sealed.header_sum, 8 << 20, box_records(header, memoryview(image)), late=False)
    directory = target.make_directory(step_id)
    (directory / image_file(0)).write_bytes(image)
    publish(directory / manifest_file(0), r.encode(r.ManifestRecord(sealed, proven)), power_safe=False)
    target.publish_commit(step_id, 1)


def hold(target: Target, step_id: StepId, owner: Process) -> Arena:
    """This node's RAM, with a proven slot of that process."""
    arena = Arena(Path(target.agents()[0].arena))
    arena.create()
    slot, _ = arena.new_slot(r.OwnerRecord(owner.pid, owner.start_ticks, step_id.attempt, 0), 4096)
    arena.publish(slot + SEALED, r.SealedRecord(*step_id, 0, 1, "n", 4096, "ab", msgspec.Raw(b"{}"), 0, "then", 0.1))
    arena.publish(slot + PROVEN, r.ProvenRecord(*step_id, 0, "ab", 8 << 20, [], late=False))
    return arena


def damage(path: Path) -> None:
    """Flip a bit in the middle of a file."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.unlink()
    path.write_bytes(data)


def steps(target: Target) -> list[int]:
    return [s.step for s in target.step_ids()]


def test_rm_that_is_refused_for_the_ram_has_deleted_nothing(run: Target, verb: Verb) -> None:
    """A trainer still writes into the arena: also the step that was named beside it stays, and `--force` is no way out."""
    arena = hold(run, StepId(2, 9), this_process())
    for force in ((), ("--force",)):
        code, text = verb("rm", run.root, "--step", 3, "--arena", "--json", *force)
        assert code == 2
        assert "still writes into" in text and "nothing was deleted" in text
        assert steps(run) == [3, 6, 9] and len(arena.scan()) == 1


def test_rm_frees_no_ram_for_the_sake_of_an_orphan(run: Target, verb: Verb) -> None:
    """Step 7 of attempt 1 is in RAM only, and attempt 3 went on from it; what attempt 2 has committed is an orphan, and
    does not make it safe. Refused without `--force`, and nothing is deleted then."""
    _attempt(run, 3, StepId(1, 7))
    arena = hold(run, StepId(1, 7), DEAD)
    code, text = verb("rm", run.root, "--step", 3, "--arena", "--json")
    assert code == 2
    assert "which is not committed on the target" in text and "nothing was deleted" in text
    assert steps(run) == [3, 6, 9] and arena.exists
    code, answer = verb("rm", run.root, "--step", 3, "--arena", "--force", "--json")
    assert (code, answer["freed_arena"], steps(run)) == (0, str(arena.root), [6, 9])
    assert not arena.exists


def test_rm_names_what_was_deleted_before_the_file_system_refused(
    run: Target, verb: Verb, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second of two steps cannot be removed: the error names it, and the first, which is gone."""
    remove = Target.remove

    def refusing(target: Target, step_id: StepId) -> None:
        if step_id == StepId(1, 6):
            raise PermissionError(13, "Permission denied", "images")
        remove(target, step_id)

    monkeypatch.setattr(Target, "remove", refusing)
    code, text = verb("rm", run.root, "--step", 3, "--step", 6)
    assert code == 2
    assert "cannot delete step 6 (attempt 1): Permission denied" in text
    assert "deleted before it: step 3 (attempt 1)" in text
    assert steps(run) == [6, 9]


def test_a_damaged_resume_is_the_reason_of_the_steps_that_it_hides(run: Target, verb: Verb) -> None:
    """Attempt 2's record: `decide` and `ls` name the file and the steps that count again; nothing is called an orphan."""
    damage(run.root / "attempts" / "000002.resume")
    says = "put attempts/000002.resume back from a copy, and the steps of attempt 2 count again"
    code, answer = verb("decide", run.root, "--json")
    assert (code, answer["step"]) == (0, 6)
    assert says in next(c["reason"] for c in answer["candidates"] if c["step"] == 9)
    assert says in next(s["orphan"] for s in verb("ls", run.root, "--json")[1]["steps"] if s["step"] == 9)
    code, text = verb("rm", run.root, "--orphans")
    assert (code, steps(run)) == (2, [3, 6, 9])
    assert "attempts/000002.resume" in text


def test_a_damaged_first_resume_costs_nothing(run: Target, verb: Verb) -> None:
    """Attempt 1 had nothing to go on from, so its steps count as before; the file is among the problems."""
    damage(run.root / "attempts" / "000001.resume")
    (run.root / "attempts" / "000002.resume").unlink()
    _, answer = verb("decide", run.root, "--json")
    assert [(c["step"], c["ok"]) for c in answer["candidates"]] == [(9, False), (6, True), (3, True)]
    assert set(answer["problems"]) == {"attempts/000001.resume"}


@pytest.mark.parametrize(
    "name",
    ["attempts/000001.claim", "attempts/000002.resume", "attempts/000002.closed", "failures/0000000009-000002-ram.json"],
)
@pytest.mark.parametrize("asked", ["ls", "decide", "show"])
def test_every_unreadable_record_is_a_problem(run: Target, verb: Verb, asked: str, name: str) -> None:
    """Whatever record it is, in the JSON and in the text."""
    run.publish_attempt(r.ClosedRecord(2, 9, "then"))
    run.publish_failure(r.FailureRecord(2, 9, "ram", 3, "why"))
    damage(run.root / name)
    _, answer = verb(asked, run.root, "--json")
    assert set(answer["problems"]) == {name}
    assert f"unreadable: {name}: " in verb(asked, run.root)[1]


@pytest.mark.parametrize("asked", ["ls", "decide", "show"])
def test_an_unreadable_record_in_ram_is_a_problem(run: Target, verb: Verb, asked: str) -> None:
    """A damaged seal hides a copy in RAM."""
    arena = hold(run, StepId(2, 10), DEAD)
    (seal,) = arena.root.glob("*.sealed")
    damage(seal)
    assert set(verb(asked, run.root, "--json")[1]["problems"]) == {str(seal)}


def test_show_says_that_a_newer_step_is_unreadable(run: Target, verb: Verb) -> None:
    """The newest step's manifest is damaged: an older one is shown, and why not the newer; asked for, it is an error that
    names the file."""
    name = "steps/0000000009-000002/rank-00000.json"
    damage(run.root / name)
    _, answer = verb("show", run.root, "--json")
    assert (answer["step"], answer["committed"], answer["flaw"], set(answer["problems"])) == (6, True, None, {name})
    assert f"unreadable: {name}: " in verb("show", run.root)[1].splitlines()[1]
    code, text = verb("show", run.root, "--step", 9)
    assert code == 2
    assert name in text
    listed = verb("ls", run.root, "--json")[1]["steps"][-1]
    assert (listed["step"], listed["committed"], listed["image_bytes"]) == (9, True, None)


def test_a_step_with_an_unreadable_commit_record_is_shown_as_such(run: Target, verb: Verb) -> None:
    """Whether it is committed is unknown, and a restart refuses it: `show` and `ls` say so."""
    damage(run.directory(StepId(2, 9)) / "COMMIT")
    _, answer = verb("show", run.root, "--json")
    assert (answer["step"], answer["committed"]) == (9, None)
    assert "COMMIT" in answer["flaw"]
    text = verb("show", run.root)[1]
    assert "whether it is committed is unknown" in text and "a restart would refuse it: " in text
    listed = verb("ls", run.root, "--json")[1]["steps"][-1]
    assert (listed["step"], listed["committed"], listed["world_size"]) == (9, None, 1)
    assert "unknown" in verb("ls", run.root)[1]


def test_show_says_what_else_keeps_a_restart_from_a_step(run: Target, verb: Verb) -> None:
    """An orphan, a step that is being deleted, one that is not committed."""
    _attempt(run, 3, StepId(1, 3))
    run.bury(StepId(1, 6), "test")
    (run.directory(StepId(1, 3)) / "COMMIT").unlink()
    assert verb("show", run.root, "--step", 9, "--json")[1]["orphan"] == "orphan: attempt 2 is not on the lineage"
    assert verb("show", run.root, "--step", 6, "--json")[1]["being_deleted"] is True
    assert verb("show", run.root, "--step", 3, "--json")[1]["committed"] is False
    for step, says in ((9, "orphan: "), (6, "it is being deleted"), (3, "not committed on the target")):
        assert says in verb("show", run.root, "--step", step)[1]
