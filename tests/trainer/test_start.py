"""Starting an attempt beside others."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hinan.core.errors import TargetError
from hinan.formats.records import ClaimRecord
from hinan.host.node import node_name
from hinan.host.process import process
from hinan.tiers.arena import Arena
from hinan.tiers.target import Target
from hinan.trainer.attempt import start


def test_the_loser_of_a_claim_looks_who_won(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two jobs start on one target at the same moment: the second is refused, and does not fence the first."""
    target = Target(tmp_path / "target")
    run_id = target.open_or_create().run_id
    winner = process(os.getppid())
    publish = Target.publish_attempt

    def beaten(self: Target, record: ClaimRecord) -> None:
        monkeypatch.setattr(Target, "publish_attempt", publish)
        publish(self, ClaimRecord(1, run_id, node_name(), winner.pid, winner.start_ticks, 1, ""))
        publish(self, record)

    monkeypatch.setattr(Target, "publish_attempt", beaten)
    monkeypatch.setattr(start, "DYING_S", 0.05)
    with pytest.raises(TargetError, match=f"attempt 1 .* still running .pid {winner.pid}"):
        start._claim(target, run_id, 1, Arena(tmp_path / "no-arena"), take_over=False)
    assert target.history().claims == {1}
