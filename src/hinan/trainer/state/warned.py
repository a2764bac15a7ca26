"""What a state cannot give back although it is kept, or is not kept although it trains: warned of, each once."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Set
from typing import Any

import torch

from hinan.formats.values import Json
from hinan.trainer.state.naming import parameters_of
from hinan.trainer.state.unkept import unkept

log = logging.getLogger("hinan")


class Warned:
    """The warnings of one state. A capture comes again and again, and its findings with it."""

    def __init__(self) -> None:
        self._outside: set[str] = set()
        self._classes: set[str] = set()
        self._unkept: set[tuple[str, str]] = set()
        self._look: object = None

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

    def of_unkept(
        self,
        state: Mapping[str, Any],
        optimizers: Mapping[str, torch.optim.Optimizer],
        others: Set[int],
        kept: Mapping[str, torch.Tensor],
        words: Iterable[Json],
    ) -> None:
        """What an optimizer trains and nobody keeps (`unkept`): once an optimizer and tensor. Frozen ones are not meant.

        Args:
            others: identities of parameters of optimizers that no module of the state gives as they are.
            kept: the tensors in the image, by name.
            words: what objects have said in words of their own.
        """
        others = others - set(map(id, kept.values()))
        in_groups = {path: [p for p in parameters_of(o) if id(p) in others] for path, o in optimizers.items()}
        # Looked at only when something has changed: it takes longer than the rest of a capture.
        look = list(kept), {path: [(id(p), p.requires_grad) for p in found] for path, found in in_groups.items()}
        if look == self._look:
            return
        self._look = look
        missing = unkept(state, kept, words)
        for path, found in in_groups.items():
            names = [missing[id(p)][0] for p in found if p.requires_grad and id(p) in missing]
            if new := [name.removeprefix(f"{path}: ") for name in names if (path, name) not in self._unkept]:
                self._unkept.update((path, name) for name in names)
                log.warning(
                    "%s trains %s%s, and neither that nor its memory is kept under any name. Unless the program brings it "
                    "back itself, a resumed run begins it anew, beside the moments of the old one. Put it into the state, "
                    "or let the state_dict() of its module give it",
                    path, new[0], f" and {len(new) - 1} more" if new[1:] else "",
                )  # fmt: skip
