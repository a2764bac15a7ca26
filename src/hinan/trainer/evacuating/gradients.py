"""Gradients that have come since their optimizer's last step: a state taken now would lose them (rule D4).

Owns:      for each optimizer of the state the iteration of its last step, and which gradients that step has used.
Relies on: gradients being what autograd makes of them: a new one is a new tensor, and adding to one moves its version.
Never:     keeps a gradient alive, or waits for a device.

A gradient that a step has used and that the loop goes on using (zeroed in every second iteration, say) looks used.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial

import torch

from hinan.trainer.evacuating.deferral import Pending
from hinan.trainer.evacuating.unheld import Trace, is_of, trace
from hinan.trainer.evacuating.watching import version
from hinan.trainer.state.naming import parameters_of

SAMPLE = 64
"""Gradients noted at each step. To note those of thousands of parameters would cost more than the rest of the hook."""

Noted = tuple[tuple[int, Trace | None, int], ...]
"""(id of a parameter, what its gradient is known by or None, the gradient's version). The parameter may be another one by
now: then its gradient is, too."""


@dataclass
class _Steps:
    """What is known of one optimizer's steps.

    Attributes:
        last: iteration of the last one; until there is one, the iteration that had ended when the optimizer became known.
        longest_gap: most iterations from one to the next; 0 while none was seen.
        used: gradients that the last one has used.
    """

    last: int
    longest_gap: int = 0
    used: Noted = ()


class Gradients:
    """The gradients of one state's optimizers. Told of steps by any thread, asked at boundaries by the training thread."""

    def __init__(self) -> None:
        self._steps: dict[str, _Steps] = {}

    def learn(self, optimizers: Mapping[str, torch.optim.Optimizer], *, ended: int) -> None:
        """Which optimizers there are.

        Args:
            ended: iterations that have ended.
        """
        for name, optimizer in optimizers.items():
            if name not in self._steps:
                # Gradients that lie there now are from before: only what comes from now on can be pending.
                self._steps[name] = _Steps(ended, used=note(optimizer))

    def stepped(self, names: Iterable[str], optimizer: torch.optim.Optimizer, iteration: int) -> None:
        """An optimizer has stepped in this iteration; to the state it is known by these names."""
        used = note(optimizer)
        for name in names:
            steps = self._steps.setdefault(name, _Steps(iteration - 1))
            steps.longest_gap = max(steps.longest_gap, iteration - steps.last)
            steps.last, steps.used = iteration, used

    def pending(self, optimizers: Mapping[str, torch.optim.Optimizer], *, ended: int) -> list[Pending]:
        """Those of these optimizers whose parameters have gradients that have come since their last step."""
        found = []
        for name, optimizer in optimizers.items():
            steps = self._steps[name]
            if any(True for _ in _gradients(optimizer)) and not _are_used(optimizer, steps.used):
                idle = ended - steps.last
                found.append(Pending(name, idle, steps.longest_gap, partial(are_zero, optimizer)))
        return found


def note(optimizer: torch.optim.Optimizer) -> Noted:
    """The gradients of up to `SAMPLE` of an optimizer's parameters, evenly spaced, the first and the last among them."""
    parameters = list(parameters_of(optimizer))
    if len(parameters) > SAMPLE:
        parameters = [parameters[i * (len(parameters) - 1) // (SAMPLE - 1)] for i in range(SAMPLE)]
    return tuple(
        (id(p), None, 0) if (gradient := p.grad) is None else (id(p), trace(gradient), version(gradient))
        for p in parameters
    )


def are_zero(optimizer: torch.optim.Optimizer) -> bool:
    """Whether no gradient of an optimizer has an element other than zero. Waits for the device."""
    try:
        return not any((g._values() if g.is_sparse else g).any() for g in _gradients(optimizer))
    except (RuntimeError, NotImplementedError):  # a dtype or layout that cannot be asked: unknown is not zero
        return False


def _are_used(optimizer: torch.optim.Optimizer, noted: Noted) -> bool:
    """Whether the noted gradients that are still there are as they were. If none is, nothing is known of the others."""
    gradients = {id(p): p.grad for p in parameters_of(optimizer) if p.grad is not None}
    present = [(gradients[p], gradient, before) for p, gradient, before in noted if p in gradients]
    return bool(present) and all(is_of(now, gradient) and version(now) == before for now, gradient, before in present)


def _gradients(optimizer: torch.optim.Optimizer) -> Iterator[torch.Tensor]:
    return (p.grad for p in parameters_of(optimizer) if p.grad is not None)
