"""Every kind of tensor in every place a state can hold one: buffer, dict, list, optimizer state, into other layouts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from tests.exact.twins import assert_same, evacuated, look, places, restored
from tests.trainer.helpers import bits
from tests.trainer.test_layout import ZOO

FLOATS = [k for k, make in ZOO.items() if make().is_floating_point() and k not in ("expanded", "empty")]


def other_bits(tensor: torch.Tensor) -> torch.Tensor:
    """A tensor of the same dtype and shape that holds nothing but zeros, laid out by the caller."""
    return torch.zeros(tensor.shape, dtype=tensor.dtype)


LAYOUTS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "contiguous": other_bits,
    "reversed strides": lambda t: torch.zeros([*reversed(t.shape)], dtype=t.dtype).permute([*reversed(range(t.dim()))]),
    "gaps": lambda t: torch.zeros(*t.shape, 2, dtype=t.dtype)[..., 1],
    "within a larger storage": lambda t: torch.zeros(t.numel() + 3, dtype=t.dtype)[3:].view(t.shape),
}


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("kind", ZOO)
def test_into_a_live_tensor_of_another_layout(kind: str, layout: str) -> None:
    """A-SHAPE-4: values come by bits and keep the live tensor's own strides; what lies between its elements stays."""
    saved, live = ZOO[kind](), LAYOUTS[layout](ZOO[kind]())
    before = places(live)[:2], live.stride(), live.is_shared()
    around = live.untyped_storage().nbytes() - live.nbytes
    restored(*evacuated({"t": saved}), {"t": live})
    assert bits(live) == bits(saved)
    assert (places(live)[:2], live.stride(), live.is_shared()) == before
    whole = torch.empty(0, dtype=torch.uint8).set_(live.untyped_storage())
    live.zero_()
    assert live.untyped_storage().nbytes() - live.nbytes == around
    assert not whole.any()


@pytest.mark.parametrize("kind", ZOO)
def test_where_no_live_tensor_waits(kind: str) -> None:
    """A-SHAPE-4: in optimizer state and in containers that are empty yet, the tensor is new: same bits, dtype and shape.
    Strides of a dense permutation (channels_last, transposed) are kept, others are packed: what torch's own copy does."""
    parameter, other = torch.nn.Parameter(torch.ones(2)), torch.nn.Parameter(torch.ones(2))
    optim, fresh = torch.optim.SGD([parameter]), torch.optim.SGD([other])
    saved = ZOO[kind]()
    optim.state[parameter] = {"kind": saved, "in": [(saved.clone(), None)]}
    live: dict[str, Any] = {"o": fresh, "list": [], "dict": {}}
    restored(*evacuated({"o": optim, "list": [saved], "dict": {"x": ZOO[kind]()}}), live)
    for found in (fresh.state[other]["kind"], fresh.state[other]["in"][0][0], live["list"][0]):
        assert (found.dtype, found.shape, found.device) == (saved.dtype, saved.shape, saved.device)
        assert bits(found) == bits(saved)
        assert found.stride() == torch.empty_like(saved).stride()
        assert found.is_contiguous() or found.untyped_storage().nbytes() == found.nbytes
    assert live["dict"]["x"].dtype == saved.dtype


@pytest.mark.parametrize("kind", ZOO)
def test_in_a_module(kind: str) -> None:
    """A-SHAPE-4: as a buffer, and as a frozen parameter where its dtype may be one."""

    def module() -> torch.nn.Module:
        holder = torch.nn.Module()
        holder.register_buffer("kind", ZOO[kind]())
        if kind in FLOATS:
            holder.held = torch.nn.Parameter(ZOO[kind](), requires_grad=False)
        return holder

    saved, live = module(), module()
    if kind == "expanded":
        live.kind = torch.zeros(4, 5)
        saved_look = bits(saved.kind)
        restored(*evacuated({"m": saved}), {"m": live})
        assert bits(live.kind) == saved_look
        return
    restored(*evacuated({"m": saved}), {"m": live})
    assert_same(look(live), look(saved), "m")


def test_dimensions_of_size_one_with_odd_strides() -> None:
    """A-SHAPE-4: torch calls them contiguous and yet refuses to view them as bytes; lazily conjugated ones too."""
    real, other = torch.randn(3, 2), torch.randn(3, 2, dtype=torch.complex64)
    for saved in (
        real[:1, 1],
        real[1:2, 1],
        other[1:2, 0].conj(),
        other[2:, 1].conj().imag,
        torch.randn(2, 1, 3)[..., ::3],
    ):
        live = torch.zeros(saved.shape, dtype=saved.dtype)
        restored(*evacuated({"t": saved, "same": saved}), {"t": live, "same": live})
        assert bits(live) == bits(saved)


def test_a_conjugate_beside_what_it_is_a_view_of() -> None:
    """A-SHAPE-4: a lazy view has values that no bytes hold: it is kept by value, beside its base and not as its bytes."""
    for aliased in (True, False):
        base, other = torch.randn(5, dtype=torch.complex64), torch.zeros(5, dtype=torch.complex64)
        saved = {"base": base, "conj": base.conj(), "imag": base.conj().imag}
        live = {"base": other, "conj": other.conj(), "imag": other.conj().imag}
        if not aliased:
            live = {name: torch.zeros(5, dtype=t.dtype) for name, t in saved.items()}
        restored(*evacuated(saved), live)
        assert {name: bits(t) for name, t in live.items()} == {name: bits(t) for name, t in saved.items()}


def test_every_bit_pattern_of_the_narrow_floats() -> None:
    """A-SHAPE-4: all 65,536 patterns of the 16-bit and all 256 of the 8-bit floats, NaNs with payload among them."""
    for dtype in (torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.float8_e5m2, torch.bool):
        count = 2 if dtype is torch.bool else 1 << 8 * dtype.itemsize
        whole = torch.arange(count, dtype=torch.int32).to(torch.uint16 if dtype.itemsize == 2 else torch.uint8).view(dtype)
        strided = torch.zeros(count, 2, dtype=dtype)[:, 0]
        strided.copy_(whole)
        assert bits(strided) == bits(whole)
        for saved in (whole, strided):
            for live in (torch.zeros(count, dtype=dtype), torch.zeros(count, 2, dtype=dtype)[:, 0]):
                restored(*evacuated({"t": saved}), {"t": live})
                assert bits(live) == bits(whole)


def test_signalling_nans_and_denormals() -> None:
    """A-SHAPE-4: NaN payloads, quiet and signalling, both zeros and the least number, in 32 and 64 bits, as complex too."""
    for dtype, int_dtype in ((torch.float32, torch.int32), (torch.float64, torch.int64)):
        exponent = 0x7F800000 if dtype is torch.float32 else 0x7FF << 52
        patterns = [exponent | 1, exponent | (1 << 20) | 5, -1, exponent, 0, 1, -(2 ** (8 * dtype.itemsize - 1)), 2]
        saved = torch.tensor(patterns, dtype=int_dtype).view(dtype)
        for made in (lambda t: t, lambda t: t.view(2, 4).t(), lambda t: torch.view_as_complex(t.view(4, 2))):
            one, live = made(saved), made(torch.zeros(8, dtype=dtype))
            restored(*evacuated({"t": one}), {"t": live})
            assert bits(live) == bits(one)
