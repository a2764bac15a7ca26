"""Which bytes are copied, once, and how each tensor is found again: the zoo of dtypes, layouts, ties and views."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from safetensors import safe_open

from hinan.core.errors import CaptureError
from hinan.formats.image import PADDING_NAME
from tests.trainer.helpers import bits, evacuate, saved_tensors, through

ZOO = {
    "bf16": lambda: torch.randn(5, 3).bfloat16(),
    "fp16": lambda: torch.randn(7).half(),
    "fp8_e4m3": lambda: torch.randn(9).to(torch.float8_e4m3fn),
    "fp8_e5m2": lambda: torch.randn(9).to(torch.float8_e5m2),
    "fp64": lambda: torch.randn(2, 2, dtype=torch.float64),
    "complex64": lambda: torch.randn(4, dtype=torch.complex64),
    "complex128": lambda: torch.randn(4, dtype=torch.complex128),
    "conj": lambda: torch.randn(4, dtype=torch.complex64).conj(),
    "imag_of_conj": lambda: torch.randn(4, dtype=torch.complex64).conj().imag,
    "bool": lambda: torch.tensor([True, False, True]),
    "uint8": lambda: torch.arange(255, dtype=torch.uint8),
    "uint64": lambda: torch.tensor([2**63 + 1], dtype=torch.uint64),
    "int64": lambda: torch.tensor([2**62 + 1, -1]),
    "scalar": lambda: torch.tensor(3.5),
    "empty": lambda: torch.empty(0, 3),
    "transposed": lambda: torch.randn(4, 6).t(),
    "every_second": lambda: torch.randn(4, 6)[:, ::2],
    "expanded": lambda: torch.randn(1, 5).expand(4, 5),
    "channels_last": lambda: torch.randn(2, 3, 4, 4).to(memory_format=torch.channels_last),
    "nan_payload": lambda: torch.tensor([0x7FC12345, -0x3EDCBB], dtype=torch.int32).view(torch.float32),
    "minus_zero": lambda: torch.tensor([-0.0, 1e-45]),
}  # fmt: skip


@pytest.mark.parametrize("kind", ZOO)
def test_zoo_round_trips_bit_for_bit(kind: str) -> None:
    """A-SHAPE-4: value bits, dtype and shape of every kind of tensor survive; strides are the live tensor's own."""
    saved = ZOO[kind]()
    fresh = ZOO[kind]()
    if kind == "expanded":  # its elements share bytes; it is a value, not something to write into
        image, _, _ = evacuate({"t": saved})
        assert bits(saved_tensors(image)["t"].copy()) == bits(saved)
        return
    before = fresh.stride()
    through({"t": saved}, {"t": fresh})
    assert (fresh.dtype, fresh.shape, fresh.stride()) == (saved.dtype, saved.shape, before)
    assert bits(fresh) == bits(saved)


def test_safetensors_opens_an_image_and_shows_the_users_tensors(tmp_path: Path) -> None:
    """A stock reader sees each tensor under its name with its values, whatever its strides were."""
    state = {"a": torch.randn(3, 5), "t": torch.randn(4, 6).t(), "i": torch.arange(3), "n": {"x": torch.ones(2).bfloat16()}}
    image, _, _ = evacuate(state)
    path = tmp_path / "image.safetensors"
    path.write_bytes(image)
    with safe_open(path, "pt") as found:
        assert set(found.keys()) - {PADDING_NAME} == {"a", "t", "i", "n.x"}
        for name, tensor in {"a": state["a"], "t": state["t"], "i": state["i"], "n.x": state["n"]["x"]}.items():
            assert torch.equal(found.get_tensor(name), tensor)


def test_a_tie_is_stored_once_and_stays_a_tie() -> None:
    """A-SHAPE-3: head.weight is emb.weight: one copy in the image, one storage after the restore."""

    def tied() -> torch.nn.Module:
        model = torch.nn.Module()
        model.emb, model.head = torch.nn.Embedding(100, 8), torch.nn.Linear(8, 100, bias=False)
        model.head.weight = model.emb.weight
        return model

    saved, live = tied(), tied()
    _, _, plan = evacuate({"m": saved})
    assert sum(e.size_bytes for e in plan.header.entries) == 100 * 8 * 4
    through({"m": saved}, {"m": live})
    assert live.head.weight is live.emb.weight
    assert bits(live.head.weight) == bits(saved.emb.weight)


def test_a_tie_restores_into_untied_and_untied_equal_into_tied() -> None:
    """Values count, not identities; unequal values for one live storage are refused by name."""
    a = torch.randn(6)
    untied = {"x": torch.zeros(6), "y": torch.zeros(6)}
    through({"x": a, "y": a}, untied)
    assert bits(untied["x"]) == bits(untied["y"]) == bits(a)
    one = torch.zeros(6)
    through({"x": a, "y": a.clone()}, {"x": one, "y": one})
    assert bits(one) == bits(a)
    with pytest.raises(Exception, match="shares its storage"):
        through({"x": a, "y": a + 1}, {"x": one, "y": one})


def test_small_views_cost_their_own_size() -> None:
    """A-SHAPE-5: a 10-element view of 4 MB costs 40 bytes; 64 views that tile one storage are stored once."""
    big = torch.randn(1 << 20)
    _, _, plan = evacuate({"v": big[100:110]})
    assert sum(e.size_bytes for e in plan.header.entries) == 40
    tiles = {f"t{i}": big[i * 16384 : (i + 1) * 16384] for i in range(64)}
    _, _, plan = evacuate(tiles)
    assert sum(e.size_bytes for e in plan.header.entries) == big.nbytes


def test_overlapping_views_share_their_bytes() -> None:
    """A base and its views, and views without a base, are each stored once and come back as they were."""
    base = torch.randn(4, 6)
    _, _, plan = evacuate({"base": base, "column": base[:, 1], "row": base[2]})
    assert sum(e.size_bytes for e in plan.header.entries) == base.nbytes
    live = torch.zeros(4, 6)
    through({"base": base, "column": base[:, 1], "row": base[2]}, {"base": live, "column": live[:, 1], "row": live[2]})
    assert bits(live) == bits(base)
    flat = torch.randn(10)
    image, _, plan = evacuate({"a": flat[:6], "b": flat[4:]})
    assert sum(e.size_bytes for e in plan.header.entries) == flat.nbytes
    assert bits(saved_tensors(image)["a"].copy()) == bits(flat[:6])
    assert bits(saved_tensors(image)["b"].copy()) == bits(flat[4:])


def test_same_bytes_as_two_dtypes() -> None:
    """A view by another dtype shares its bytes too."""
    flat = torch.randn(8)
    image, _, plan = evacuate({"f": flat, "i": flat.view(torch.int32)})
    assert sum(e.size_bytes for e in plan.header.entries) == flat.nbytes
    assert bits(saved_tensors(image)["i"].copy()) == bits(flat)


@pytest.mark.parametrize(
    ("tensor", "word"),
    [
        (lambda: torch.eye(3).to_sparse(), "sparse"),
        (lambda: torch.empty(3, device="meta"), "meta"),
        pytest.param(
            lambda: torch.quantize_per_tensor(torch.randn(3), 0.1, 0, torch.qint8),
            "quantised",
            marks=pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor"),
        ),
    ],
)
def test_what_has_no_plain_bytes_is_refused_by_path(tensor: object, word: str) -> None:
    """The message names the path in the state, the kind, and the way out."""
    with pytest.raises(CaptureError, match=rf"n\.x.*{word}"):
        evacuate({"n": {"x": tensor()}})  # type: ignore[operator]
