"""A restore that fails or is interrupted on the way: what it says, what it leaves, and that it can be called again."""

from __future__ import annotations

import errno
import logging
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from hinan.core.errors import BudgetError, ConfigError, FormatError, StructureError
from hinan.core.ids import StepId
from hinan.formats.records import ResumeRecord
from hinan.tiers.attempts import Attempts
from hinan.trainer import evacuator
from hinan.trainer.attempt.pace import Pace
from hinan.trainer.attempt.past import Past
from hinan.trainer.restoring import saved as saved_module
from hinan.trainer.restoring.restore import Restore, Resumed
from tests.trainer.helpers import evacuate, saved_tensors


class Alone:
    """One rank, and what it has said."""

    rank = 0

    def __init__(self) -> None:
        self.said: list[object] = []

    def agree(self, failure: Exception | None, what: str) -> None:
        self.said.append(failure)
        if failure is not None:
            raise failure

    def all(self, value: object, what: str) -> list[object]:
        return [value]


@pytest.fixture
def restore(tmp_path: Path) -> Any:
    (tmp_path / "attempts").mkdir()
    made: Any = Restore(SimpleNamespace(arena=tmp_path), Attempts(tmp_path), Alone(), 3)  # type: ignore[arg-type]
    return made


def test_an_interrupted_restore_finds_its_own_record(restore: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    restore._publish_resume(StepId(2, 8), "ram")
    standing = (tmp_path / "attempts" / "000003.resume").read_bytes()
    monkeypatch.setattr("hinan.trainer.restoring.restore.now_text", lambda: "2030-01-01T00:00:00Z")
    restore._publish_resume(StepId(2, 8), "target")
    assert (tmp_path / "attempts" / "000003.resume").read_bytes() == standing
    with pytest.raises(ConfigError, match="Make a new Evacuator"):
        restore._publish_resume(StepId(2, 6), "ram")
    with pytest.raises(ConfigError):
        restore._publish_resume(None, "")
    record = Attempts(tmp_path).resumes()[3]
    assert isinstance(record, ResumeRecord) and record.parent == StepId(2, 8)


def test_a_fresh_start_of_a_lazy_module_is_refused_until_it_has_run(restore: Any, tmp_path: Path) -> None:
    """On all ranks, before anything is written down; then the same restore() goes through."""
    restore._decided = lambda fresh: []
    state = {"m": torch.nn.LazyLinear(2)}
    with pytest.raises(StructureError, match=r"^m\.weight .* run the module once before restore\(\)"):
        restore.run(state, fresh=False)
    assert isinstance(restore._ranks.said[-1], StructureError) and not Attempts(tmp_path).resumes()
    state["m"](torch.ones(1, 3))
    assert restore.run(state, fresh=False).step == 0 and Attempts(tmp_path).resumes()[3].parent is None


def test_a_state_that_is_written_in_part_is_called_so(restore: Any, caplog: pytest.LogCaptureFixture) -> None:
    def interrupted() -> None:
        raise KeyboardInterrupt

    with caplog.at_level(logging.ERROR, "hinan"), pytest.raises(KeyboardInterrupt):
        restore._install([lambda: None, interrupted])
    assert "KeyboardInterrupt: the live state is written in part" in caplog.text


@pytest.mark.parametrize("failure", [RuntimeError("in a state_dict"), BudgetError("no room"), MemoryError()])
def test_whatever_fails_before_the_vote_is_voted_on(restore: Any, failure: Exception) -> None:
    """The other ranks would wait for this one until their time is up."""

    def work() -> None:
        raise failure

    assert restore._try(work) == (None, failure)
    with pytest.raises(type(failure)):
        restore._all_ok(None, failure, StepId(2, 8), "ram")
    assert restore._ranks.said == [failure]


@pytest.mark.parametrize("failure", [OSError(errno.ENOMEM, "no memory"), OSError(errno.EIO, "a sector"), FormatError("x")])
def test_only_bytes_that_were_not_read_right_are_a_flaw(restore: Any, failure: Exception) -> None:
    """The same errors, once they are read, come from the program that they are compared with; no memory says nothing."""

    def fails(*arguments: Any) -> Any:
        raise failure

    restore._read = fails
    is_flaw = not (isinstance(failure, OSError) and failure.errno == errno.ENOMEM)
    assert restore._prepared({}, StepId(2, 8), {}, None) == ([], *((failure, None) if is_flaw else (None, failure)))
    restore._read, restore._matched = lambda *_: (None, None), fails
    assert restore._prepared({}, StepId(2, 8), {}, None) == ([], None, failure)


def test_a_copy_without_room_names_its_tensor(monkeypatch: pytest.MonkeyPatch) -> None:
    image, _, _ = evacuate({"big": torch.ones(8)})

    def refused(view: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory")

    monkeypatch.setattr(saved_module, "new_copy", refused)
    with pytest.raises(BudgetError, match=r"copy of big \(32 B\).*vm\.max_map_count"):
        saved_tensors(image)["big"].copy()


@pytest.fixture
def evac(monkeypatch: pytest.MonkeyPatch) -> Any:
    """An Evacuator as far as `restore()` needs it."""
    resumed = Resumed(8, 2, "ram", "the newest")
    monkeypatch.setattr(evacuator, "Restore", lambda *_: SimpleNamespace(run=lambda state, fresh: resumed))
    monkeypatch.setattr(evacuator, "agree_on_budget", lambda *_: None)
    made = object.__new__(evacuator.Evacuator)
    names = ("_place", "_target", "_ranks", "_identity", "_arena")
    vars(made).update({name: SimpleNamespace(attempt=3, rank=0) for name in names})
    vars(made).update(
        _state={}, _fresh=False, _pace=Pace(Past(), nodes=1), _step=0, _ended=False, _closed=True, resumed=None
    )
    return made


def test_a_restore_that_was_refused_for_its_budget_can_be_called_again(evac: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is none before there is room: no step goes on from it."""

    def refused(*_: object) -> None:
        raise BudgetError("no room")

    with monkeypatch.context() as patched:
        patched.setattr(evacuator, "agree_on_budget", refused)
        for _ in range(2):
            with pytest.raises(BudgetError):
                evac.restore()
    assert evac.finished_steps == 0
    with pytest.raises(ConfigError, match="restore"):
        evac.step()
    assert evac.restore() == 8
    assert evac.finished_steps == 8
    with pytest.raises(ConfigError, match="works once"):
        evac.restore()


def test_an_interrupt_leaves_a_restore_undone_or_done(evac: Any) -> None:
    """Raised at each line: restored state is never numbered from 0, and what is not done can be called again."""

    def raised_at(line: int) -> bool:
        evac.resumed, evac._step = None, 0

        def trace(frame: Any, event: str, argument: object) -> Any:
            nonlocal line
            line -= event == "line"
            if not line:
                raise KeyboardInterrupt
            return trace

        sys.settrace(trace)
        try:
            evac.restore()
        except KeyboardInterrupt:
            return True
        finally:
            sys.settrace(None)
            assert (evac.resumed is not None) == (evac.finished_steps == 8)
        return False

    line = 1
    while raised_at(line):
        if evac.resumed is None:
            assert evac.restore() == 8
        line += 1
    assert line > 8
