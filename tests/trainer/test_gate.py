"""The gate itself: which optimizers are held back, and when overlap is earned, kept and lost."""

from __future__ import annotations

import copy
import gc
import os
import weakref

import pytest
import torch
from torch import nn
from torch.optim import optimizer as optimizers

from hinan.trainer.evacuating import gate as gates
from hinan.trainer.evacuating.deferral import SHORTEST_PATIENCE_STEPS
from hinan.trainer.evacuating.gate import Gate
from hinan.trainer.evacuating.overlap import NOTICE_AFTER, Overlap, gates_of
from hinan.trainer.ports.hostport import CpuPort
from hinan.trainer.state.capture import BY_HAND, Capture
from hinan.trainer.state.layout import make_plan


def trained(gate: Gate, optimizer: torch.optim.Optimizer) -> None:
    for group in optimizer.param_groups:
        for p in group["params"]:
            p.grad = torch.ones_like(p)
    optimizer.step()
    gate.at_boundary()


@pytest.fixture
def model() -> nn.Module:
    return nn.Linear(4, 4)


def test_two_iterations_earn_and_a_missing_one_does_not_count(model: nn.Module) -> None:
    """D2: seen twice in a row, watched once; an iteration without the gate in which nothing moved is neutral."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    gate = Gate()
    gate.learn(Capture({"m": model, "o": optimizer}).take())
    trained(gate, optimizer)
    gate.learn(Capture({"m": model, "o": optimizer}).take())
    gate.probe()
    assert not gate.earned()
    trained(gate, optimizer)
    assert gate.earned() == {"o"}
    gate.at_boundary()
    assert not gate.earned()  # not passed in the iteration that has just ended
    trained(gate, optimizer)
    assert gate.earned() == {"o"}
    with torch.no_grad():
        model.weight.add_(1)  # by whom?
    gate.at_boundary()
    trained(gate, optimizer)
    assert not gate.earned()
    trained(gate, optimizer)
    assert gate.earned() == {"o"}
    gate.close()


def test_only_optimizers_with_captured_parameters_are_held_back(model: nn.Module) -> None:
    other = nn.Linear(4, 4)
    mine, foreign = torch.optim.SGD(model.parameters(), lr=0.1), torch.optim.SGD(other.parameters(), lr=0.1)
    again = torch.optim.SGD(model.parameters(), lr=0.1)  # not captured itself, but its parameters are
    gate = Gate()
    gate.learn(Capture({"m": model, "o": mine}).take())
    held: list[tuple[str, ...]] = []
    gate.flight = type("Flight", (), {"hold": lambda self, names: held.append(tuple(names)), "finish": lambda self: None})()
    trained(gate, foreign)
    assert held == []
    trained(gate, mine)
    trained(gate, again)
    assert held == [("o",), ("o",)]
    gate.close()
    trained(gate, mine)
    assert len(held) == 2


def test_steps_recorded_into_a_graph_never_earn(model: nn.Module, monkeypatch: pytest.MonkeyPatch) -> None:
    """A replay fires no hook. Faked at the one question that is asked of the device; no device is here."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    gate = Gate()
    gate.learn(Capture({"m": model, "o": optimizer}).take())
    monkeypatch.setattr(gates, "_is_capturing", lambda: True)
    trained(gate, optimizer)
    monkeypatch.undo()
    gate.learn(Capture({"m": model, "o": optimizer}).take())
    gate.probe()
    for _ in range(3):
        trained(gate, optimizer)
    assert not gate.earned()
    assert "replayed from a graph" in gate.why_not("o")
    gate.close()


def test_parameters_of_no_optimizer_wait_for_the_loop(model: nn.Module) -> None:
    gate = Gate()
    captured = Capture({"m": model}).take()
    assert captured.gates == {"m.weight": (BY_HAND,), "m.bias": (BY_HAND,)}
    gate.learn(captured)
    assert "Put their optimizer into the state, or call evac.gate()" in gate.why_not(BY_HAND)
    for _ in range(3):
        gate.passed_by_hand()
        gate.at_boundary()
        gate.learn(captured)
        gate.probe()
    assert gate.earned() == {BY_HAND}


