"""Models whose tensors share bytes, are computed from others, or lie in an order of their own."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import nn

from tests.exact.twins import Ends, Step, assert_resumes, assert_same, evacuated, look, restored, seed, training
from tests.trainer.helpers import evacuate


class Tied(nn.Module):
    """Embedding and head are one tensor; half of it is a buffer, too."""

    def __init__(self) -> None:
        super().__init__()
        self.emb = nn.Embedding(50, 8)
        self.mid = nn.Linear(8, 8)
        self.head = nn.Linear(8, 50, bias=False)
        self.head.weight = self.emb.weight
        self.register_buffer("rows", self.emb.weight.detach()[:25])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.head(torch.tanh(self.mid(self.emb(x))))
        return y + self.rows.sum()


def tokens() -> torch.Tensor:
    return torch.randint(50, (4,))


def test_ties_and_aliases_go_on() -> None:
    """A-SHAPE-3: stored once, with its optimizer state once; one storage afterwards, which training moves as one."""
    straight, resumed = assert_resumes(training(Tied, tokens), at=(1, 3))
    for end in (straight, resumed):
        model, optim = end["model"], end["optim"]
        assert model.head.weight is model.emb.weight
        assert model.rows.data_ptr() == model.emb.weight.data_ptr()
        assert len(optim.state) == 3
    _, _, plan = evacuate(straight)
    kept = sum(e.size_bytes for e in plan.header.entries)
    assert kept == sum(p.nbytes for p in straight["model"].parameters()) * 3 + 3 * 4


class Tiles(nn.Module):
    """64 parameters that tile one storage, as flattening wrappers make them; one more starts within a larger storage."""

    def __init__(self) -> None:
        super().__init__()
        self.flat = torch.randn(64 * 32)
        self.tiles = nn.ParameterList(nn.Parameter(self.flat[i * 32 : (i + 1) * 32]) for i in range(64))
        self.small = nn.Parameter(torch.randn(1 << 14)[100:132])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.stack([*self.tiles]).matmul(x).sum() + self.small.sum()


def test_small_views_and_tiles_go_on() -> None:
    """A-SHAPE-5: 64 views that tile one storage are stored once, a small view at its own size; they stay views."""
    straight, resumed = assert_resumes(training(Tiles, lambda: torch.randn(32), torch.optim.SGD), at=(1, 3))
    for end in (straight, resumed):
        model = end["model"]
        assert all(tile.data_ptr() == model.flat[i * 32].data_ptr() for i, tile in enumerate(model.tiles))
        assert torch.equal(torch.cat([*model.tiles]), model.flat)
    image, _, plan = evacuate(resumed)
    assert sum(e.size_bytes for e in plan.header.entries) == resumed["model"].flat.nbytes + 32 * 4
    assert len(image) < 1 << 15


def convolution() -> nn.Module:
    layers = nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Conv2d(4, 2, 2), nn.GroupNorm(2, 2))
    return layers.to(memory_format=torch.channels_last)


def normed() -> nn.Module:
    """Weights that are computed from others, with buffers that move in each forward in training."""
    layer = nn.utils.parametrizations.spectral_norm(nn.Linear(4, 4))
    return nn.Sequential(layer, nn.utils.parametrizations.weight_norm(nn.Linear(4, 2)), nn.Dropout(0.2))


class Complex(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.randn(3, 4, dtype=torch.complex64))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x.to(torch.complex64) @ self.w


class Last(nn.Module):
    """An LSTM's outputs: its weights lie in a list of the module's, too."""

    def __init__(self) -> None:
        super().__init__()
        self.lstm = nn.LSTM(3, 4, 2, dropout=0.2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.lstm(x)[0]
        return y


KINDS = {"channels_last": (convolution, (2, 3, 6, 6)), "parametrized": (normed, (5, 4)), "complex": (Complex, (2, 3)),
         "lstm": (Last, (4, 2, 3))}  # fmt: skip
OPTIMIZERS = [torch.optim.Adam, torch.optim.Adafactor, torch.optim.SGD]


@pytest.mark.parametrize(
    ("kind", "optimizer"),
    [(kind, o) for kind in KINDS for o in OPTIMIZERS if (kind, o) != ("complex", torch.optim.Adafactor)],  # it takes none
)
def test_models_of_their_own_kind(kind: str, optimizer: Any) -> None:
    """A-SHAPE-4: moments in channels_last keep their order, in which sums are taken; so do computed and complex weights."""
    build, shape = KINDS[kind]
    assert_resumes(training(build, lambda: torch.randn(shape), optimizer), at=(1, 3))


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float64])
def test_models_of_another_precision(dtype: torch.dtype) -> None:
    """Parameters, moments and BatchNorm statistics of a model in half or double precision."""
    build = lambda: nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 1)).to(dtype)  # noqa: E731
    assert_resumes(training(build, lambda: torch.randn(6, 4).to(dtype)))


def masters() -> tuple[dict[str, Any], Step]:
    """bfloat16 weights and float32 masters, which the optimizer's state refers to, as wrappers for mixed precision do."""
    model = nn.Linear(4, 2).bfloat16()
    copies = [nn.Parameter(p.detach().float()) for p in model.parameters()]
    optim = torch.optim.Adam(copies, lr=0.01)
    state = {"model": model, "masters": copies, "optim": optim}

    def step() -> torch.Tensor:
        loss = model(torch.randn(3, 4).bfloat16()).float().square().mean()
        model.zero_grad()
        loss.backward()
        for p, copy in zip(model.parameters(), copies, strict=True):
            assert p.grad is not None
            copy.grad = p.grad.float()
        optim.step()
        for p, copy in zip(model.parameters(), copies, strict=True):
            p.data.copy_(copy)
        return loss.detach()

    return state, step


