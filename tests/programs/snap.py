"""Trainers that change their state the moment they may, while copies and drains are held back."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import torch

import hinan
from hinan.trainer.evacuating import evacuation
from hinan.trainer.evacuating.gate import Gate
from hinan.trainer.ports import hostport
from tests.programs import loop


def _begin(target: str, state: dict[str, Any], **options: Any) -> hinan.Evacuator:
    logging.basicConfig(level=logging.INFO, format="%(name)s %(levelname)s %(message)s", force=True)
    evac = hinan.Evacuator(target, state, **({"every": 1000, "commit_every": 1000} | options))
    evac.restore()
    return evac


def ones(target: str, out: str, held: str, **_: Any) -> None:
    """A-SNAP-1: tensors of ones, evacuated, overwritten with twos at once."""
    tensors = [torch.ones(250_000) for _ in range(8)]
    evac = _begin(target, {"tensors": tensors})
    evac.step()
    evac.evacuate()
    for tensor in tensors:
        tensor.fill_(2)
    Path(held).unlink()
    evac.evacuate(wait="committed", timeout_s=30)
    evac.close()


def first_moments(target: str, out: str, held: str, **_: Any) -> None:
    """A-SNAP-2: AdamW's state after its first step, with the drain held while the second one runs."""
    model = torch.nn.Linear(64, 64)
    optimizer = torch.optim.AdamW(model.parameters())
    evac = _begin(target, {"model": model, "optim": optimizer})
    for number in (1, 2):
        model(torch.ones(2, 64)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        if number == 1:
            evac.step()
            live = [*model.parameters(), *(t for entry in optimizer.state.values() for t in entry.values())]
            shared = [t.is_shared() for t in live]
            handle = evac.evacuate()
            torch.save([t.detach().clone() for t in live], Path(out, "wanted"))
            assert [t.is_shared() for t in live] == shared
    Path(held).unlink()
    handle.wait("committed", 30)
    evac.close()


def two_slots(target: str, out: str, held: str, ram: str, **_: Any) -> None:
    """A-SNAP-3: room for two images; the first one's drain is held while two more are asked for."""
    state = {"t": torch.zeros(2_000_000)}
    evac = _begin(target, state, ram=ram, timeout_s=0.3, every=1, commit_every=1)
    ends = []
    for value in (1.0, 2.0, 3.0, 4.0):
        state["t"].fill_(value)
        evac.step()
        try:
            evac.evacuate()
            ends.append("held")
        except hinan.HinanError:
            ends.append("lost")
        while value == 1.0 and not Path(held + ".reached").exists():
            pass
    Path(out, "ends").write_text(" ".join(ends))
    Path(held).unlink()
    evac.close()


def counting(target: str, out: str, by_gate: bool, steps: int = 30, **_: Any) -> None:
    """A-SNAP-5: 200 tensors, all one larger after each iteration, without a pause; every image must hold one number."""
    model = torch.nn.ParameterList([torch.nn.Parameter(torch.zeros(20_000)) for _ in range(200)])
    state = {"model": model} if by_gate else {"tensors": [p.data for p in model]}
    evac = _begin(target, state, every=10, commit_every=10)
    step = 0
    while step < steps:
        if by_gate:
            evac.gate()
        with torch.no_grad():
            for p in model:
                p.add_(1)
        step = evac.step()
    assert evac.last is not None
    evac.last.wait("committed", 30)
    evac.close()


def waited(**arguments: Any) -> None:
    """`loop.main` with overlap never earned: every copy is waited for."""
    Gate.earned = lambda self: frozenset()  # type: ignore[method-assign]
    loop.main(**arguments)


def frozen(target: str, out: str, **_: Any) -> None:
    """The state holds a model that is not trained."""
    model = torch.nn.Linear(8, 8)
    evac = _begin(target, {"model": model}, every=1, commit_every=1)
    for _ in range(3):
        evac.step()
        assert evac.last is not None
        evac.last.wait("committed", 30)
    evac.close()


def put_off(target: str, out: str, by_hand: bool, **_: Any) -> None:
    """An evacuation is due in the middle of an accumulation, and the run is closed there, with other weights."""
    model = torch.nn.Linear(8, 8)
    optimizer = torch.optim.AdamW(model.parameters())
    evac = _begin(target, {"model": model, "optim": optimizer}, every=3, commit_every=3)
    for step in range(1, 8):
        model(torch.ones(2, 8)).sum().backward()
        if step % 5 == 0:
            optimizer.step()
            optimizer.zero_grad()
        evac.step()
    if by_hand:
        evac.evacuate()
    torch.save(model.weight.detach().clone(), Path(out, "weight"))
    model.weight.data.zero_()
    evac.close()


def failing_copies(target: str, out: str, **_: Any) -> None:
    """The third copy cannot be started, the fifth fails on its way: each costs its step, and training goes on."""
    model = torch.nn.Linear(256, 256)
    optimizer = torch.optim.AdamW(model.parameters())
    evac = _begin(target, {"model": model, "optim": optimizer}, every=1, commit_every=1)
    start, move = evacuation.enqueue, hostport.memmove
    ends = []

    def refuse(*_: Any) -> Any:
        raise RuntimeError("no memory for a bucket")

    def break_off(*_: Any) -> None:
        raise OSError("lost on its way")

    for number in range(1, 8):
        model(torch.ones(2, 256)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        evacuation.enqueue = refuse if number == 3 else start
        hostport.memmove = break_off if number == 5 else move  # type: ignore[assignment]
        evac.step()
        try:
            evac.evacuate()
            ends.append("held")
        except hinan.HinanError as error:
            ends.append(str(error).split(": ", 1)[1])
    evac.close()
    Path(out, "ends").write_text("\n".join(ends))
