"""Containers, arrays and buffers of the loop's that are written in place: which can be, and how.

The loop may hold what it has put into the state (a replay buffer, a set of what it has seen), and go on with that.
"""

from __future__ import annotations

import random
from collections import Counter, deque
from collections.abc import Mapping, MutableMapping, MutableSequence, Sequence
from typing import Any

import numpy as np
import torch

from hinan.core.errors import StructureError
from hinan.formats.values import KEYED, Json, stored_dtype
from hinan.trainer.restoring.saved import SavedTensors
from hinan.trainer.state.attributes import has

PAIRS = (*KEYED, "$counter")
"""Tags of mappings that hold [key, value] pairs."""


def can_become(live: object, json: Json, tensors: SavedTensors) -> bool:
    """Whether a live container, array or buffer can be written in place with what was saved."""
    if isinstance(json, list):
        if isinstance(live, deque) and live.maxlen is not None and len(json) > live.maxlen:
            return False
        return isinstance(live, MutableSequence) and not isinstance(live, bytearray)
    if not isinstance(json, dict):
        return False
    tag = next(iter(json), "") if len(json) == 1 else ""
    if tag == "$array":
        return _takes(live, stored_dtype(json[tag][0]), json[tag][1])
    if tag == "$deque":
        return type(live) is deque
    if tag == "$ndarray":
        return _takes(live, *tensors[json[tag]].dtype_and_shape_as_array)
    exact = {"$set": set, "$bytearray": bytearray, "$counter": Counter}
    if tag in exact:
        return type(live) is exact[tag]
    return isinstance(live, MutableMapping) and (tag in KEYED or not tag.startswith("$"))


def refuse_other_room(path: str, saved: int | None, live: deque[Any]) -> None:
    """A deque that is written in place must drop as many members as the saved one."""
    if saved != live.maxlen:
        raise StructureError(
            f"{path} was saved as a deque with maxlen={saved} and has maxlen={live.maxlen} now; make it as it was, and "
            "another one from it after restore()",
            path=path,
        )


def _takes(live: object, dtype: np.dtype[Any], shape: Sequence[int]) -> bool:
    """Whether a live array has this dtype and shape, and can be written; a subclass may hold more than its values."""
    return type(live) is np.ndarray and live.flags.writeable and live.dtype == dtype and list(live.shape) == list(shape)


def place_of(live: object) -> tuple[object, ...]:
    """Where a live value's contents are: arrays may be different objects over the same bytes."""
    if isinstance(live, np.ndarray):
        return live.__array_interface__["data"][0], live.dtype, live.shape, live.strides
    return (id(live),)


def is_same(a: Json, b: Json, tensors: SavedTensors) -> bool:
    """Whether two saved values are the same, with the tensors that they name."""
    if a is b:
        return True
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(is_same(x, y, tensors) for x, y in zip(a, b, strict=True))
    if not (isinstance(a, dict) and isinstance(b, dict)):
        return type(a) is type(b) and bool(a == b)
    if a.keys() != b.keys():
        return False
    if "$tensor" in a:
        return tensors[a["$tensor"][0]].is_same(tensors[b["$tensor"][0]])
    if "$ndarray" in a:
        return tensors[a["$ndarray"]].is_same(tensors[b["$ndarray"]])
    return all(is_same(a[key], b[key], tensors) for key in a)


def fill(live: object, value: Any, path: str) -> None:
    """Give an array, set or bytearray the contents of another one, in place.

    Raises:
        StructureError: a bytearray cannot get another length now.
    """
    if isinstance(live, np.ndarray):
        np.copyto(live, value)
    elif isinstance(live, set):
        live.clear()
        live.update(value)
    elif isinstance(live, bytearray):
        try:
            live[:] = value
        except BufferError as error:
            raise StructureError(
                f"{path} was saved with {len(value)} bytes and has {len(live)} now, and a memoryview or an array looks "
                "into it; make that after restore(). The state is written in part: do not train on it.",
                path=path,
            ) from error


def resize(live: MutableSequence[Any], length: int, rest: Sequence[Any]) -> None:
    """Cut a sequence off behind its first members, and put others there."""
    if type(live) is list:
        live[length:] = rest  # in one call: a signal's handler may raise between any two
    elif isinstance(live, deque):
        while len(live) > length:
            live.pop()
        live.extend(rest)
    else:
        del live[length:]
        live.extend(rest)


def take_out(live: MutableMapping[Any, Any], keys: Sequence[Any]) -> None:
    """Remove members of a mapping."""
    for key in keys:
        live.pop(key, None)


def is_data(value: object) -> bool:
    """Whether a value is plain data all through: nothing in it loads a state, draws numbers or is trained."""
    if isinstance(value, Mapping):
        return all(map(is_data, value.values()))
    if isinstance(value, list | tuple | deque):
        return all(map(is_data, value))
    if isinstance(value, torch.Tensor):
        return not value.requires_grad
    is_generator = isinstance(value, torch.Generator | np.random.Generator | np.random.RandomState | random.Random)
    return not (is_generator or has(value, "load_state_dict"))