def test_float32_masters_of_bfloat16_weights() -> None:
    """D8: nothing is cast to the parameter's dtype, and both copies come back."""
    straight, resumed = assert_resumes(masters, at=(1, 3))
    assert {e["exp_avg"].dtype for e in resumed["optim"].state.values()} == {torch.float32}
    assert straight["model"].weight.dtype == torch.bfloat16


@pytest.mark.parametrize("optimizer", [torch.optim.SGD, torch.optim.Adagrad, torch.optim.Adam])
def test_a_toy_net_with_dropout_and_schedule(optimizer: Any) -> None:
    """A-EXACT-6: 4 epochs of 3 batches with and without a resume after each: the difference of losses is exactly 0."""

    def make() -> tuple[dict[str, Any], Step]:
        model = nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Dropout(0.5), nn.Linear(8, 1))
        optim = optimizer(model.parameters(), lr=0.1)
        schedule = torch.optim.lr_scheduler.StepLR(optim, 1, 0.5)
        state = {"model": model, "optim": optim, "sched": schedule, "n": [0]}
        data = torch.linspace(-1, 1, 60).reshape(12, 5)

        def step() -> torch.Tensor:
            at = state["n"][0] % 3
            optim.zero_grad()
            loss = model(data[4 * at : 4 * at + 4]).square().mean()
            loss.backward()
            optim.step()
            state["n"][0] += 1
            if at == 2:
                schedule.step()
            return loss.detach()

        return state, step

    ends: Ends = assert_resumes(make, steps=12, at=(3, 6, 9))
    assert ends[0]["optim"].param_groups[0]["lr"] == ends[1]["optim"].param_groups[0]["lr"] == 0.1 / 16


def test_memory_that_processes_share_stays_shared() -> None:
    """D8: `share_memory()` before training: neither saving nor restoring takes a parameter out of the shared memory."""
    (saved, step), (live, _) = training(normed, lambda: torch.randn(5, 4))(), training(normed, lambda: torch.zeros(5, 4))()
    for state in (saved, live):
        state["model"].share_memory()
    step()
    restored(*evacuated(saved), live)  # which says that saving changed neither addresses nor `is_shared()`
    assert all(p.is_shared() for state in (saved, live) for p in state["model"].parameters())
    assert_same(look(live), look(saved), "state")


@pytest.mark.parametrize("which", ["saved", "live"])
def test_names_do_not_depend_on_how_a_model_is_run(which: str) -> None:
    """A model behind `torch.compile` is the model: it is saved and restored under its own names, and trains on."""
    (saved, step), (live, live_step) = (training(normed, lambda: torch.randn(5, 4))() for _ in range(2))
    step()
    wrapped = {"saved": saved, "live": live}[which]
    wrapped["model"] = torch.compile(wrapped["model"], backend="eager")
    restored(*evacuated(saved), live)
    losses = []
    for go_on in (step, live_step):
        seed(3)
        losses.append(look(go_on()))
    assert_same(losses[0], losses[1], "loss")
    assert_same(look(live["optim"]), look(saved["optim"]), "optim")
