"""A restore that fails or is interrupted on the way: what it says, what it leaves, and that it can be called again."""

from __future__ import annotations

import errno
import logging
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from hinan.core.errors import BudgetError, ConfigError
from hinan.core.ids import StepId
from hinan.formats.records import ResumeRecord
from hinan.tiers.attempts import Attempts
from hinan.trainer.restoring import saved as saved_module
from hinan.trainer.restoring.restore import Restore
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
        restore._all_ok(failure, StepId(2, 8), "ram")
    assert restore._ranks.said == [failure]


def test_no_memory_says_nothing_against_an_image(restore: Any) -> None:
    with pytest.raises(OSError, match="no memory"):
        restore._all_ok(OSError(errno.ENOMEM, "no memory"), StepId(2, 8), "ram")


def test_a_copy_without_room_names_its_tensor(monkeypatch: pytest.MonkeyPatch) -> None:
    image, _, _ = evacuate({"big": torch.ones(8)})

    def refused(view: torch.Tensor) -> torch.Tensor:
        raise RuntimeError("DefaultCPUAllocator: can't allocate memory")

    monkeypatch.setattr(saved_module, "new_copy", refused)
    with pytest.raises(BudgetError, match=r"copy of big \(32 B\).*vm\.max_map_count"):
        saved_tensors(image)["big"].copy()
