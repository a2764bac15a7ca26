"""Makes new values from typed JSON and an image: what cannot be written in place, and what a `load_state_dict` takes."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from functools import wraps
from typing import Any, Concatenate, ParamSpec

import torch
from torch import nn

from hinan.core.errors import FormatError, HinanError, StructureError
from hinan.formats.values import Json, decode_value
from hinan.host.signals import ours
from hinan.trainer.restoring.aliases import Named, share_again
from hinan.trainer.restoring.saved import SavedTensors
from hinan.trainer.state.codecs import codec_named
from hinan.trainer.state.enums import class_of, member_of
from hinan.trainer.state.rng import can_make, new_random
from hinan.trainer.state.scaler import scaler_state

Rest = ParamSpec("Rest")


class Unmakeable(StructureError):
    """A value could not be made. Its bytes are right: the program has to change, and then finds the step as it was.

    Attributes:
        inside: path of the value in what was to be made.
        what: is wrong, and the way out.
    """

    def __init__(self, inside: str, what: str) -> None:
        super().__init__(f"{inside or 'a value'} {what}", path=inside)
        self.inside, self.what = inside, what

    def at(self, path: str) -> StructureError:
        """The same, with its path in the state."""
        full = path if not self.inside else f"{path}.{self.inside}"
        return StructureError(f"{full} {self.what}", path=full)


def says_its_path(match: Callable[Concatenate[Any, Any, Any, Json, str, Rest], None]) -> Any:
    """For what matches one place of the state: whatever objects of the user's raise there names the place."""

    @wraps(match)
    def matched(self: Any, parent: Any, key: Any, json: Json, path: str, *rest: Rest.args, **named: Rest.kwargs) -> None:
        try:
            match(self, parent, key, json, path, *rest, **named)
        except ours(Unmakeable) as error:
            raise error.at(path) from error.__cause__
        except ours(FormatError) as error:
            if "tag" not in error.evidence:
                raise
            # Its bytes have been read before: it is what the program has put into it, or a newer hinan.
            raise StructureError(f"{path} cannot be made from what was saved: {error}", path=path) from error
        except ours(HinanError, MemoryError):
            raise
        except ours(Exception) as error:
            raise StructureError(
                f"{path} cannot be compared with what was saved: {type(error).__name__}: {error}", path=path
            ) from error

    return matched


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

    def given(self, json: Json, live: object = None, near: torch.Tensor | None = None, path: str = "") -> Any:
        """A new value that is handed to a `load_state_dict` or a codec, which may keep all of it.

        Its tensors share nothing with the live state; those that shared bytes with each other do so again.

        Args:
            path: of the value in what is made.
        """
        made: list[Named] = []
        value = self._made(json, live, near, made, path)
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
        others = {name: self._made(item, live.get(name), None, inside, name) for name, item in saved["extras"].items()}

        def given() -> dict[str, Any]:
            made = [(f"{path}.{name}", self._tensors[f"{path}.{name}"].copy()) for name in names]
            self._share_again([*made, *inside])
            return dict(zip(names, (tensor for _, tensor in made), strict=True)) | others

        return given

    def given_extras(self, saved: Mapping[str, Json], live: Mapping[str, Any]) -> dict[str, Any]:
        """What the `set_extra_state` of a module and its children are given."""
        made: list[Named] = []
        extras = {name: self._made(item, live.get(name), None, made, name) for name, item in saved.items()}
        self._share_again(made)
        return extras

    def _share_again(self, made: Sequence[Named]) -> None:
        if self._tensors.shared:
            share_again(made, {}, self._tensors.location, self._tensors.whole)

    def new_tensor(self, saved_as: list[Any], near: torch.Tensor) -> torch.Tensor:
        """A new tensor that becomes part of the state, on a parameter's device if it was on one."""
        return self._tensor(saved_as, near, self.new)

    def _made(self, json: Json, live: object, near: torch.Tensor | None, new: list[Named], path: str = "") -> object:
        def make(at: str, tag: str, payload: Json) -> object:
            match tag:
                case "$tensor":
                    return self._tensor(payload, near, new)
                case "$ndarray":
                    return self._tensors[payload].array()
                case "$generator":
                    return _generator(*payload)
                case "$random" if can_make(payload[0]):
                    parts: list[Any] = [self._made(part, None, near, new, at) for part in payload[1:]]
                    return new_random(payload[0], *parts)
                case "$dtype" | "$size" | "$device":
                    return _torch_constant(tag, payload)
                case "$stateful" | "$loader":
                    return self._made(payload, None, near, new, at)
                case "$module" | "$optimizer" | "$random":
                    kind = kind_of({tag: payload})
                    raise Unmakeable(at, f"was saved from a {kind}; the live state must hold one there, to take it")
                case "$scaler" | "$parameter" | "$codec" | "$enum":
                    return self._of_the_programs(at, tag, payload, live, near)
            raise FormatError(f"the state holds a value tagged {tag}, which this hinan does not know", tag=tag)

        def restore(at: str, tag: str, payload: Json) -> object:
            try:
                return make(at, tag, payload)
            except ours(HinanError, MemoryError):
                raise
            except ours(Exception) as error:
                raise Unmakeable(at, f"({tag[1:]}) cannot be made here: {type(error).__name__}: {error}") from error

        return decode_value(json, restore, path)

    def _of_the_programs(self, at: str, tag: str, payload: Json, live: object, near: torch.Tensor | None) -> object:
        """What is made by, or of, what the program has: a codec, a class, a parameter."""
        if tag == "$codec":
            return _by_codec(at, payload[0], self.given(payload[1], None, near, at))
        if tag == "$enum":
            return _enum(at, payload, live)
        if tag == "$scaler":
            return scaler_state(self.given(payload, None, near, at))
        return self.parameter(payload, f"a dict was saved with the parameter {payload} as a key")

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


