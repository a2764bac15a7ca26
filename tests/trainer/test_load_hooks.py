"""The hooks that let torch's strict load go without what a module leaves out do nothing outside that load."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import nn

from hinan.trainer.state.calling_modules import load_module


class CopiesItself(nn.Module):
    """A frozen base that is left out of the state, and an average that is made anew as the module is loaded."""

    def __init__(self) -> None:
        super().__init__()
        self.base, self.head = nn.Linear(2, 2), nn.Linear(2, 2)
        self.average: list[nn.Module] = []

    def state_dict(self, *args: Any, **kwargs: Any) -> Any:
        return {name: value for name, value in super().state_dict(*args, **kwargs).items() if "base" not in name}

    def load_state_dict(self, state_dict: Any, strict: bool = True, assign: bool = False) -> Any:
        found = super().load_state_dict(state_dict, strict, assign)
        self.average = [copy.deepcopy(self)]
        return found


def test_a_copy_that_was_made_in_the_load_misses_what_torch_misses() -> None:
    module, saved = CopiesItself(), CopiesItself()
    entries = dict(saved.state_dict())
    load_module(module, entries, ["base.weight", "base.bias"])
    assert torch.equal(module.head.weight, saved.head.weight)
    for one in (module, *module.average):
        with pytest.raises(RuntimeError, match="Missing key"):
            nn.Module.load_state_dict(one, entries)
