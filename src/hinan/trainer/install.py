"""Puts a saved state into live objects: first everything is compared, then everything is written (rules D7, D8, G2).

`match` walks saved JSON and live objects together. It changes nothing; it raises at the first difference that cannot be
bridged, and otherwise returns the list of writes. So a state that does not fit leaves the live one as it was.
"""

from __future__ import annotations

import base64
import logging
import warnings
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, MutableMapping, MutableSequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from itertools import accumulate
from typing import Any, Protocol, runtime_checkable

import torch
from torch import nn

from hinan.core.errors import FormatError, StructureError
from hinan.formats.image import Header, TensorView
from hinan.formats.values import Json, child, decode_value
from hinan.tiers.mapping import use_huge_pages
from hinan.trainer.aliases import share_again
from hinan.trainer.capture import optimizer_names, parameter_names, parameters_by_name
from hinan.trainer.codecs import codec_named
from hinan.trainer.hostport import copy_bits
from hinan.trainer.layout import SAFETENSORS_WORD, contiguous_stride, dtype_word, in_order
from hinan.trainer.loader import keeps_position, load_loader
from hinan.trainer.modules import ModuleTensors, unwrap
from hinan.trainer.rng import random_kind, set_random_state
from hinan.trainer.scaler import scaler_state

log = logging.getLogger("hinan")

Write = Callable[[], object]
WORTH_A_THREAD_BYTES = 32 << 20
HUGE_BYTES = 4 << 20
_IN_PLACE = ("$module", "$optimizer", "$stateful", "$scaler", "$loader", "$random")
"""Tags of objects that only a live object of the same kind can take."""

_TORCH_DTYPE = {word: dtype for dtype, word in SAFETENSORS_WORD.items()}


@runtime_checkable
class Stateful(Protocol):
    """Anything that gives its state as values and takes it back: schedulers, scalers, loaders, objects of the user's."""

    def state_dict(self) -> Any:
        """The state."""

    def load_state_dict(self, state_dict: Any) -> Any:
        """Take a state."""