def _generator(device_type: str, state: str) -> torch.Generator:
    generator = torch.Generator(device_type)
    generator.set_state(torch.frombuffer(bytearray(base64.b64decode(state)), dtype=torch.uint8))
    return generator


def _torch_constant(tag: str, payload: Json) -> object:
    if tag == "$dtype":
        return getattr(torch, payload)
    return torch.Size(payload) if tag == "$size" else torch.device(payload)


def _by_codec(path: str, name: str, given: object) -> object:
    codec = codec_named(name)
    if codec is None:
        raise Unmakeable(
            path,
            f"was saved with the codec {name!r}, which is not registered: call hinan.register_codec for it before "
            "restore(). What was saved stands",
        )
    try:
        return codec.decode(given)
    except ours(Exception) as error:  # whatever it is: an error of ours, too, says nothing here against the bytes
        raise Unmakeable(
            path,
            f"was saved with the codec {name!r}, whose decode() does not take it: {type(error).__name__}: {error}. Mend "
            "the codec and start again: what was saved stands",
        ) from error


def _class_of(name: str, module: str, live: type) -> type[Enum] | None:
    """The class of an enum: one of that module goes before a live one that is only called alike."""
    like = live if issubclass(live, Enum) and live.__qualname__ == name else None
    return like if like is not None and like.__module__ == module else class_of(module, name) or like


def _enum(path: str, payload: list[Json], live: object) -> object:
    """A member of an enum. Its class is found among what was imported: nothing is, because a file says so."""
    name, said, *module = payload
    kind = _class_of(name, module[0] if module else "", type(live))
    if kind is None:
        where = f"{module[0]}.{name}" if module else name
        raise Unmakeable(
            path,
            f"was saved as {name}.{said}, and no enum {where} is imported here. Import its module before restore(), under "
            f"the name that it had, or let the live state hold a {name} there. What was saved stands",
        )
    try:
        return member_of(kind, said)
    except ours(Exception) as error:
        raise Unmakeable(
            path,
            f"was saved as {name}.{said}, which {kind.__module__}.{name} does not have any more ({error!r}). Give it back "
            "to the class and start again: what was saved stands",
        ) from error
