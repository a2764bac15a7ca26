"""Which tensors can be kept: those with bytes of their own, which can be copied. The others are refused by name."""

from __future__ import annotations

import torch
from torch import nn

from hinan.core.errors import CaptureError

_SHARDED = ("DTensor", "ShardedTensor", "FlatParameter")


def is_supported(tensor: torch.Tensor) -> bool:
    """Whether a tensor has bytes of its own that can be copied. Asked for every tensor at every evacuation."""
    return (
        tensor.layout is torch.strided
        and not (tensor.is_quantized or tensor.is_nested or tensor.is_meta)
        and (
            type(tensor) in (torch.Tensor, nn.Parameter)
            or not (type(tensor).__name__ in _SHARDED or nn.parameter.is_lazy(tensor) or is_wrapper(tensor))
        )
    )


def is_wrapper(tensor: torch.Tensor) -> bool:
    """Whether a class answers for its tensors itself. Its bytes are in tensors inside, or nowhere: as where they lie torch
    shows a null pointer, and a copy from there ends the process."""
    return type(tensor).__torch_dispatch__ is not torch.Tensor.__torch_dispatch__


def unsupported(path: str, tensor: torch.Tensor) -> CaptureError:
    """Why a tensor cannot be kept: path, kind and the way out."""
    kind = type(tensor).__name__
    if kind in _SHARDED:
        why = f"is sharded ({kind}); sharded state is not supported yet. Use replicated (DDP) or one-process state."
    elif nn.parameter.is_lazy(tensor):
        why = "belongs to a lazy module and has no values yet; run the module once first"
    elif is_wrapper(tensor):
        why = (
            f"is a {kind}, a tensor subclass with a __torch_dispatch__ of its own: its bytes are in tensors that only it "
            "knows. Keep those instead: by a state_dict() of the module or optimizer that gives them"
        )
    elif tensor.is_meta:
        why = "is on the meta device and has no values; materialise it first"
    else:
        why = (
            f"is a {tensor.layout} tensor{' (quantised)' if tensor.is_quantized else ''}; only dense strided tensors can "
            "be kept. Keep its parts (indices, values) instead."
        )
    return CaptureError(f"{path} {why}", path=path)
