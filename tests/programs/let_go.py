"""Trainers that drop the evacuator with all that it has evacuated; the collector of cycles never runs."""

from __future__ import annotations

import gc
import logging
import sys
import weakref
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch

import hinan
from hinan.core.errors import SavingError
from hinan.trainer.ports import hostport


def _fails(*_: object) -> None:
    raise OSError("no copy today")


def _begin(target: str) -> tuple[hinan.Evacuator, torch.nn.Module, torch.optim.Optimizer, Callable[[], None]]:
    model = torch.nn.Linear(300, 300)
    optimizer = torch.optim.AdamW(model.parameters())
    evac = hinan.Evacuator(target, {"model": model, "optim": optimizer}, every=1, commit_every=100, timeout_s=5)
    evac.restore()

    def iterate() -> None:
        model(torch.ones(1, 300)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        evac.step()

    return evac, model, optimizer, iterate


def _trained(target: str, how: str) -> list[weakref.ref[Any]]:
    """Train, and end as is asked for; what must be gone when this has returned."""
    evac, model, optimizer, iterate = _begin(target)
    for _ in range(5):
        iterate()
    assert evac.last is not None and evac.last.flight is not None and evac.last.flight.gates, (
        "no copy went on beside training"
    )
    known = [weakref.ref(it) for it in (evac, model, optimizer, *model.parameters(), evac.last, *evac._maps._maps.values())]
    if how == "raised":
        with suppress(RuntimeError), evac:
            iterate()
            raise RuntimeError("the loss is not a number")
    elif how == "copy failed":
        move, hostport.memmove = hostport.memmove, _fails  # type: ignore[assignment]
        iterate()
        known += [weakref.ref(evac.last), weakref.ref(evac.last.flight)]
        evac._evacuation.settle()
        hostport.memmove = move
        assert evac.last.lost is not None
        evac.close()
    elif how == "not closed":
        away = Path(target).rename(f"{target}.away")
        with suppress(SavingError):
            evac.close()
            raise AssertionError("closed")
        away.rename(target)
    else:
        evac.close()
    assert not evac._maps._maps
    return known


def main(target: str, out: str, how: str, **_: Any) -> None:
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(name)s %(message)s", force=True)
    torch.optim.SGD(
        [torch.zeros(1)]
    )  # the first one imports half of torch, which leaves cycles with the frames of whoever does
    gc.collect()
    gc.disable()
    alive = [it for weak in _trained(target, how) if (it := weak()) is not None]
    assert [type(it).__name__ for it in alive] == []
    Path(out, "done").touch()