class SavedTensors:
    """Tensors of an image by name, as views over its bytes. They must be copied, never handed out."""

    def __init__(self, image: memoryview, header: Header) -> None:
        self._image, self._header = image, header

    def __contains__(self, name: object) -> bool:
        return name in self._header.views or name in self._header.by_name

    def __getitem__(self, name: str) -> torch.Tensor:
        view = self._header.views.get(name)
        if view is None:
            if name not in self._header.by_name:
                raise FormatError(f"the image has no tensor {name!r}, although its values refer to it", tensor=name)
            entry = self._header.by_name[name]
            return self._flat(entry.offset, entry.size_bytes, _TORCH_DTYPE[entry.dtype]).reshape(entry.shape)
        entry = self._header.by_name[view.entry]
        dtype = getattr(torch, view.dtype)
        whole = self._flat(entry.offset, entry.size_bytes, torch.uint8)
        storage_offset, odd = divmod(view.offset_bytes, dtype.itemsize)
        if odd:
            whole, storage_offset = whole[view.offset_bytes :].clone(), 0
        tensor = torch.empty(0, dtype=dtype, device="cpu")
        return tensor.set_(whole.untyped_storage(), storage_offset + _offset(whole, dtype), view.shape, view.stride)

    @cached_property
    def shared(self) -> frozenset[str]:
        """Entries in which more than one tensor lies."""
        return frozenset(view.entry for name, view in self._header.views.items() if view.entry != name)

    def location(self, name: str) -> TensorView:
        """Where a tensor lies in its entry of the image."""
        if (view := self._header.views.get(name)) is not None:
            return view
        entry = self._header.by_name[name]
        return TensorView(name, dtype_word(_TORCH_DTYPE[entry.dtype]), entry.shape, contiguous_stride(entry.shape), 0)

    def whole(self, name: str) -> torch.Tensor:
        """A copy of an entry's bytes."""
        entry = self._header.by_name[name]
        return self._flat(entry.offset, entry.size_bytes, torch.uint8).clone()

    def _flat(self, offset: int, size_bytes: int, dtype: torch.dtype) -> torch.Tensor:
        if size_bytes == 0:
            return torch.empty(0, dtype=dtype, device="cpu")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # "not writable": nobody writes into it
            return torch.frombuffer(self._image, dtype=dtype, count=size_bytes // dtype.itemsize, offset=offset)


def _offset(flat: torch.Tensor, dtype: torch.dtype) -> int:
    return flat.storage_offset() * flat.element_size() // dtype.itemsize


class Copies:
    """Neighbouring in-place copies, as one write: long runs of host memory are shared among threads."""

    def __init__(self) -> None:
        self.pairs: list[tuple[torch.Tensor, torch.Tensor]] = []

    def __call__(self) -> None:
        sizes = list(accumulate(live.nbytes for live, _ in self.pairs))
        if not (sizes and sizes[-1] >= WORTH_A_THREAD_BYTES and self._can_share):
            write_all(self.pairs)
            return
        middle = bisect_right(sizes, sizes[-1] // 2)
        # memmove lets the other thread run; what torch copies itself (strides, lazy conjugates) is rare and short.
        with ThreadPoolExecutor(1, "hinan-install") as helper:
            other = helper.submit(write_all, self.pairs[middle:])
            write_all(self.pairs[:middle])
            other.result()

    @property
    def _can_share(self) -> bool:
        """All on the host, and no two in one storage: where they overlap, their order decides."""
        storages = {live.untyped_storage().data_ptr() for live, _ in self.pairs}
        return len(storages) == len(self.pairs) and all(live.device.type == "cpu" for live, _ in self.pairs)


@dataclass(frozen=True)
class Moment:
    """A tensor of an optimizer's state that may be written in place, if it fits and nobody else's bytes are its own."""

    entry: dict[Any, object]
    key: object
    live: torch.Tensor
    saved_as: list[Any]
    parameter: torch.Tensor
    copies: Copies

    def fits(self, saved: torch.Tensor) -> bool:
        """Whether it is what `_new_tensor` would make: same dtype, shape and device, all of its storage, no subclass."""
        live = self.live
        _, device_type, *strides = self.saved_as
        device = torch.device("cpu") if device_type == "cpu" else self.parameter.device
        return (
            not strides
            and type(live) is torch.Tensor
            and (live.dtype, live.shape, live.device) == (saved.dtype, saved.shape, device)
            and live.is_contiguous() and saved.is_contiguous() and not live.requires_grad
            and live.untyped_storage().nbytes() == live.nbytes
        )  # fmt: skip


class Matcher:
    """Compares one saved state with one live state."""

    def __init__(self, tensors: SavedTensors, state: Mapping[str, Any]) -> None:
        self._tensors = tensors
        self._known = parameter_names(state)
        self._parameters = parameters_by_name(state)
        self._written: dict[tuple[Any, ...], str] = {}
        self._storages: set[int] = set()
        self._writes: list[Write] = []
        self._moments: list[Moment] = []
        self._placed: dict[str, torch.Tensor] = {}
        self._new: list[tuple[str, torch.Tensor]] = []

    def match(self, saved: Mapping[str, Json], state: MutableMapping[str, Any]) -> list[Write]:
        """The writes that make the live state equal to the saved one; nothing is written yet.

        Raises:
            StructureError: names the path, and both sides.
        """
        if missing := sorted(set(saved) - set(state)):
            raise StructureError(f"the saved state has {missing}, the live one does not; add them to the state, or leave "
                                 "them out on purpose with a new target")  # fmt: skip
        if extra := sorted(set(state) - set(saved)):
            raise StructureError(f"the live state has {extra}, the saved one does not; it was saved without them")
        for key, json in saved.items():
            self._into(state, key, json, str(key))
        self._settle_moments()
        if self._tensors.shared:
            share_again(self._new, self._placed, self._tensors.location, self._tensors.whole)
        return self._writes

    # -- one place -----------------------------------------------------------------------------------------------

    def _into(self, parent: MutableMapping[Any, Any] | MutableSequence[Any], key: Any, json: Json, path: str) -> None:
        """Match what `parent[key]` holds; values that cannot be changed in place are replaced in the parent."""
        live = parent[key]
        if isinstance(json, dict) and self._object(live, json, path):
            return
        pairs = self._pairs(json)
        if pairs is not None and isinstance(live, MutableMapping):
            self._mapping(live, pairs, path)
        elif isinstance(json, list) and isinstance(live, MutableSequence):
            self._sequence(live, json, path)
        else:
            value = self._tuple(live, json, path) if isinstance(live, tuple) else self.value(json, live)
            self._writes.append(lambda: parent.__setitem__(key, value))

    def _pairs(self, json: Json) -> dict[Any, Json] | None:
        """A mapping's items, whichever of its forms it was stored in; None for everything else."""
        if not isinstance(json, dict):
            return None
        tag = next(iter(json), "")
        if len(json) != 1 or not tag.startswith("$"):
            return json
        return {self.value(k, None): item for k, item in json[tag]} if tag in ("$dict", "$ordered") else None

    def _tuple(self, live: tuple[Any, ...], json: Json, path: str) -> object:
        """A tuple cannot be changed: members that take their state in place stay, the others are new."""
        items = json.get("$tuple") if isinstance(json, dict) else None
        if items is None or len(items) != len(live):
            return self.value(json, live)
        members = zip(live, items, range(len(live)), strict=True)
        return tuple(
            member if isinstance(item, dict) and self._object(member, item, child(path, i)) else self.value(item, member)
            for member, item, i in members
        )

    def _object(self, live: object, json: Mapping[str, Json], path: str) -> bool:
        """Match live objects that take their state in place; False for everything else."""
        if "$module" in json and isinstance(live, nn.Module):
            self._module(live, json["$module"], path)
        elif "$optimizer" in json and isinstance(live, torch.optim.Optimizer):
            self._optimizer(live, json["$optimizer"], path)
        elif "$tensor" in json and isinstance(live, torch.Tensor):
            self._tensor(live, json["$tensor"][0], path)
        elif "$generator" in json and isinstance(live, torch.Generator):
            state = torch.frombuffer(bytearray(base64.b64decode(json["$generator"][1])), dtype=torch.uint8)
            self._writes.append(lambda: live.set_state(state))
        elif "$stateful" in json and isinstance(live, Stateful):
            value = self.given(json["$stateful"])
            self._writes.append(lambda: live.load_state_dict(value))
        elif "$scaler" in json and isinstance(live, torch.amp.GradScaler):
            self._scaler(live, json["$scaler"], path)
        elif "$loader" in json and keeps_position(live):
            kept = self.given(json["$loader"])
            self._writes.append(lambda: load_loader(live, kept["position"], kept["generators"]))
        elif "$random" in json and random_kind(live) == json["$random"][0]:
            drawn = self.given(json["$random"][1])
            self._writes.append(lambda: set_random_state(live, drawn))
        elif any(tag in json for tag in _IN_PLACE):
            raise StructureError(
                f"{path} was saved from a {_kind(json)}, and is a {type(live).__qualname__} now", path=path
            )
        else:
            return False
        return True

    def _scaler(self, live: torch.amp.GradScaler, json: Mapping[str, Json], path: str) -> None:
        if not live.is_enabled():
            if json:
                log.warning("restore.default %s was saved enabled and is disabled now; its scale is not used", path)
            return
        if not json:
            raise StructureError(f"{path} was saved from a disabled GradScaler and is enabled now", path=path)
        values = scaler_state(self.given(json))
        self._writes.append(lambda: live.load_state_dict(values))

    def _mapping(self, live: MutableMapping[Any, Any], json: Mapping[Any, Json], path: str) -> None:
        for key, item in json.items():
            if key in live:
                self._into(live, key, item, self._member(path, key))
            else:
                value = self.value(item, None)
                self._writes.append(lambda key=key, value=value: live.__setitem__(key, value))  # type: ignore[misc]
        for key in [k for k in live if k not in json]:
            log.warning("restore.default %s was not saved; its value stays", self._member(path, key))

    def _member(self, path: str, key: object) -> str:
        """Path of a mapping's member; a parameter as a key is called by its name."""
        return f"{path}.{self._known.get(id(key), '?')}" if isinstance(key, nn.Parameter) else child(path, key)

    def _sequence(self, live: MutableSequence[Any], json: list[Json], path: str) -> None:
        for i, item in enumerate(json[: len(live)]):
            self._into(live, i, item, child(path, i))
        rest = [self.value(item, None) for item in json[len(live) :]]
        length = len(json)

        def resize() -> None:
            del live[length:]
            live.extend(rest)

        if length != len(live):
            self._writes.append(resize)

    # -- tensors, modules, optimizers ----------------------------------------------------------------------------

    def _tensor(self, live: torch.Tensor, name: str, path: str) -> None:
        saved = self._tensors[name]
        if nn.parameter.is_lazy(live):
            raise StructureError(
                f"{path} belongs to a lazy module and has no values yet; run the module once before restore()", path=path
            )
        if saved.dtype != live.dtype or saved.shape != live.shape:
            raise StructureError(
                f"{path} was saved as {saved.dtype} {tuple(saved.shape)} and is {live.dtype} {tuple(live.shape)} now; "
                "nothing is cast or reshaped silently",
                path=path,
            )
        target = live.detach()
        self._placed[name] = target
        lazy = target.is_conj(), target.is_neg()
        place = (str(target.device), target.data_ptr(), target.dtype, target.shape, target.stride(), *lazy)
        if target.numel() and place in self._written:
            self._same_twice(self._written[place], name, path)
            return
        self._written[place] = name
        self._storages.add(target.untyped_storage().data_ptr())
        self._copies().pairs.append((target, saved))

    def _copies(self) -> Copies:
        """Where the next in-place copy goes: neighbouring ones are one write; the order of all others stays."""
        if not (self._writes and isinstance(self._writes[-1], Copies)):
            self._writes.append(Copies())
        copies = self._writes[-1]
        assert isinstance(copies, Copies)
        return copies

    def _same_twice(self, first: str, second: str, path: str) -> None:
        """Two names for one live place (a tie): the saved values must agree."""
        a, b = (in_order(self._tensors[name].contiguous()) for name in (first, second))
        if first != second and not torch.equal(a.reshape(-1).view(torch.uint8), b.reshape(-1).view(torch.uint8)):
            raise StructureError(
                f"{path} shares its storage with {first} now, but they were saved with different values", path=path
            )

    def _module(self, live: nn.Module, json: Mapping[str, Json], path: str) -> None:
        bare = unwrap(live)
        names = ModuleTensors(bare)
        tensors, extras = names.read()
        saved = json["tensors"]
        if difference := set(saved) ^ set(tensors):
            name = min(difference)
            where = "saved but not in the live module" if name in set(saved) else "in the live module but was not saved"
            raise StructureError(f"{path}.{name} is {where} ({len(difference)} such names)", path=f"{path}.{name}")
        if not names.is_plain:
            copies = {n: self._tensors[f"{path}.{n}"] for n in saved}
            self._writes.append(lambda: bare.load_state_dict(copies))
            return
        for name in saved:
            self._tensor(tensors[name], f"{path}.{name}", f"{path}.{name}")
        for name, item in json["extras"].items():
            owner = bare.get_submodule(name.rpartition(".")[0])
            value = self.given(item, extras.get(name))
            self._writes.append(lambda owner=owner, value=value: owner.set_extra_state(value))  # type: ignore[misc]

    def _optimizer(self, live: torch.optim.Optimizer, json: Mapping[str, Json], path: str) -> None:
        names = optimizer_names(live, self._known)
        groups = [[names[id(p)] for p in group["params"]] for group in live.param_groups]
        saved_groups = [group["params"] for group in json["groups"]]
        if groups != saved_groups:
            raise StructureError(_group_difference(path, saved_groups, groups), path=path)
        parameters = {names[id(p)]: p for group in live.param_groups for p in group["params"]}
        state: list[tuple[object, object]] = []
        self._storages.update(p.untyped_storage().data_ptr() for p in parameters.values())
        copies = self._copies()
        for name, entry in json["state"]:
            state.append((parameters[name], self._entry(live.state, parameters[name], entry, copies)))
        state += [(self.value(key, None), self.value(entry, None)) for key, entry in json["other"]]

        def write() -> None:
            # Filled, never through load_state_dict: that would cast moments to the parameter's dtype and alias its input.
            live.state.clear()
            for key, entry in state:
                live.state[key] = entry  # type: ignore[index]

        self._writes.append(write)
        for group, saved in zip(live.param_groups, json["groups"], strict=True):
            self._options(group, saved["options"], path)

    def _entry(self, state: Mapping[Any, Any], parameter: torch.Tensor, json: Json, copies: Copies) -> object:
        """The state of one parameter: new, but for the tensors it has already that can take the saved bits in place."""
        pairs = self._pairs(json)
        live = state.get(parameter, {})  # never indexed: that would create an entry
        if pairs is None or type(live) is not dict or any(t in json for t in ("$dict", "$ordered")):
            return self.value(json, None, parameter)
        entry: dict[Any, object] = {}
        for key, item in pairs.items():
            old = live.get(key)
            if isinstance(item, dict) and "$tensor" in item and isinstance(old, torch.Tensor):
                entry[key] = old
                self._moments.append(Moment(entry, key, old, item["$tensor"], parameter, copies))
            else:
                entry[key] = self.value(item, None, parameter)
        return entry

    def _settle_moments(self) -> None:
        """Decide, when all that is written in place is known, which moments are too; the others become new tensors."""
        owners = Counter(moment.live.untyped_storage().data_ptr() for moment in self._moments)
        for moment in self._moments:
            saved = self._tensors[moment.saved_as[0]]
            storage = moment.live.untyped_storage().data_ptr()
            alone = owners[storage] == 1 and storage not in self._storages
            was_alone = self._tensors.location(moment.saved_as[0]).entry not in self._tensors.shared
            if alone and was_alone and moment.fits(saved):
                moment.copies.pairs.append((moment.live.detach(), saved))
            else:
                moment.entry[moment.key] = self._new_tensor(moment.saved_as, moment.parameter, self._new)

    def _options(self, group: dict[str, Any], options: Mapping[str, Json], path: str) -> None:
        for key, item in options.items():
            if key in group:
                self._into(group, key, item, f"{path}.{key}")
            else:
                value = self.value(item, None)
                self._writes.append(lambda key=key, value=value: group.__setitem__(key, value))  # type: ignore[misc]
        for key in set(group) - set(options) - {"params", "param_names"}:
            log.warning("restore.default %s.%s was not saved; its value stays %r", path, key, group[key])

    # -- new values ----------------------------------------------------------------------------------------------

    def value(self, json: Json, live: object, near: torch.Tensor | None = None) -> object:
        """A new value from its JSON, which becomes part of the state.

        Args:
            live: what stands in its place now.
            near: tensors that were on a device go to this tensor's device.
        """
        return self._made(json, live, near, self._new)

    def given(self, json: Json, live: object = None, near: torch.Tensor | None = None) -> Any:
        """A new value that is handed to a `load_state_dict` or a codec: its tensors share nothing with the live state."""
        return self._made(json, live, near, None)

    def _made(
        self, json: Json, live: object, near: torch.Tensor | None, new: list[tuple[str, torch.Tensor]] | None
    ) -> object:
        def restore(tag: str, payload: Json) -> object:
            match tag:
                case "$tensor":
                    return self._new_tensor(payload, near, new)
                case "$ndarray":
                    return self._tensors[payload].numpy().copy()
                case "$generator":
                    generator = torch.Generator(payload[0])
                    generator.set_state(torch.frombuffer(bytearray(base64.b64decode(payload[1])), dtype=torch.uint8))
                    return generator
                case "$dtype" | "$size" | "$device":
                    return _torch_constant(tag, payload)
                case "$stateful" | "$loader":
                    return self.given(payload, None, near)
                case "$module" | "$optimizer" | "$random":
                    kind = _kind({tag: payload})
                    raise StructureError(f"a {kind} was saved; the live state must hold one there, to take what was saved")
                case "$scaler":
                    return scaler_state(self.given(payload, None, near))
                case "$parameter":
                    return self._parameter(payload)
                case "$codec":
                    return codec_named(payload[0]).decode(self.given(payload[1], None, near))
                case "$enum":
                    return _enum(payload, live)
            raise FormatError(f"the state holds a value tagged {tag}, which this hinan does not know", tag=tag)

        return decode_value(json, restore)

    def _parameter(self, name: str) -> nn.Parameter:
        """The live parameter of a name: a dict was keyed by it."""
        if name not in self._parameters:
            raise StructureError(
                f"a dict was saved with the parameter {name} as a key; the live state has no such parameter"
            )
        return self._parameters[name]

    def _new_tensor(
        self, payload: list[Any], near: torch.Tensor | None, kept: list[tuple[str, torch.Tensor]] | None
    ) -> torch.Tensor:
        name, device_type, *strides = payload
        saved = self._tensors[name]
        device = "cpu" if device_type == "cpu" else near.device if near is not None else device_type
        if strides:
            new = torch.empty_strided(saved.shape, strides[0], dtype=saved.dtype, device="cpu")
            copy_bits(new, saved)
            new = new.to(device)
        else:
            new = new_copy(saved) if device == "cpu" else saved.to(device, copy=True)
        if kept is not None:
            kept.append((name, new))
        return new


def _kind(json: Mapping[str, Json]) -> str:
    tag = next(iter(json))
    return str(json[tag][0]) if tag == "$random" else tag[1:]


def _torch_constant(tag: str, payload: Json) -> object:
    if tag == "$dtype":
        return getattr(torch, payload)
    return torch.Size(payload) if tag == "$size" else torch.device(payload)


def _enum(payload: list[str], live: object) -> object:
    """An enum member is found through the live value: no class is imported because a file says so."""
    if isinstance(live, Enum) and type(live).__qualname__ == payload[0]:
        return type(live)[payload[1]]
    raise StructureError(f"an enum {payload[0]}.{payload[1]} was saved; the live state must hold a {payload[0]} there")


def _group_difference(path: str, saved: list[list[str]], live: list[list[str]]) -> str:
    if len(saved) != len(live):
        return f"{path} was saved with {len(saved)} parameter groups and has {len(live)} now"
    for i, (a, b) in enumerate(zip(saved, live, strict=True)):
        if difference := set(a) ^ set(b):
            return f"{path}: group {i} differs in {min(difference)} ({len(difference)} such parameters)"
    return f"{path}: the parameters of a group come in another order than they were saved in"


def write_tensor(live: torch.Tensor, saved: torch.Tensor) -> None:
    """Overwrite a live tensor with saved bits, in place."""
    with torch.no_grad():
        if live.device.type == "cpu":
            copy_bits(live, saved)
        else:
            live.copy_(saved)


def write_all(pairs: Iterable[tuple[torch.Tensor, torch.Tensor]]) -> None:
    """Overwrite live tensors, one after the other."""
    for live, saved in pairs:
        write_tensor(live, saved)


def new_copy(saved: torch.Tensor) -> torch.Tensor:
    """A copy in new host memory; a large one in huge pages where the system has them, and by memmove."""
    if saved.nbytes < HUGE_BYTES or not saved.is_contiguous():
        return saved.clone()
    made = torch.empty_like(saved)
    use_huge_pages(made.data_ptr(), made.nbytes)
    copy_bits(made, saved)
    return made


def load_arrays(json: Json) -> Any:
    """Decode values that hold arrays but no tensors (the generators' states)."""

    def refuse(tag: str, payload: Json) -> object:
        raise FormatError(f"generator states hold a value tagged {tag}", tag=tag)

    return decode_value(json, refuse)
