"""What an optimizer that has not stepped yet will hold: state tensors by class, for torch.optim's own classes.

An optimizer makes its state in its first step, and that state is most of an image: twice the parameters for Adam. So the
sum before training forecasts it. A class that is not in the table is not guessed at; the sum then says "at least".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class StateTensor:
    """One state tensor of one parameter. `is_scalar`: a number in the default float type, else in the parameter's type."""

    name: str
    shape: tuple[int, ...]
    is_scalar: bool = False


Options = Mapping[str, Any]
Shape = tuple[int, ...]


def state_of(kind: str, options: Options, shape: Shape) -> tuple[StateTensor, ...] | None:
    """The state tensors of one parameter after the first step; None for a class that is not known.

    Args:
        kind: the class's name in torch.optim.
        options: of the parameter's group.
        shape: of the parameter.
    """
    names = _NAMES.get(kind)
    if names is None:
        return None
    return tuple(_tensor(name, shape) for name in names(options, shape))


def _tensor(name: str, shape: Shape) -> StateTensor:
    if name in _SCALARS:
        return StateTensor(name, (), is_scalar=True)
    if name == "row_var":
        return StateTensor(name, (*shape[:-1], 1))
    if name == "col_var":
        return StateTensor(name, (*shape[:-2], 1, shape[-1]))
    return StateTensor(name, shape)


def _always(*names: str) -> Callable[[Options, Shape], tuple[str, ...]]:
    return lambda options, shape: names


def _adam(options: Options, shape: Shape) -> tuple[str, ...]:
    return ("step", "exp_avg", "exp_avg_sq", *(("max_exp_avg_sq",) if options.get("amsgrad") else ()))


def _rmsprop(options: Options, shape: Shape) -> tuple[str, ...]:
    momentum = ("momentum_buffer",) if options.get("momentum", 0) > 0 else ()
    return ("step", "square_avg", *momentum, *(("grad_avg",) if options.get("centered") else ()))


def _sgd(options: Options, shape: Shape) -> tuple[str, ...]:
    return ("momentum_buffer",) if options.get("momentum", 0) != 0 else ()


def _adafactor(options: Options, shape: Shape) -> tuple[str, ...]:
    return ("step", "row_var", "col_var") if len(shape) > 1 else ("step", "variance")


_SCALARS = frozenset({"step", "mu_product", "eta", "mu"})
_NAMES: Mapping[str, Callable[[Options, Shape], tuple[str, ...]]] = {
    "Adadelta": _always("step", "square_avg", "acc_delta"),
    "Adafactor": _adafactor,
    "Adagrad": _always("step", "sum"),
    "Adam": _adam,
    "AdamW": _adam,
    "Adamax": _always("step", "exp_avg", "exp_inf"),
    "ASGD": _always("step", "eta", "mu", "ax"),
    "Muon": _always("momentum_buffer"),
    "NAdam": _always("step", "mu_product", "exp_avg", "exp_avg_sq"),
    "RAdam": _always("step", "exp_avg", "exp_avg_sq"),
    "RMSprop": _rmsprop,
    "Rprop": _always("step", "prev", "step_size"),
    "SGD": _sgd,
    "SparseAdam": _always("exp_avg", "exp_avg_sq"),
}
KNOWN = frozenset(_NAMES)
"""Classes of torch.optim in the table. LBFGS is not: its state grows with its history."""
