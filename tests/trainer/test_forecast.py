"""The image is foretold before the first step, and the forecast is held against the real one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from hinan.core.optimizer_state import KNOWN
from hinan.trainer.attempt.forecast import RING_CHUNKS, forecast, ring_bytes
from hinan.trainer.ports.pieces import CHUNK_BYTES
from tests.trainer.helpers import evacuate

ALIGNMENT = 4096
CASES: list[tuple[str, dict[str, Any]]] = [
    ("Adadelta", {}), ("Adafactor", {}), ("Adagrad", {}), ("Adam", {}), ("Adam", {"amsgrad": True}),
    ("Adam", {"fused": True}), ("AdamW", {}), ("AdamW", {"foreach": True}), ("Adamax", {}), ("ASGD", {}), ("NAdam", {}),
    ("RAdam", {}), ("RMSprop", {}), ("RMSprop", {"momentum": 0.9, "centered": True}), ("Rprop", {}), ("SGD", {}),
    ("SGD", {"momentum": 0.9}), ("Muon", {}), ("SparseAdam", {}),
]  # fmt: skip


def net(kind: str) -> nn.Module:
    if kind == "SparseAdam":
        return nn.Sequential(nn.Embedding(50, 33, sparse=True))
    bias = kind != "Muon"  # which takes matrices only
    frozen = nn.Linear(33, 33, bias=False).requires_grad_(False)
    return nn.Sequential(nn.Embedding(50, 33), nn.Linear(33, 65, bias=bias), nn.Linear(65, 33, bias=bias), frozen)


def made(kind: str, options: dict[str, Any]) -> tuple[nn.Module, torch.optim.Optimizer]:
    model = net(kind)
    return model, getattr(torch.optim, kind)(model.parameters(), lr=1e-3, **options)


def step(model: nn.Module, optim: torch.optim.Optimizer) -> None:
    model(torch.arange(50)).square().sum().backward()
    optim.step()
    optim.zero_grad()


def test_every_class_in_the_table_is_tested() -> None:
    """A class that the table claims to know is held against the real one below."""
    assert {kind for kind, _ in CASES} == KNOWN


@pytest.mark.parametrize(("kind", "options"), CASES, ids=lambda v: v if isinstance(v, str) else "-".join(v) or "plain")
def test_the_forecast_is_the_image_after_the_first_step(kind: str, options: dict[str, Any]) -> None:
    """Before a step the forecast has the state still to come, after it that state is there: both are the real image."""
    model, optim = made(kind, options)
    state = {"model": model, "optim": optim, "epoch": 1}
    before = forecast(state)
    step(model, optim)
    _, _, plan = evacuate(state)
    assert before.unknown == []
    assert before.image_bytes == pytest.approx(plan.image_bytes, abs=ALIGNMENT)
    after = forecast(state)
    assert (after.image_bytes, after.coming_bytes) == (pytest.approx(plan.image_bytes, abs=ALIGNMENT), 0)
    gradients = sum(p.nbytes for p in model.parameters() if p.requires_grad)
    assert after.host_bytes == gradients
    if kind != "Adagrad":  # which makes its state when it is constructed
        grown = sum(t.nbytes for entry in optim.state.values() for t in entry.values() if isinstance(t, torch.Tensor))
        assert (before.coming_bytes, before.host_bytes) == (grown, grown + gradients)


def test_other_dtypes_and_a_double_default() -> None:
    """State has the parameter's type; step counts have the default one."""
    torch.set_default_dtype(torch.float64)
    try:
        for dtype in (torch.bfloat16, torch.complex128):
            weight = nn.Parameter(torch.ones(300, dtype=dtype))
            optim = torch.optim.AdamW([weight])
            state = {"weight": weight, "optim": optim}
            before = forecast(state)
            weight.grad = torch.ones_like(weight)
            optim.step()
            assert before.image_bytes == evacuate(state)[2].image_bytes
            assert before.coming_bytes == 2 * weight.nbytes + 8
            assert forecast(state).host_bytes == 0  # the gradient is there already
    finally:
        torch.set_default_dtype(torch.float32)


def test_nothing_live_is_asked_or_changed() -> None:
    """Views, ties, arrays and lists are counted once; an object with a state_dict is not asked, but named; optimizer state
    that is there is not forecast again, and no entry appears in it."""

    class Loader:
        def state_dict(self) -> dict[str, Any]:
            raise AssertionError("it may draw random numbers")

        load_state_dict = state_dict

    model, optim = made("AdamW", {})
    state = {
        "tie": model[1].weight, "model": model, "optim": optim, "loader": Loader(), "a": np.zeros(1 << 18),
        "many": [torch.zeros(1 << 14), (torch.zeros(1 << 14),)], "sparse": torch.eye(3).to_sparse(),
    }  # fmt: skip
    found = forecast(state)
    assert len(optim.state) == 0
    assert len(found.unknown) == 1 and "loader (Loader)" in found.unknown[0]
    step(model, optim)
    del state["loader"], state["sparse"]
    assert found.image_bytes == pytest.approx(evacuate(state)[2].image_bytes, abs=ALIGNMENT)


@pytest.mark.parametrize(("base", "least"), [(torch.optim.Optimizer, 0), (torch.optim.AdamW, 2)])
def test_an_unknown_class_is_said_to_be_unknown(base: Any, least: int) -> None:
    """The forecast is "at least": nothing for a class of its own, its base's state for one made from AdamW."""

    class Mine(base):  # type: ignore[misc]
        pass

    weight = nn.Parameter(torch.ones(1000))
    optim = Mine([weight], **({"defaults": {}} if base is torch.optim.Optimizer else {}))
    found = forecast({"optim": optim})
    assert found.unknown == ["the state that optim (Mine) makes in its first step"]
    assert found.coming_bytes // 4000 == least


def test_a_mem_7_memory_for_copies_is_counted() -> None:
    """A-MEM-7: a device whose copies go through pinned chunks has them in the sum; where slots are pinned, none are."""
    assert [ring_bytes(torch.device(kind)) for kind in ("cpu", "cuda", "xpu")] == [0, 0, RING_CHUNKS * CHUNK_BYTES]


def test_a_lazy_module_that_has_not_run_is_foretold_at_least() -> None:
    model = nn.LazyLinear(2)
    found = forecast({"m": model, "o": torch.optim.Adam(model.parameters())})
    assert found.unknown == ["what m (LazyLinear) makes when it runs first"] and not found.coming_bytes
