"""GradScaler: scale and growth tracker are exact, read without `.item()`, and there before the first `scale()` too."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch

from hinan.core.errors import StructureError
from tests.exact.twins import Step, assert_resumes, evacuated, restored
from tests.trainer.helpers import evacuate, install


def scaled() -> tuple[dict[str, Any], Step]:
    """A small model under a scaler that grows each second step and backs off once."""
    model = torch.nn.Linear(4, 2)
    optim = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    scaler = torch.amp.GradScaler("cpu", init_scale=256.0, growth_interval=2)
    state = {"model": model, "optim": optim, "scaler": scaler, "step": {"n": 0}}

    def step() -> torch.Tensor:
        state["step"]["n"] += 1
        factor = float("inf") if state["step"]["n"] == 4 else 1.0
        loss = model(torch.randn(3, 4)).square().mean()
        scaler.scale(loss * factor).backward()
        scaler.step(optim)
        scaler.update()
        optim.zero_grad()
        return loss.detach()

    return state, step


@pytest.mark.parametrize("at", [0, 1, 3])
def test_a_scaler_goes_on_where_it_was(at: int) -> None:
    """A-EXACT-1: scale and growth tracker are equal after the restore, also before the first scale(); so is the run."""
    straight, resumed = assert_resumes(scaled, steps=6, at=at)
    assert straight["scaler"].state_dict() == resumed["scaler"].state_dict()
    assert straight["scaler"].get_scale() != 256.0


def test_a_restore_reaches_a_scaler_that_was_used() -> None:
    """A-EXACT-1: scale 65,536 does not survive where 256 was saved, whether the tensors exist on either side or not."""
    for saved_steps in (0, 3):
        for live_steps in (0, 1):
            (saved, step), (live, _) = scaled(), scaled()
            live["scaler"] = torch.amp.GradScaler("cpu")
            for _ in range(saved_steps):
                step()
            if live_steps:
                live["scaler"].scale(torch.ones(1))
            restored(*evacuated(saved), live)
            assert live["scaler"].state_dict() == saved["scaler"].state_dict()
            live["scaler"].scale(torch.ones(1))
            assert live["scaler"]._scale.dtype == torch.float32
            assert live["scaler"]._growth_tracker.dtype == torch.int32
            assert live["scaler"].state_dict() == saved["scaler"].state_dict()


def test_capture_reads_no_number_from_a_device(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hidden `.item()` would wait for the device: capture takes the tensors themselves."""
    state, step = scaled()
    step()
    monkeypatch.setattr(torch.Tensor, "item", lambda self: pytest.fail("capture called .item()"))
    monkeypatch.setattr(torch.Tensor, "__float__", lambda self: pytest.fail("capture called float()"))
    _, small, plan = evacuate(state)
    assert small["state"]["scaler"]["$scaler"]["scale"] == {"$tensor": ["scaler.scale", "cpu"]}
    assert {"scaler.scale", "scaler._growth_tracker"} <= {entry.name for entry in plan.header.entries}


def test_the_older_form_of_a_scaler_loads() -> None:
    """What `state_dict()` returned is how a scaler was stored before it was stored as tensors."""
    (saved, step), (live, _) = scaled(), scaled()
    for _ in range(4):
        step()
    image, small, _ = evacuate(saved)
    small["state"]["scaler"] = {"$stateful": saved["scaler"].state_dict()}
    install(image, small, live)
    assert live["scaler"].state_dict() == saved["scaler"].state_dict()


def test_a_disabled_scaler(caplog: pytest.LogCaptureFixture) -> None:
    """Disabled into disabled is nothing; into an enabled one it is refused before anything is written; else it is said."""
    off, on = torch.amp.GradScaler("cpu", enabled=False), torch.amp.GradScaler("cpu")
    restored(*evacuated({"s": off}), {"s": torch.amp.GradScaler("cpu", enabled=False)})
    with pytest.raises(StructureError, match="s was saved from a disabled GradScaler"):
        restored(*evacuated({"s": off}), {"s": on})
    with caplog.at_level(logging.WARNING, "hinan"):
        restored(*evacuated({"s": on}), {"s": off})
    assert "its scale is not used" in caplog.text
    with pytest.raises(StructureError, match="saved from a scaler"):
        restored(*evacuated({"s": on}), {"s": {}})


def test_a_scaler_that_says_its_state_itself_is_taken_at_its_word() -> None:
    """A subclass with a state_dict of its own keeps what that returns."""

    class Own(torch.amp.GradScaler):
        note = 0

        def state_dict(self) -> dict[str, Any]:
            return super().state_dict() | {"note": self.note}

        def load_state_dict(self, state_dict: dict[str, Any]) -> None:
            self.note = state_dict["note"]
            super().load_state_dict(state_dict)

    saved, live = Own("cpu", init_scale=8.0), Own("cpu")
    saved.note = 5
    restored(*evacuated({"s": saved}), {"s": live})
    assert (live.note, live.get_scale()) == (5, 8.0)