@pytest.mark.parametrize("weight", [torch.nn.Parameter(torch.ones(2)), torch.ones(2, requires_grad=True)])
def test_a_parameter_that_is_in_no_module_waits_for_its_optimizer_too(weight: torch.Tensor) -> None:
    captured = Capture({"w": weight, "o": torch.optim.SGD([weight], momentum=0.9), "loss": weight.sum()}).take()
    assert captured.gates == {"w": ("o",)}


def test_a_forgotten_gate_is_let_go(model: nn.Module) -> None:
    """Hooks are global; they must not keep an evacuator and its state alive."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    gate = Gate()
    gate.learn(Capture({"m": model, "o": optimizer}).take())
    weak = weakref.ref(gate)
    listening = len(optimizers._global_optimizer_pre_hooks), len(optimizers._global_optimizer_post_hooks)
    del gate
    gc.collect()
    assert weak() is None
    left = len(optimizers._global_optimizer_pre_hooks), len(optimizers._global_optimizer_post_hooks)
    assert left == (listening[0] - 1, listening[1] - 1)  # nor is each step of the process to ask in vain
    optimizer.zero_grad()
    optimizer.step()


def test_the_first_step_of_all_is_seen(model: nn.Module) -> None:
    """Optimizers are found in the state itself, before anything was captured."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    gate = Gate({"m": model, "nested": {"all": [optimizer]}})
    model.weight.grad = torch.ones_like(model.weight)
    assert [p.optimizer for p in gate.pending_gradients()] == ["nested.all.[0]"]
    assert not Gate({"nested": {"all": [optimizer]}}).pending_gradients()  # they were there before
    optimizer.step()
    gate.at_boundary()
    assert not gate.pending_gradients()
    model.weight.grad.add_(1)  # the next backward has begun
    assert [p.optimizer for p in gate.pending_gradients()] == ["nested.all.[0]"]
    assert Capture({"m": model, "nested": {"all": [optimizer]}}).take().optimizers.keys() == {"nested.all.[0]"}
    gate.close()


def test_a_forked_child_waits_for_nobody(model: nn.Module) -> None:
    """Its parent's copying thread is not there; an optimizer that steps in the child must not wait for it."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    gate = Gate({"m": model, "o": optimizer})

    def hold(*_: object) -> None:
        raise AssertionError("held back")

    gate.flight = type("Flight", (), {"hold": hold, "finish": hold})()
    pid = os.fork()
    if pid == 0:
        status = 1
        try:
            optimizer.step()
            status = 0
        finally:
            os._exit(status)
    assert os.waitpid(pid, 0)[1] == 0
    gate.flight = None
    gate.close()


def test_shared_bytes_are_gated_only_if_all_of_them_are(model: nn.Module) -> None:
    """A plain view of a weight may be written at any time, and with it the weight; two optimizers must both have earned."""
    first, second = torch.optim.SGD(model.parameters(), lr=0.1), torch.optim.SGD([model.weight], lr=0.1)
    captured = Capture({"m": model, "one": first, "two": second}).take()
    parts = {part.entry: part for part in make_plan(captured.tensors).parts}
    assert gates_of(parts["m.weight"], captured) == {"one", "two"}
    assert gates_of(parts["m.bias"], captured) == {"one"}
    captured = Capture({"m": model, "one": first, "row": model.weight.detach()[0]}).take()
    parts = {part.entry: part for part in make_plan(captured.tensors).parts}
    assert set(parts["m.weight"].members) == {"m.weight", "row"}
    assert gates_of(parts["m.weight"], captured) == frozenset()


def test_optimizers_of_any_shape_may_step(model: nn.Module) -> None:
    """A hook of ours never raises: not for no groups, empty groups, or groups without parameters."""
    gate = Gate({"m": model, "o": torch.optim.SGD(model.parameters(), lr=0.1)})
    for groups in ([], [{}], [{"params": []}]):
        odd = torch.optim.SGD([torch.zeros(1)], lr=0.1)
        odd.param_groups = groups  # type: ignore[assignment]
        gate._before(odd)
        gate._after(odd)
    gate.close()


def notices(gate: Gate, state: dict[str, object], caplog: pytest.LogCaptureFixture) -> list[str]:
    """What an evacuation at this moment says about overlap that is not earned."""
    caplog.clear()
    captured = Capture(state).take()
    gate.learn(captured)
    with caplog.at_level("WARNING", "hinan"):
        Overlap(gate, lambda device: CpuPort()).split(make_plan(captured.tensors), captured)
    return [record.getMessage() for record in caplog.records if "overlap.unearned" in record.getMessage()]


def test_an_optimizer_that_has_not_stepped_yet_is_not_blamed(model: nn.Module, caplog: pytest.LogCaptureFixture) -> None:
    """D2: a run that resumed a moment ago, or an optimizer of every hundredth iteration: no step of it was missed. One that
    moves its parameters and is not seen is named, and so is one of which nothing can be seen for long."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    state: dict[str, object] = {"m": model, "o": optimizer}
    gate = Gate(state)
    assert notices(gate, state, caplog) == []
    for _ in range(SHORTEST_PATIENCE_STEPS):
        gate.at_boundary()
        assert notices(gate, state, caplog) == []
    gate.at_boundary()
    assert "none of its steps was seen" in notices(gate, state, caplog)[0]
    gate.close()


