"""What single figures compare: hooks there and not, peaks step by step, a restore into a loop that was just started."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import pytest
import torch
from bench.child import Settings
from bench.figures import idle, memory, restoring, tiny
from bench.row import Row
from bench.state import Training
from torch.optim import optimizer as optimizers
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

SETTINGS = Settings(100_000, 2, "", "")


def rows(module: Any, found: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> dict[str, Row]:
    monkeypatch.setattr(module, "call", lambda *_, **__: found)
    return {row.goal.figure: row for row in module.rows(SETTINGS)}


def test_hooks_cost_what_a_step_takes_above_its_neighbours_without_them(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine that slows down adds nothing; and evac.step() is a figure of its own, not the hooks'."""
    found = {"step_us": [7.0] * 6, "with_us": [41.0 + i for i in range(6)], "without_us": [0.5 + i for i in range(7)]}
    measured = rows(idle, found | {"waits": 0}, monkeypatch)
    assert {name: row.amount for name, row in measured.items()} == {
        "idle_step": 7.0, "idle_hooks": 40.0, "idle_step_waits": 0.0,
    }  # fmt: skip


def test_a_step_without_hooks_has_none_and_the_next_one_has_them_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """On both sides of the update, in their order; where nobody listens there is nothing to compare, which is said."""
    for hooks in ("_global_optimizer_pre_hooks", "_global_optimizer_post_hooks"):
        monkeypatch.setattr(optimizers, hooks, OrderedDict())  # other tests of this process may listen, too
    seen: list[str] = []
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))])
    handles = [
        register_optimizer_step_pre_hook(lambda *_: seen.append("before")),
        register_optimizer_step_pre_hook(lambda *_: seen.append("too")),
        register_optimizer_step_post_hook(lambda *_: seen.append("behind")),
    ]
    try:
        with idle.without_hooks():
            optimizer.step()
        assert seen == []
        optimizer.step()
        assert seen == ["before", "too", "behind"]
    finally:
        for handle in handles:
            handle.remove()
    with pytest.raises(RuntimeError, match="listens to no optimizer"), idle.without_hooks():
        pass


def test_memory_is_taken_against_a_usual_step_and_not_against_the_largest(monkeypatch: pytest.MonkeyPatch) -> None:
    """One step of the control that happens to need 30 MiB more hides nothing of hinan's 2 MiB."""
    found = {"control_mib": [10.0, 40.0, 10.0], "trainer_mib": [12.0] * 6, "agent_mib": [30.0] * 6}
    assert rows(memory, found, monkeypatch)["trainer_memory"].amount == 2.0


def test_memory_has_no_control_before_the_moments_exist(monkeypatch: pytest.MonkeyPatch) -> None:
    """Making them in the control would hide as much of hinan's memory: it is refused."""
    monkeypatch.setattr("bench.state.Training", lambda size: Training(size, stepped=False))
    with pytest.raises(RuntimeError, match="moments must exist"):
        memory.run(SETTINGS)


def test_a_restarted_loop_has_neither_moments_nor_gradients(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A restore is timed into a model and an optimizer that have just been made; another one is refused."""
    started = Training(SETTINGS.state_bytes, stepped=False)
    assert not started.optimizer.state
    assert all(p.grad is None for p in started.model.parameters())
    given = [started, Training(SETTINGS.state_bytes)]
    monkeypatch.setattr(restoring, "_training", lambda _, *, stepped: given.pop(stepped))
    monkeypatch.setattr(restoring, "_restore", lambda training, *_: 1.0 if training is started else 0.0)
    assert restoring.once(SETTINGS, str(tmp_path), str(tmp_path), "ram")["seconds"] == 1.0
    with pytest.raises(RuntimeError, match="no moments yet"):
        restoring.once(SETTINGS, str(tmp_path), str(tmp_path), "ram")


def test_each_restore_of_a_restarted_loop_has_a_process_of_its_own(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """One saves; as many restore as there are samples, from RAM and from the disk. Live tensors share one."""
    calls: list[tuple[str, str]] = []

    def call(function: str, settings: Settings, **place: str) -> Any:
        calls.append((function.rpartition(":")[2], place.get("source", "")))
        found = {"seconds": float(len(calls)), "floor_s": 1.0}
        return [found] * 2 if calls == [("again_and_again", "")] else found

    monkeypatch.setattr(restoring, "call", call)
    found = restoring.rows(Settings(1, 2, str(tmp_path), str(tmp_path)))
    assert calls[1:] == [(what, where) for where in ("ram", "target") for what in ("save", "once", "once")]
    assert [(row.goal.figure, row.amount) for row in found] == [
        ("restore_ram", 1.0), ("restore_ram_fresh", 3.5), ("restore_disk", 6.5),
    ]  # fmt: skip


def test_the_first_evacuation_of_many_tensors_has_the_walk_in_it(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first evac.step(), at which nothing is due, walks a thousand tensors here; ready and first are told apart."""
    monkeypatch.setattr(tiny, "TENSORS", 1000)
    monkeypatch.setattr(tiny, "first_costs", lambda paid_s, usual_s: (paid_s, usual_s))
    found: Any = tiny.run(Settings(1, 8, str(tmp_path), "/dev/shm"))
    paid_s, usual_s = found["ready_s"], found["first_s"]
    assert len(paid_s) == 3
    assert paid_s[0][1] > 3 * usual_s[1] > 0  # it is above the usual by far
    assert len(found["later_ms"]) == 2
