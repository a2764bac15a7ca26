"""Modules that run another one: their names are left out where they add nothing, and they are kept where they do."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DataParallel, DistributedDataParallel

from hinan.trainer.state.modules import unwrap
from tests.exact.twins import assert_resumes, training
from tests.trainer.helpers import evacuate, through


@pytest.fixture
def group(tmp_path: Path) -> Any:
    dist.init_process_group("gloo", init_method=f"file://{tmp_path}/group", rank=0, world_size=1)
    yield
    dist.destroy_process_group()


class Tempered(DataParallel[nn.Module]):
    """Trains a parameter of its own, and counts."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__(module)
        self.scale = nn.Parameter(torch.ones(1))
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> Any:
        self.seen += 1
        return self.module(x) * self.scale / self.seen


class TemperedDdp(DistributedDataParallel):
    def __init__(self, module: nn.Module) -> None:
        super().__init__(module)
        self.scale = nn.Parameter(torch.ones(1))
        self.seen = 0

    def forward(self, x: torch.Tensor) -> Any:
        self.seen += 1
        return super().forward(x) * self.scale / self.seen

    def state_dict(self, *arguments: Any, **options: Any) -> Any:
        return super().state_dict(*arguments, **options) | {"seen": self.seen}

    def load_state_dict(self, entries: Any, strict: bool = True) -> Any:  # type: ignore[override]
        self.seen = entries.pop("seen")
        return super().load_state_dict(entries, strict)


class OfTwo(nn.Module):
    """Calls the module that it has compiled as torch.compile does, and has a head beside it."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self._orig_mod, self.head = module, nn.Linear(2, 2)

    def forward(self, x: torch.Tensor) -> Any:
        return self.head(self._orig_mod(x))


class Noted(DataParallel[nn.Module]):
    """What it adds is no tensor."""

    seen = 0

    def forward(self, x: torch.Tensor) -> Any:
        self.seen += 1
        return self.module(x) / self.seen

    def get_extra_state(self) -> Any:
        return self.seen

    def set_extra_state(self, state: Any) -> None:
        self.seen = state


def compiled(module: nn.Module) -> nn.Module:
    wrapped: nn.Module = torch.compile(module, backend="eager")
    return wrapped


@pytest.mark.usefixtures("group")
@pytest.mark.parametrize("wrap", [Tempered, TemperedDdp, OfTwo, Noted, lambda m: compiled(Tempered(m))])
def test_what_a_wrapper_adds_is_kept(wrap: Callable[[nn.Module], nn.Module]) -> None:
    assert_resumes(training(lambda: wrap(nn.Linear(4, 2))), at=(1, 3))


class OnlyRuns(DistributedDataParallel):
    def forward(self, *arguments: Any, **options: Any) -> Any:
        return super().forward(*arguments, **options)


@pytest.mark.usefixtures("group")
@pytest.mark.parametrize("wrap", [
    DataParallel, DistributedDataParallel, OnlyRuns, compiled, lambda m: compiled(DistributedDataParallel(m)),
    lambda m: DataParallel(compiled(m)),
])  # fmt: skip
def test_names_do_not_depend_on_a_wrapper_that_only_runs(wrap: Callable[[nn.Module], nn.Module]) -> None:
    bare = nn.Linear(4, 2)
    wrapped = wrap(bare)
    assert unwrap(wrapped) is bare
    assert evacuate({"m": wrapped})[1]["state"]["m"] == {"$module": {"tensors": ["weight", "bias"], "extras": {}}}


def test_a_wrapper_that_hooks_are_on_is_a_module_like_any_other() -> None:
    wrapped: nn.Module = DataParallel(nn.Linear(4, 2))
    wrapped.register_state_dict_post_hook(lambda *arguments: None)
    assert unwrap(wrapped) is wrapped


@pytest.mark.parametrize(
    "make", [torch.jit.script, lambda m: torch.jit.trace(m, torch.ones(1, 4))], ids=["script", "trace"]
)
@pytest.mark.parametrize("is_part", [False, True])
def test_modules_of_torch_script_are_kept(make: Callable[[nn.Module], nn.Module], is_part: bool) -> None:
    """Their dictionaries of parameters and children are none of Python's."""

    def model() -> nn.Module:
        scripted = make(nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4)).eval())
        return nn.Sequential(scripted, nn.Linear(4, 1)) if is_part else scripted

    saved, live = model(), model()
    through({"m": saved}, {"m": live})
    for one, other in zip(saved.state_dict().values(), live.state_dict().values(), strict=True):
        assert torch.equal(one, other)