def by_hand(state: dict[str, object], caplog: pytest.LogCaptureFixture) -> list[str]:
    """Levels of what is said of parameters that no torch optimizer owns."""
    caplog.clear()
    gate = Gate(state)
    for _ in range(NOTICE_AFTER):
        gate.at_boundary()
    captured = Capture(state).take()
    gate.learn(captured)
    with caplog.at_level("INFO", "hinan"):
        Overlap(gate, lambda device: CpuPort()).split(make_plan(captured.tensors), captured)
    gate.close()
    return [r.levelname for r in caplog.records if "belong to no torch optimizer of the state" in r.getMessage()]


def test_averages_are_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    """Nobody can act on it. What has a gradient, or an optimizer that torch does not know, is warned of; so is a loop in
    which no optimizer of torch trains."""
    model = nn.Linear(64, 64)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    ema = copy.deepcopy(model)
    for average in (ema, torch.optim.swa_utils.AveragedModel(model)):
        assert by_hand({"m": model, "o": optimizer, "ema": average}, caplog) == ["INFO"]
        large = {"m": model, "o": optimizer, "ema": average, "x": torch.zeros(1 << 20)}
        assert by_hand(large, caplog) == []
    assert by_hand({"m": model}, caplog) == ["WARNING"]
    ema(torch.ones(1, 64)).sum().backward()
    assert by_hand({"m": model, "o": optimizer, "ema": ema}, caplog) == ["WARNING"]
    ema.zero_grad()
    assert by_hand({"m": model, "o": optimizer, "ema": ema, "mine": Duck()}, caplog) == ["WARNING"]


class Duck:
    """An optimizer that torch does not know."""

    step = zero_grad = load_state_dict = print

    def state_dict(self) -> dict[str, torch.Tensor]:
        return {"m": torch.zeros(2)}


def test_parameters_of_a_lazy_module_are_listened_to_before_it_has_run() -> None:
    model = torch.nn.LazyLinear(2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    gate = Gate({"m": model, "o": optimizer})
    model(torch.ones(1, 3))
    for _ in range(3):
        gate.learn(Capture({"m": model, "o": optimizer}).take())
        gate.probe()
        trained(gate, optimizer)
    assert gate.earned() == {"o"}
    gate.close()


def test_an_optimizer_that_moves_unseen_is_named_soon(model: nn.Module, caplog: pytest.LogCaptureFixture) -> None:
    state: dict[str, object] = {"m": model, "o": torch.optim.SGD(model.parameters(), lr=0.1)}
    gate = Gate(state)
    for _ in range(NOTICE_AFTER):
        assert notices(gate, state, caplog) == []
        with torch.no_grad():
            model.weight.add_(1)
        gate.at_boundary()
    assert "none of its steps was seen" in notices(gate, state, caplog)[0]
    gate.close()
