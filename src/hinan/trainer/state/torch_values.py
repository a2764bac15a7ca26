"""Plain values with a type of torch's own, and generators: how they are written as typed JSON."""

from __future__ import annotations

import base64

import torch

from hinan.core.errors import CaptureError
from hinan.formats.values import Json, encode_value
from hinan.trainer.state.rng import random_kind, random_state, seed_of


def torch_value(path: str, value: object) -> Json | None:
    """The typed JSON of a value that torch, NumPy or Python made; None for everything else.

    Raises:
        CaptureError: a loader that has no position to keep, a generator whose seed cannot be kept.
    """
    if isinstance(value, torch.Generator):
        text = base64.b64encode(value.get_state().numpy().tobytes()).decode()
        return {"$generator": [value.device.type, text]}
    if (kind := random_kind(value)) is not None:
        return {"$random": [kind, *_random_values(path, value)]}
    if isinstance(value, torch.dtype):
        return {"$dtype": str(value).removeprefix("torch.")}
    if isinstance(value, torch.Size):
        return {"$size": list(value)}
    if isinstance(value, torch.device):
        return {"$device": str(value)}
    if isinstance(value, torch.utils.data.DataLoader) and not hasattr(value, "state_dict"):
        raise CaptureError(
            f"{path} is a plain DataLoader: it has no position that could be kept, and making its iterator draws from "
            "the global generator. Use torchdata.stateful_dataloader.StatefulDataLoader, or an object of yours with "
            "state_dict() and load_state_dict() that makes its iterator in load_state_dict().",
            path=path,
        )
    return None


def _random_values(path: str, value: object) -> list[Json]:
    """State and, where it can spawn others, seed of a generator."""
    try:
        seed = seed_of(value)
    except TypeError as error:
        raise CaptureError(f"{path} cannot be kept: {error}. Make the generator from one, or a number", path=path) from None
    parts = [random_state(value)] if seed is None else [random_state(value), seed]
    return [encode_value(part, lambda at, leaf: None, path) for part in parts]
