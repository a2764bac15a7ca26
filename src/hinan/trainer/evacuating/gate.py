"""The gate: what makes an optimizer wait until an evacuation in flight no longer reads its tensors (rules D1, D2).

One hook on all optimizers of the process sees plain, wrapped, scaled, fused, compiled and in-backward steps, from whatever
thread. It holds back only optimizers whose parameters are captured. `evac.gate()` is for what no hook sees.

Overlap is earned: copies may outlive `evac.step()` only for gates that were passed in the iteration that just ended and in
the one before, and whose tensors were seen to stay as they were between a boundary and the gate. Everybody else is waited
for, which is always right and only slower.
"""

from __future__ import annotations

import logging
import os
import sys
import weakref
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook

from hinan.trainer.evacuating.deferral import SHORTEST_PATIENCE_STEPS, Pending
from hinan.trainer.evacuating.flight import Flight
from hinan.trainer.evacuating.gradients import Gradients
from hinan.trainer.evacuating.unheld import Unheld
from hinan.trainer.evacuating.watching import Watched, version
from hinan.trainer.state.capture import BY_HAND, Captured
from hinan.trainer.state.naming import optimizers_of, parameters_of

log = logging.getLogger("hinan")

EARNED_AFTER = 2
"""Iterations in a row in which a gate must have been passed."""


@dataclass
class _Seen:
    """What is known of one gate.

    Attributes:
        last: the iteration in which it was passed last.
        in_a_row: iterations in a row; one without the gate in which nothing moved does not count at all.
        is_clean: passed once with its tensors watched since the boundary, and unmoved.
        distrust: why it never earns overlap; "" as long as it may.
        after: version of its first parameter after the last step; until there is one, when it became known.
    """

    last: int = 0
    in_a_row: int = 0
    is_clean: bool = False
    distrust: str = ""
    after: int = -1

    def pass_in(self, iteration: int, *, unmoved: bool) -> None:
        """The gate was passed. `unmoved`: nothing is known to have changed its tensors since it was passed last."""
        if self.last == iteration:
            return
        self.in_a_row = self.in_a_row + 1 if unmoved else 1
        self.last = iteration


