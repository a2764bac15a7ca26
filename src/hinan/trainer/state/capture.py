"""Chooses what is kept: walks the user's state and splits it into named tensors and typed JSON.

Promises:  reading changes nothing live (rules C4, D8): no optimizer step, no new optimizer entries, no resharding.
           Names are unique; what cannot be kept is refused with its path before anything is copied.
Relies on: the walk's order being the same on every rank that holds the same kinds of objects.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn

from hinan.core.errors import CaptureError, HinanError
from hinan.formats.gating import is_moved_by_step
from hinan.formats.values import Json, child, dict_json, encode_value
from hinan.host.signals import ours
from hinan.trainer.state.asking import refuse_unloadable_object, refuse_unset_extras, said
from hinan.trainer.state.attributes import has, says_its_state
from hinan.trainer.state.codecs import codec_for
from hinan.trainer.state.layout import packed_stride
from hinan.trainer.state.loader import follow_loaders, keeps_position, loader_values
from hinan.trainer.state.loading_optimizers import is_plain, said_by
from hinan.trainer.state.many import Many, traits_of
from hinan.trainer.state.modules import ModuleTensors, unwrap
from hinan.trainer.state.naming import optimizer_names, parameter_names
from hinan.trainer.state.outside import named_entries
from hinan.trainer.state.scaler import is_plain_scaler, scaler_values
from hinan.trainer.state.supported import is_supported, unsupported
from hinan.trainer.state.torch_values import torch_value
from hinan.trainer.state.unmakeable import refuse_unmakeable
from hinan.trainer.state.warned import Warned

SPARE_NAMES = 1024
"""Names remembered beyond twice those of the present state before all are forgotten."""

INLINE_ARRAY_BYTES = 1 << 16
"""NumPy arrays up to this size travel in the JSON; larger ones as tensors in the image."""

_TENSOR_ARRAYS = frozenset(
    np.dtype(word) for word in ("?", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "f2", "f4", "f8", "c8", "c16")
)
"""Arrays that torch can look at; those of other byte orders and of extended precision stay in the JSON, however large."""


def _plain(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """An array that torch takes without a word: in C order and writable; a copy where it is not."""
    return np.require(array, requirements=("C", "W"))


BY_HAND = "evac.gate()"
"""The gate of trainable parameters and duck-typed optimizers that no optimizer of torch owns; only the loop can pass it."""


@dataclass
class Captured:
    """What one walk found.

    Attributes:
        tensors: live tensors by name; whoever copies them must do so before they change.
        gates: for each *gated* tensor (rule D1) the gates it waits for: paths of optimizers, or BY_HAND. All other tensors
            are ungated: they may change with the trainer's next operation.
        values: plain values, as typed JSON by key of the state.
        parameters: gates by identity of the parameter; how an optimizer that steps is recognised.
        optimizers: the state's optimizers by path.
        words: typed JSON of what objects have said in words of their own: nobody else can tell what is in there.
    """

    tensors: dict[str, torch.Tensor] = field(default_factory=dict)
    gates: dict[str, tuple[str, ...]] = field(default_factory=dict)
    values: dict[str, Json] = field(default_factory=dict)
    parameters: dict[int, tuple[str, ...]] = field(default_factory=dict)
    optimizers: dict[str, torch.optim.Optimizer] = field(default_factory=dict)
    words: list[Json] = field(default_factory=list)


class Capture:
    """Walks one state again and again. Names of module tensors are looked up once and checked each time."""

    def __init__(self, state: Mapping[str, Any]) -> None:
        self.state = state
        self._modules: dict[int, ModuleTensors] = {}
        self._known: dict[int, str] = {}
        self._leaves: dict[str, tuple[str, Json]] = {}
        self._many_known: dict[str, Many] = {}
        self._made_anew = ""
        self._warned = Warned()
        follow_loaders(state)  # before the loop asks them for an iterator

    def take(self) -> Captured:
        """Everything that is kept, now.

        Raises:
            CaptureError: names the path in the state.
        """
        found = Captured()
        self._known = parameter_names(self.state)
        self._trainable: list[tuple[str, torch.Tensor]] = []
        for key, value in self.state.items():
            found.values[key] = self._entry(found, str(key), value)
        for name, parameter in self._trainable:
            # After the walk: only now all optimizers of the state, and so all owners, are known.
            found.gates[name] = found.parameters.get(id(parameter), (BY_HAND,) if parameter.requires_grad else ())
        others = found.parameters.keys() - {id(parameter) for _, parameter in self._trainable}
        self._trainable = []
        if others:  # almost never: modules give their parameters as they are
            self._warned.of_unkept(self.state, found.optimizers, others, found.tensors, found.words)
        if len(self._leaves) + len(self._many_known) > 2 * len(found.tensors) + SPARE_NAMES:
            self._leaves, self._many_known = {}, {}  # names that are gone: a state may be keyed by what never comes again
        return found

    def _entry(self, found: Captured, path: str, value: object) -> Json:
        """One entry of the state. Whatever its objects raise that was not asked for by itself is said with its path."""
        try:
            return self._encode_live(found, path, value)
        except ours(HinanError):
            raise
        except ours(Exception) as error:
            raise CaptureError(f"{path} cannot be read: {type(error).__name__}: {error}", path=path) from error

    def _encode_live(self, found: Captured, path: str, value: object) -> Json:
        """A value whose place in the live state a restore looks at: it is written into what stands there."""
        return encode_value(value, partial(self._leaf, found, True), path, made_leaf=partial(self._made_leaf, found))

    def _encode(self, found: Captured, path: str, value: object) -> Json:
        """A value that a restore makes anew, such as what a `state_dict()` said."""
        return encode_value(value, partial(self._made_leaf, found), path)

    def _made_leaf(self, found: Captured, path: str, value: object) -> Json | None:
        refuse_unmakeable(path, value)
        return self._leaf(found, False, path, value)

    def _leaf(self, found: Captured, is_live: bool, path: str, value: object) -> Json | None:
        if isinstance(value, torch.Tensor):
            if value.requires_grad and value.is_leaf:
                self._trainable.append((path, value))
            return self._tensor(found, path, value)
        if isinstance(value, nn.Module):
            return self._module(found, path, value)
        if isinstance(value, torch.optim.Optimizer):
            with self._makes_anew(path):
                return self._optimizer(found, path, value)
        if isinstance(value, torch.amp.GradScaler) and is_plain_scaler(value):
            refuse_unloadable_object(path, value)
            return {"$scaler": self._encode(found, path, scaler_values(value))}
        if type(value) is dict or type(value) is list:
            return self._many(found, is_live, path, value)
        if isinstance(value, dict) and _has_parameters(value):
            return self._by_parameter(found, is_live, path, value)
        if type(value) is np.ndarray and value.nbytes > INLINE_ARRAY_BYTES and value.dtype in _TENSOR_ARRAYS:
            return {"$ndarray": self._tensor(found, path, torch.from_numpy(_plain(value)))["$tensor"][0]}
        return torch_value(path, value) or self._object(found, path, value)

    def _object(self, found: Captured, path: str, value: Any) -> Json | None:
        codec = codec_for(value)
        if codec is not None:
            encoded = said(path, value, f"the encode() of its codec {codec.name!r}", partial(codec.encode, value))
            found.words.append(words := self._encode(found, path, encoded))
            return {"$codec": [codec.name, words]}
        if keeps_position(value):
            refuse_unloadable_object(path, value)
            position = said(path, value, "its state_dict()", partial(loader_values, value))
            return {"$loader": self._encode(found, path, position)}
        if says_its_state(value):
            refuse_unloadable_object(path, value)
            before = len(found.tensors)
            with self._makes_anew(path):
                words = said(path, value, "its state_dict()", lambda: value.state_dict())  # noqa: PLW0108 - it may be a property
                json = {"$stateful": self._encode(found, path, words)}
            if not type(value).__module__.startswith("torch."):  # schedulers have no weights
                found.words.append(json)
            if has(value, "step", "zero_grad"):  # an optimizer that torch does not know
                found.gates |= dict.fromkeys(list(found.tensors)[before:], (BY_HAND,))
            return json
        return None

    def _tensor(self, found: Captured, path: str, tensor: torch.Tensor) -> Json:
        if path in found.tensors:
            raise CaptureError(f"two tensors of the state have the name {path}; rename one of the keys", path=path)
        if not is_supported(tensor):
            raise unsupported(path, tensor)
        if self._made_anew:
            self._warned.of_class(path, tensor, self._made_anew)
        found.tensors[path] = tensor
        if not tensor.is_contiguous():
            stride = packed_stride(tensor)
            return {"$tensor": [path, tensor.device.type] if stride is None else [path, tensor.device.type, stride]}
        # The JSON of a leaf is made once: ten thousand new objects at each evacuation would cost more than the copy.
        device_type, json = self._leaves.get(path, ("", None))
        if device_type != (now := tensor.device.type):
            json = {"$tensor": [path, now]}
            self._leaves[path] = now, json
        return json

    @contextmanager
    def _makes_anew(self, owner: str) -> Iterator[None]:
        outer, self._made_anew = self._made_anew, owner
        try:
            yield
        finally:
            self._made_anew = outer

    def _module(self, found: Captured, path: str, module: nn.Module) -> Json:
        bare = unwrap(module)
        names = self._modules.get(id(bare))
        if names is None or not names.still_holds():
            names = self._modules[id(bare)] = ModuleTensors(bare, path)
        tensors, extras = names.read()
        for name, tensor in tensors.items():
            full = f"{path}.{name}"
            self._tensor(found, full, tensor)
            if type(tensor) is nn.Parameter or isinstance(tensor, nn.Parameter):
                self._trainable.append((full, tensor))
        is_plain = names.is_plain(tensors)
        if is_plain:
            refuse_unset_extras(path, bare, extras)
        kept = {name: self._extra(found, f"{path}.{name}", value) for name, value in extras.items()}
        found.words.append(kept)
        if not is_plain:
            found.words += [{"$tensor": [f"{path}.{name}"]} for name in tensors if not names.is_its_own(name)]
        return {"$module": {"tensors": list(tensors), "extras": kept}}

    def _extra(self, found: Captured, path: str, value: object) -> Json:
        """An extra state is made anew, but an enum gets its class from the one that the live module gives."""
        return (self._encode_live if isinstance(value, Enum) else self._encode)(found, path, value)

    def _by_parameter(self, found: Captured, is_live: bool, path: str, value: dict[Any, Any]) -> Json:
        """A dict with parameters as keys (optimizer-in-backward has one optimizer for each): keyed by their names."""
        items = []
        encode = self._encode_live if is_live else self._encode
        for key, item in value.items():
            if not isinstance(key, nn.Parameter):
                items.append([encode_value(key, refuse_unmakeable, path), encode(found, child(path, key), item)])
                continue
            name = self._known.get(id(key))
            if name is None:
                raise CaptureError(
                    f"{path} has a parameter of shape {tuple(key.shape)} as a key that belongs to no module of the state; "
                    "put its module into the state, or key the dict by name",
                    path=path,
                )
            items.append([{"$parameter": name}, encode(found, f"{path}.{name}", item)])
        return dict_json(value, items)

    def _optimizer(self, found: Captured, path: str, optimizer: torch.optim.Optimizer) -> Json:
        names = optimizer_names(optimizer, self._known)
        found.optimizers[path] = optimizer
        for identity in names:
            found.parameters[identity] = (*found.parameters.get(identity, ()), path)
        before = len(found.tensors)
        if not is_plain(optimizer):
            refuse_unloadable_object(path, optimizer)
            found.words.append(words := self._encode(found, path, said_by(optimizer, path)))
            new = itertools.islice(found.tensors, before, None)
            found.gates |= dict.fromkeys(filter(is_moved_by_step, new), (path,))
            parameters = [{"params": [names[id(p)] for p in group["params"]]} for group in optimizer.param_groups]
            return {"$optimizer": {"said": words, "groups": parameters}}
        state, other = self._moments(found, path, optimizer, names)
        found.gates |= dict.fromkeys(itertools.islice(found.tensors, before, None), (path,))
        groups = [
            {
                "params": [names[id(p)] for p in group["params"]],
                "options": self._encode_live(
                    found, f"{path}.groups.[{i}]", {k: v for k, v in group.items() if k not in ("params", "param_names")}
                ),
            }
            for i, group in enumerate(optimizer.param_groups)
        ]
        return {"$optimizer": {"state": state, "other": other, "groups": groups}}

    def _moments(
        self, found: Captured, path: str, optimizer: torch.optim.Optimizer, names: dict[int, str]
    ) -> tuple[list[Json], list[Json]]:
        """An optimizer's state: entries of its parameters by name, and other entries. Looked at as a whole where all of
        it is moments; hundreds of parameters, one by one, take longer than everything else of a capture."""
        entries, left = named_entries(optimizer, names, self._known)
        self._warned.of_moments_outside(path, len(left))
        are_dicts = all(type(entry) is dict for _, _, entry in entries)
        keys = [(name, *entry) for name, _, entry in entries] if are_dicts else []
        items = [item for _, _, entry in entries for item in entry.values()] if are_dicts else []
        if are_dicts and (json := self._as_before(found, path, keys, items)) is not None:
            return json, []
        state, other = [], []
        for name, key, entry in entries:
            if name is not None:
                state.append([name, self._encode(found, f"{path}.{name}", entry)])
            else:
                other.append([encode_value(key, refuse_unmakeable, path), self._encode(found, child(path, key), entry)])
        parts = [part for name, json in state if (part := self._many_known.get(f"{path}.{name}")) and part.json is json]
        if are_dicts and len(parts) == len(entries):
            self._many_known[path] = Many(keys, [p for part in parts for p in part.paths], traits_of(items), state)
        return state, other

    def _as_before(self, found: Captured, path: str, keys: Sequence[object], items: Sequence[Any]) -> Json | None:
        """The JSON of many tensors that are there as they were last time; None if anything about them is new."""
        known = self._many_known.get(path)
        if known is None or not known.fits(keys, items):
            return None
        count = len(found.tensors) + len(known.paths)
        found.tensors.update(zip(known.paths, items, strict=True))
        if len(found.tensors) != count:
            raise CaptureError(f"two tensors of the state have names below {path}; rename one of the keys", path=path)
        return known.json

    def _many(self, found: Captured, is_live: bool, path: str, value: dict[Any, Any] | list[Any]) -> Json | None:
        """A dict or list of tensors, such as one parameter's moments."""
        keys, items = (tuple(value), list(value.values())) if isinstance(value, dict) else (range(len(value)), value)
        if (json := self._as_before(found, path, keys, items)) is not None:
            return json
        if isinstance(value, dict) and _has_parameters(value):
            return self._by_parameter(found, is_live, path, value)
        if not items or not all(map(_is_flat, items)) or (isinstance(value, dict) and not all(map(_is_plain_key, keys))):
            return None
        paths = [child(path, key) for key in keys]
        leaves = [self._tensor(found, name, tensor) for name, tensor in zip(paths, items, strict=True)]
        json = dict(zip(keys, leaves, strict=True)) if isinstance(value, dict) else leaves
        self._many_known[path] = Many(keys, paths, traits_of(items), json)
        return json


def _has_parameters(value: dict[Any, Any]) -> bool:
    """Whether parameters are keys."""
    return any(type(key) is not str and isinstance(key, nn.Parameter) for key in value)


def _is_plain_key(key: object) -> bool:
    """Whether JSON holds a key as it is."""
    return type(key) is str and key.isascii() and not key.startswith("$")


def _is_flat(value: object) -> bool:
    return isinstance(value, torch.Tensor) and value.layout is torch.strided and value.is_contiguous()
