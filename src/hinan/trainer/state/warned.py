"""What a state cannot give back although it is kept, or is not kept although it trains: warned of, each once."""

from __future__ import annotations

import logging
from collections.abc import Mapping

import torch

from hinan.trainer.state.naming import parameters_of

log = logging.getLogger("hinan")


class Warned:
    """The warnings of one state. A capture comes again and again, and its findings with it."""

    def __init__(self) -> None:
        self._outside: set[str] = set()
        self._classes: set[str] = set()
        self._parameters = 0

    def of_moments_outside(self, optimizer: str, count: int) -> None:
        """Once an optimizer: what it does now does not need them, but what the loop does later might."""
        if count == 0 or optimizer in self._outside:
            return
        self._outside.add(optimizer)
        log.warning(
            "%s holds state of %d parameters that are in none of its groups and in no module at the top of the state. It "
            "never looks at it, and it is not kept. If such a parameter is to come back into a group, put its module there",
            optimizer, count,
        )  # fmt: skip

    def of_class(self, path: str, tensor: torch.Tensor, owner: str) -> None:
        """Once an owner: its fresh self has no such tensor to be written over, and no class is imported for a file."""
        if type(tensor) is torch.Tensor or owner in self._classes:
            return
        self._classes.add(owner)
        log.warning(
            "%s is a %s; a restore makes %s's tensors anew, and this one will be a plain torch.Tensor with the same "
            "bits. If its class matters, let a load_state_dict() of %s make it again",
            path, type(tensor).__qualname__, owner, owner,
        )  # fmt: skip

    def of_untaken(
        self,
        optimizers: Mapping[str, torch.optim.Optimizer],
        tensors: Mapping[str, torch.Tensor],
        parameters: Mapping[int, object],
        known: Mapping[int, str],
    ) -> None:
        """Parameters that an optimizer trains, and whose module leaves them out of its own `state_dict`.

        Args:
            tensors: what is kept, by name.
            parameters: those of all optimizers, by identity; it is looked again when their number changes.
            known: names of all modules' parameters, by identity.
        """
        if len(parameters) == self._parameters:
            return
        self._parameters = len(parameters)
        kept = {tensor.untyped_storage().data_ptr() for tensor in tensors.values()}
        for path, optimizer in optimizers.items():
            named = ((known.get(id(p)), p) for p in parameters_of(optimizer))
            left = [n for n, p in named if n and n not in tensors and p.untyped_storage().data_ptr() not in kept]
            if left:
                log.warning(
                    "%s trains %s%s, which the state_dict() of the module leaves out: a resumed run begins it anew, beside "
                    "the moments of the old one. Let its state_dict() give it",
                    path, left[0], f" and {len(left) - 1} more" if left[1:] else "",
                )  # fmt: skip