class Gate:
    """All gates of one evacuator. Passed by any thread, asked at boundaries by the training thread."""

    def __init__(self, state: Mapping[str, Any] | None = None) -> None:
        """
        Args:
            state: where optimizers are looked for, so that their first step is seen; the first capture finds the rest.
        """
        self.flight: Flight | None = None
        self.on_pass: Callable[[], None] | None = None
        """Called at each first gate of an iteration, as long as somebody wants to know."""
        self._seen: dict[str, _Seen] = {BY_HAND: _Seen()}
        self._gates_of: weakref.WeakKeyDictionary[torch.optim.Optimizer, tuple[int, tuple[str, ...]]]
        self._gates_of = weakref.WeakKeyDictionary()
        self._iteration = 1
        self._passed_in = 0
        self._replayed: set[str] = set()
        self._gated: dict[str, list[tuple[str, int, Unheld]]] = {}
        self._watched: dict[str, Watched] = {}
        self._handles: list[Any] = []
        if "torch._dynamo" in sys.modules:  # an optimizer was made; without one, importing it would cost two seconds
            self._listen()
        self._optimizers: Mapping[str, torch.optim.Optimizer] = dict(optimizers_of(state or {}))
        self._parameters: Mapping[int, tuple[str, ...]] = {
            id(p): (name,) for name, o in self._optimizers.items() for group in o.param_groups for p in group["params"]
        }
        self._seen |= {name: _known(o) for name, o in self._optimizers.items()}
        self._gradients = Gradients()
        self._gradients.learn(self._optimizers, ended=0)
        _let_go_in_children(self)

    # -- what the loop tells --------------------------------------------------------------------------------------

    def learn(self, captured: Captured) -> None:
        """Which optimizers and parameters there are now."""
        if captured.optimizers and not self._handles:
            self._listen()
        if captured.parameters != self._parameters:
            self._parameters = captured.parameters
            self._gates_of = weakref.WeakKeyDictionary()
        self._optimizers = captured.optimizers
        for name, optimizer in captured.optimizers.items():
            if name not in self._seen:
                self._seen[name] = _known(optimizer)
        self._gradients.learn(captured.optimizers, ended=self.ended)
        # Only gates that are passed at all and still have to be watched; usually none, and nothing is looked through.
        self._gated = {name: [] for name, seen in self._seen.items() if seen.last and not (seen.is_clean or seen.distrust)}
        if self._gated:
            for name, tensor in captured.tensors.items():
                for gate in captured.gates.get(name, ()):
                    if gate in self._gated:
                        self._gated[gate].append((name, id(tensor), Unheld.of(tensor)))

    def at_boundary(self) -> None:
        """An iteration has ended. A copy whose gate was not passed in it is waited for."""
        self._iteration += 1
        if self.flight is not None:
            self.flight.finish()
        self._watched = {}

    def probe(self) -> None:
        """Watch the tensors of gates that are not known to be clean, until each is passed. Called at a boundary.

        Bit for bit, because some writes are not counted; and so once, because it reads all of them twice. A parameter is
        looked at in the memory that it has now, which may be another one; everything else where it was found.
        """
        unclean = {gate: named for gate, named in self._gated.items() if not self._seen[gate].is_clean}
        parameters = {id(p): p for o in self._optimizers.values() if unclean for p in parameters_of(o)}
        self._watched = {
            gate: Watched(
                (
                    (name, tensor)
                    for name, identity, unheld in named
                    if (tensor := parameters.get(identity, unheld.alias())) is not None
                ),
                exactly=True,
            )
            for gate, named in unclean.items()
        }

    def passed_by_hand(self) -> None:
        """The loop says so itself: from now on until the next boundary anything may change."""
        self._pass([*self._seen], None)

    def close(self) -> None:
        """Stop listening."""
        _stop(self._handles)
        self._handles = []

    @property
    def iteration(self) -> int:
        """Number of the iteration that goes on; at a boundary, until it was told of it, of the one that ends there."""
        return self._iteration

    def was_passed_after(self, iteration: int) -> bool:
        """Whether an optimizer has begun a step, or a gate was passed by hand, in a later iteration than this one."""
        return self._passed_in > iteration

    @property
    def ended(self) -> int:
        """Iterations of this process that have ended."""
        return self._iteration - 1

    # -- what boundaries ask --------------------------------------------------------------------------------------

    def earned(self) -> frozenset[str]:
        """Gates for which copies may go on after the boundary that was just reached."""
        return frozenset(
            name
            for name, seen in self._seen.items()
            if seen.last == self.ended and seen.in_a_row >= EARNED_AFTER and seen.is_clean and not seen.distrust
        )

    def why_not(self, name: str) -> str:
        """Why a gate has not earned overlap, and what to write; "" if it only needs another iteration or two."""
        seen = self._seen.get(name, _Seen())
        if seen.distrust:
            return f"{name}: {seen.distrust}"
        if seen.last == 0 and name == BY_HAND:
            return (
                "trainable parameters that belong to no torch optimizer of the state. Put their optimizer into the state, "
                "or call evac.gate() right before they change"
            )
        if seen.last == 0 and self._has_stepped_unseen(name, seen):
            return f"{name}: none of its steps was seen by torch's optimizer hook; call evac.gate() right before it steps"
        return ""

    def _has_stepped_unseen(self, name: str, seen: _Seen) -> bool:
        """An optimizer whose parameters stay as they are has not stepped yet: it accumulates, or is seldom needed. Not for
        ever: there are writes that nobody counts."""
        first = _first_parameter(self._optimizers[name]) if name in self._optimizers else None
        return self.ended > SHORTEST_PATIENCE_STEPS or first is None or version(first) != seen.after

    def distrust(self, gates: Iterable[str], why: str) -> None:
        """These gates never earn overlap again."""
        for name in gates:
            self._seen.setdefault(name, _Seen()).distrust = why

    @property
    def distrusted(self) -> frozenset[str]:
        """Gates that never earn overlap again."""
        return frozenset(name for name, seen in self._seen.items() if seen.distrust)

    def pending_gradients(self) -> list[Pending]:
        """Optimizers with gradients that their last step has not used (rule D4), if their steps are seen at all."""
        seen = {name: o for name, o in self._optimizers.items() if name not in self._replayed}
        return self._gradients.pending(seen, ended=self.ended)

    # -- passing --------------------------------------------------------------------------------------------------

    def _listen(self) -> None:
        """Hooks reach this object weakly: a forgotten evacuator must not be kept alive by every optimizer."""
        self._handles = [
            register_optimizer_step_pre_hook(_hook(weakref.WeakMethod(self._before))),
            register_optimizer_step_post_hook(_hook(weakref.WeakMethod(self._after))),
        ]
        weakref.finalize(self, _stop, self._handles).atexit = False  # nor must each step go on asking for one

    def _before(self, optimizer: torch.optim.Optimizer) -> None:
        names = self._names(optimizer)
        if not names:
            return
        if _is_capturing():
            self._replayed.update(names)
            self.distrust(
                names, "its steps are replayed from a graph, which no hook sees; call evac.gate() before the replay"
            )
        self._pass(names, _first_parameter(optimizer))

    def _pass(self, names: Iterable[str], first: torch.Tensor | None) -> None:
        if self._passed_in != self._iteration:
            self._passed_in = self._iteration
            if self.on_pass is not None:
                self.on_pass()
        for name in names:
            seen = self._seen[name]
            watched = self._watched.pop(name, None)
            if watched is not None:
                self._judge(name, seen, watched)
            # A gap in which nothing moved (accumulation, a skipped step) is no break; one in which something did is.
            unmoved = seen.last >= self._iteration - 1 or first is None or version(first) == seen.after
            seen.pass_in(self._iteration, unmoved=unmoved)
        if self.flight is not None:
            self.flight.hold(names)

    def _judge(self, name: str, seen: _Seen, watched: Watched) -> None:
        culprit = watched.moved()
        if culprit is None:
            seen.is_clean = True
        else:
            seen.distrust = (
                f"{culprit} is changed after evac.step() and before its optimizer steps, so it cannot be read meanwhile"
            )

    def _after(self, optimizer: torch.optim.Optimizer) -> None:
        names, first = self._names(optimizer), _first_parameter(optimizer)
        if not names or first is None:
            return
        for name in names:
            self._seen[name].after = version(first)
        self._gradients.stepped(names, optimizer, self._iteration)

    def _names(self, optimizer: torch.optim.Optimizer) -> tuple[str, ...]:
        """Gates that a step of this optimizer passes: those of its parameters. A wrapper's inner optimizer has them too."""
        known = self._gates_of.get(optimizer)
        groups = optimizer.param_groups
        size = sum(len(group.get("params", ())) for group in groups)
        if known is not None and known[0] == size:
            return known[1]
        found = tuple(dict.fromkeys(name for p in parameters_of(optimizer) for name in self._parameters.get(id(p), ())))
        self._gates_of[optimizer] = size, found
        return found


