"""Makes new values from typed JSON and an image: what cannot be written in place, and what a `load_state_dict` takes."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Any

import torch
from torch import nn

from hinan.core.errors import FormatError, StructureError
from hinan.formats.values import Json, decode_value
from hinan.trainer.restoring.aliases import Named, share_again
from hinan.trainer.restoring.saved import SavedTensors
from hinan.trainer.state.codecs import codec_named
from hinan.trainer.state.scaler import scaler_state


class Maker:
    """Makes values for one restore.

    Attributes:
        new: (name, tensor) of all that became part of the state.
    """

    def __init__(self, tensors: SavedTensors, parameters: Mapping[str, nn.Parameter]) -> None:
        self._tensors, self._parameters = tensors, parameters
        self.new: list[Named] = []

    def value(self, json: Json, live: object, near: torch.Tensor | None = None) -> object:
        """A new value from its JSON, which becomes part of the state.

        Args:
            live: what stands in its place now.
            near: tensors that were on a device go to this tensor's device.
        """
        return self._made(json, live, near, self.new)

    def given(self, json: Json, live: object = None, near: torch.Tensor | None = None) -> Any:
        """A new value that is handed to a `load_state_dict` or a codec, which may keep all of it.

        Its tensors share nothing with the live state; those that shared bytes with each other do so again.
        """
        made: list[Named] = []
        value = self._made(json, live, near, made)
        self._share_again(made)
        return value

    def given_module(self, path: str, saved: Mapping[str, Json], live: Mapping[str, Any]) -> Callable[[], dict[str, Any]]:
        """What a module's own `load_state_dict` is given, made when it is asked for. The module may keep all of it.

        Names that were one tensor, or shared bytes, do so again: a module that keeps them ties what was tied.

        Args:
            live: its values that are no tensors, as they are now.
        """
        names: list[str] = saved["tensors"]
        inside: list[Named] = []
        others = {name: self._made(item, live.get(name), None, inside) for name, item in saved["extras"].items()}

        def given() -> dict[str, Any]:
            made = [(f"{path}.{name}", self._tensors[f"{path}.{name}"].copy()) for name in names]
            self._share_again([*made, *inside])
            return dict(zip(names, (tensor for _, tensor in made), strict=True)) | others

        return given

    def given_extras(self, saved: Mapping[str, Json], live: Mapping[str, Any]) -> dict[str, Any]:
        """What the `set_extra_state` of a module and its children are given."""
        made: list[Named] = []
        extras = {name: self._made(item, live.get(name), None, made) for name, item in saved.items()}
        self._share_again(made)
        return extras

    def _share_again(self, made: Sequence[Named]) -> None:
        if self._tensors.shared:
            share_again(made, {}, self._tensors.location, self._tensors.whole)

    def new_tensor(self, saved_as: list[Any], near: torch.Tensor) -> torch.Tensor:
        """A new tensor that becomes part of the state, on a parameter's device if it was on one."""
        return self._tensor(saved_as, near, self.new)

    def _made(self, json: Json, live: object, near: torch.Tensor | None, new: list[Named]) -> object:
        def restore(tag: str, payload: Json) -> object:
            match tag:
                case "$tensor":
                    return self._tensor(payload, near, new)
                case "$ndarray":
                    return self._tensors[payload].array()
                case "$generator":
                    generator = torch.Generator(payload[0])
                    generator.set_state(torch.frombuffer(bytearray(base64.b64decode(payload[1])), dtype=torch.uint8))
                    return generator
                case "$dtype" | "$size" | "$device":
                    return _torch_constant(tag, payload)
                case "$stateful" | "$loader":
                    return self._made(payload, None, near, new)
                case "$module" | "$optimizer" | "$random":
                    kind = kind_of({tag: payload})
                    raise StructureError(f"a {kind} was saved; the live state must hold one there, to take what was saved")
                case "$scaler":
                    return scaler_state(self.given(payload, None, near))
                case "$parameter":
                    return self.parameter(payload, f"a dict was saved with the parameter {payload} as a key")
                case "$codec":
                    return codec_named(payload[0]).decode(self.given(payload[1], None, near))
                case "$enum":
                    return _enum(payload, live)
            raise FormatError(f"the state holds a value tagged {tag}, which this hinan does not know", tag=tag)

        return decode_value(json, restore)

    def parameter(self, name: str, what: str) -> nn.Parameter:
        """The live parameter of a name in the modules of the state.

        Args:
            what: was saved with it, for the message.
        """
        if name not in self._parameters:
            raise StructureError(f"{what}; the live state has no such parameter")
        return self._parameters[name]

    def _tensor(self, payload: list[Any], near: torch.Tensor | None, kept: list[Named]) -> torch.Tensor:
        name, device_type, *strides = payload
        # Optimizer state alone: torch resizes no storage of it, as it may one of a parameter.
        is_moment = near is not None and kept is self.new and device_type == "cpu" and not strides
        new = self._tensors.adopt(name) if is_moment else None
        if new is None:
            device = "cpu" if device_type == "cpu" else near.device if near is not None else device_type
            saved = self._tensors[name]
            new = saved.laid_out(strides[0], device) if strides else saved.copy(device)
        kept.append((name, new))
        return new


def kind_of(json: Mapping[str, Json]) -> str:
    """What a tagged value was saved from, for messages."""
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


def load_arrays(json: Json) -> Any:
    """Decode values that hold arrays but no tensors (the generators' states)."""

    def refuse(tag: str, payload: Json) -> object:
        raise FormatError(f"generator states hold a value tagged {tag}", tag=tag)

    return decode_value(json, refuse)
