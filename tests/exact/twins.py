"""A straight run and its twin that is evacuated, dropped and restored into new objects: are they one run, bit for bit?

What is compared is read by code of its own, not by hinan's capture: what capture forgets must show.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from itertools import pairwise
from typing import Any

import numpy as np
import torch

from hinan.trainer.restoring.parsing import load_arrays
from hinan.trainer.state.capture import Capture
from hinan.trainer.state.rng import set_rng_state
from tests.trainer.helpers import bits, evacuate, install

Step = Callable[[], object]
Make = Callable[[], tuple[dict[str, Any], Step]]
"""Makes new objects: the state, and a function that trains one step and returns its loss."""
Ends = tuple[dict[str, Any], dict[str, Any]]

STEPS, AT = 5, 2


def seed(number: int) -> None:
    """All global generators."""
    torch.manual_seed(number)
    np.random.seed(number)
    random.seed(number)


def look(value: object) -> Any:
    """Comparable facts of a live value, bits included: a tensor's dtype, device, shape, strides and bits, and so on."""
    if isinstance(value, torch.Tensor):
        return (str(value.dtype), str(value.device), tuple(value.shape), value.stride(), value.requires_grad, bits(value))
    if isinstance(value, torch.nn.Module):
        return {name: look(item) for name, item in value.state_dict(keep_vars=True).items()}
    if isinstance(value, torch.optim.Optimizer):
        order = {id(p): f"parameter {i}" for i, p in enumerate(p for g in value.param_groups for p in g["params"])}
        outside = (id(key) for key in value.state if isinstance(key, torch.Tensor) and id(key) not in order)
        order |= {identity: f"outside {i}" for i, identity in enumerate(outside)}
        state = {order.get(id(key), key): look(item) for key, item in value.state.items()}
        groups = [{k: look(v) for k, v in g.items() if k != "params"} for g in value.param_groups]
        return [state, groups, [[order[id(p)] for p in g["params"]] for g in value.param_groups]]
    if isinstance(value, torch.Generator):
        return look(value.get_state())
    if isinstance(value, np.random.Generator):
        return look(value.bit_generator.state)
    if isinstance(value, np.random.RandomState | random.Random):
        return look(value.getstate() if isinstance(value, random.Random) else value.get_state(legacy=False))
    if isinstance(value, Mapping):
        return {k if not isinstance(k, torch.Tensor) else i: look(v) for i, (k, v) in enumerate(value.items())}
    if isinstance(value, list | tuple):
        return type(value).__name__, [look(item) for item in value]
    if isinstance(value, np.ndarray):
        return str(value.dtype), value.shape, value.tobytes()
    if isinstance(value, torch.utils.data.DataLoader) and value._iterator is None:
        return "not started", look(value.generator)  # asking it would start it
    if hasattr(value, "state_dict"):
        return look(value.state_dict())
    return type(value).__name__, repr(value)


def look_at_rng() -> Any:
    """All global generators."""
    return look([torch.get_rng_state(), np.random.get_state(), random.getstate()])


def places(value: object) -> Any:
    """Where a live value lies: addresses, versions, sharing and identities, which no evacuation may change."""
    if isinstance(value, torch.Tensor):
        return id(value), value.data_ptr(), value._version, value.is_shared(), id(value.grad) if value.is_leaf else None
    if isinstance(value, torch.nn.Module):
        return {name: places(item) for name, item in value.state_dict(keep_vars=True).items()}
    if isinstance(value, torch.optim.Optimizer):
        groups = [{k: places(v) for k, v in group.items()} for group in value.param_groups]
        return [{id(k): places(v) for k, v in value.state.items()}, groups]
    if isinstance(value, Mapping):
        return {id(k) if isinstance(k, torch.Tensor) else k: places(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [places(item) for item in value]
    return id(value)


def assert_same(a: Any, b: Any, path: str) -> None:
    """Two looks are equal; the message names the first place where they are not."""
    if a == b:
        return
    if type(a) is type(b) is dict:
        assert list(a) == list(b), f"{path} has {list(a)}, not {list(b)}"
        a, b = a.items(), b.items()
    if isinstance(a, str | bytes | int | float) or isinstance(b, str | bytes | int | float) or len(a) != len(b):
        raise AssertionError(f"{path} is {a!r:.300}, not {b!r:.300}")
    for i, (x, y) in enumerate(zip(a, b, strict=True)):
        named = type(x) is type(y) is tuple and len(x) == len(y) == 2 and x[0] == y[0] and isinstance(x[0], str)
        assert_same(x[1] if named else x, y[1] if named else y, f"{path}.{x[0] if named else i}")


def everything(state: dict[str, Any]) -> Any:
    """What a live state and the generators are now."""
    return look(state), look_at_rng()


def evacuated(state: dict[str, Any]) -> tuple[bytearray, dict[str, Any]]:
    """(image, small values) of a state; saving it has changed nothing that lives (rule D8)."""
    before = everything(state), places(state)
    image, small, _ = evacuate(state)
    assert_same((everything(state), places(state)), before, "saved")
    return image, small


def restored(image: bytearray, small: dict[str, Any], state: dict[str, Any]) -> None:
    """Install, and the generators last."""
    install(image, small, state)
    set_rng_state(load_arrays(small["rng"]))


def rows_of_four() -> torch.Tensor:
    """A batch for models with four inputs."""
    return torch.randn(3, 4)


def training(
    build: Callable[[], torch.nn.Module],
    data: Callable[[], torch.Tensor] = rows_of_four,
    optimizer: Callable[..., Any] = torch.optim.AdamW,
) -> Make:
    """A maker for `assert_resumes`: a model, an optimizer of what is not frozen, a mean square that is driven to one."""

    def make() -> tuple[dict[str, Any], Step]:
        model = build()
        optim = optimizer([p for p in model.parameters() if p.requires_grad], lr=0.01)

        def step() -> torch.Tensor:
            optim.zero_grad()
            loss = (model(data()) - 1).abs().square().mean()
            loss.backward()
            optim.step()
            return loss.detach()

        return {"optim": optim, "model": model}, step

    return make


def assert_resumes(make: Make, steps: int = STEPS, at: int | tuple[int, ...] = AT, used: int = 0) -> Ends:
    """Train straight; train `at` steps, evacuate, restore into new objects, train the rest: equal losses and final state.

    Args:
        at: also several: resumed again and again.
        used: steps that the new objects have trained before they get the saved state.
    Returns:
        The final states of both runs.
    """
    seed(1)
    straight, step = make()
    expected = [look(step()) for _ in range(steps)]
    end = everything(straight)
    seed(1)
    state, step = make()
    Capture(state)  # as a program does that evacuates: before it begins to train
    losses = []
    for start, stop in pairwise((0, *((at,) if isinstance(at, int) else at))):
        losses += [look(step()) for _ in range(stop - start)]
        image, small = evacuated(state)
        seed(2)  # the new process begins elsewhere
        state, step = make()
        Capture(state)
        for _ in range(used):
            step()
        restored(image, small, state)
    losses += [look(step()) for _ in range(steps - len(losses))]
    assert_same(losses, expected, "loss")
    assert_same(everything(state), end, "end")
    return straight, state