def _hook(method: weakref.WeakMethod[Callable[[torch.optim.Optimizer], None]]) -> Callable[..., None]:
    """A hook that costs next to nothing in a plain step, and is called, not traced, by a compiled one."""

    def call(optimizer: torch.optim.Optimizer) -> None:
        bound = method()
        if bound is not None:
            bound(optimizer)

    untraced = torch.compiler.disable(call)  # type: ignore[no-untyped-call]

    def hook(optimizer: torch.optim.Optimizer, args: object, kwargs: object) -> None:
        if torch.compiler.is_compiling():
            untraced(optimizer)  # its wrapper alone costs 10 us
        else:
            call(optimizer)

    return hook


def _stop(handles: Iterable[Any]) -> None:
    for handle in handles:
        handle.remove()


def _let_go_in_children(gate: Gate) -> None:
    """In a forked child no thread copies: an optimizer that steps there must not wait for one."""
    weak = weakref.ref(gate)

    def in_child() -> None:
        alive = weak()
        if alive is not None:
            alive.flight = None
            alive.close()

    os.register_at_fork(after_in_child=in_child)


def _known(optimizer: torch.optim.Optimizer) -> _Seen:
    first = _first_parameter(optimizer)
    return _Seen(after=-1 if first is None else version(first))


def _first_parameter(optimizer: torch.optim.Optimizer) -> torch.Tensor | None:
    return next(parameters_of(optimizer), None)


def _is_capturing() -> bool:
    """Whether what the trainer does now is recorded into a graph rather than done."""
    return torch.cuda.is_initialized() and torch.cuda.is_current_stream_capturing()  # type: ignore[no-untyped-call]
