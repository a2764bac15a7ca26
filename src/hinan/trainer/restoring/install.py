"""Puts a saved state into live objects: first everything is compared, then everything is written (rules D7, D8, G2).

`match` walks saved JSON and live objects together. It changes nothing; it raises at the first difference that cannot be
bridged, and otherwise returns the list of writes. So a state that does not fit leaves the live one as it was.
"""

from __future__ import annotations

import base64
import logging
import operator
from collections import deque
from collections.abc import Callable, Mapping, MutableMapping, MutableSequence, Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import nn

from hinan.core.errors import StructureError
from hinan.formats.values import Json, child
from hinan.trainer.restoring.aliases import parted, share_again
from hinan.trainer.restoring.differences import (
    refuse_other_groups,
    refuse_other_keys,
    refuse_other_names,
    refuse_other_tensor,
    refuse_other_way,
)
from hinan.trainer.restoring.holders import holders, refuse_parted
from hinan.trainer.restoring.loading import loads
from hinan.trainer.restoring.making import Maker, kind_of, says_its_path
from hinan.trainer.restoring.moments import Moment, settle
from hinan.trainer.restoring.plain import (
    PAIRS,
    can_become,
    fill,
    is_data,
    is_same,
    place_of,
    refuse_other_room,
    resize,
    take_out,
)
from hinan.trainer.restoring.saved import SavedTensor, SavedTensors
from hinan.trainer.restoring.writes import Copies, put_in_order
from hinan.trainer.state.attributes import says_its_state
from hinan.trainer.state.loader import keeps_position, load_loader
from hinan.trainer.state.loading_optimizers import load
from hinan.trainer.state.modules import ModuleTensors, unwrap
from hinan.trainer.state.naming import optimizer_names, parameter_names, parameters_by_name, parameters_of
from hinan.trainer.state.rng import random_kind, set_random_state
from hinan.trainer.state.scaler import scaler_state
from hinan.trainer.state.supported import is_wrapper

log = logging.getLogger("hinan")

Write = Callable[[], object]
_IN_PLACE = ("$module", "$optimizer", "$stateful", "$scaler", "$loader", "$random")
"""Tags of objects that only a live object of the same kind can take."""


class Matcher:
    """Compares one saved state with one live state."""

    def __init__(self, tensors: SavedTensors, state: Mapping[str, Any]) -> None:
        self._tensors = tensors
        self._known = parameter_names(state)
        self._maker = Maker(tensors, parameters_by_name(state))
        self._written: dict[tuple[Any, ...], str] = {}
        self._contents: dict[tuple[object, ...], tuple[object, Json]] = {}
        self._load_themselves: list[str] = []
        self._storages: set[int] = set()
        self._writes: list[Write] = []
        self._orders: list[Write] = []
        self._loads: list[Write] = []
        self._moments: list[Moment] = []
        self._placed: dict[str, torch.Tensor] = {}

    def match(self, saved: Mapping[str, Json], state: MutableMapping[str, Any]) -> list[Write]:
        """The writes that make the live state equal to the saved one; nothing is written yet.

        Raises:
            StructureError: names the path, and both sides.
        """
        refuse_other_keys(saved, state)
        for key, json in saved.items():
            self._into(state, key, json, str(key))
        settle(self._moments, self._tensors, self._storages, self._maker.new_tensor)
        if self._tensors.shared:
            share_again(self._maker.new, self._placed, self._tensors.location, self._tensors.whole)
            self._say_untied(parted(self._placed, self._tensors.location))
        if self._load_themselves:
            before = holders(state)
            self._writes.append(lambda: refuse_parted(before, holders(state), self._load_themselves))
        # Last: what an optimizer derives from its parameters as it loads, it derives from those that were saved.
        return [*self._writes, *self._orders, *self._loads]

    # -- one place -----------------------------------------------------------------------------------------------

    @says_its_path
    def _into(self, parent: MutableMapping[Any, Any] | MutableSequence[Any], key: Any, json: Json, path: str) -> None:
        """Match what `parent[key]` holds; values that cannot be changed in place are replaced in the parent."""
        live = parent[key]
        if not self._taken(live, json, path):
            value = self._new(live, json, path)
            self._writes.append(lambda: parent.__setitem__(key, value))

    def _new(self, live: object, json: Json, path: str) -> object:
        """What replaces a value that does not take its state itself. A tuple cannot be changed, but what it holds may be:
        members that take their state in place stay, and where all do, so does the tuple."""
        items = json.get("$tuple") if isinstance(json, dict) and isinstance(live, tuple) else None
        if items is None or len(items) != len(live):  # type: ignore[arg-type]
            return self._maker.value(json, live)
        members: list[object] = []
        for i, (member, item) in enumerate(zip(live, items, strict=True)):  # type: ignore[call-overload]
            at = child(path, i)
            members.append(member if self._taken(member, item, at) else self._new(member, item, at))
        return live if all(map(operator.is_, members, live)) else tuple(members)  # type: ignore[call-overload]

    def _taken(self, live: object, json: Json, path: str) -> bool:
        """Match a live value that takes its state in place, whoever holds it; False for everything else."""
        if isinstance(json, dict) and self._object(live, json, path):
            return True
        if not can_become(live, json, self._tensors):
            return False
        _, first = self._contents.setdefault(place_of(live), (live, json))
        if first is not json:  # held twice, and written once. Where two places held two things, this one gets a new one
            return is_same(first, json, self._tensors)
        if isinstance(live, MutableMapping):
            self._mapping(live, self._pairs(json) or {}, path)
        elif isinstance(json, list) and isinstance(live, MutableSequence):
            self._sequence(live, json, path)
        elif "$deque" in json and isinstance(live, deque):
            refuse_other_room(path, json["$deque"][0], live)
            self._sequence(live, json["$deque"][1], path)
        elif "$ndarray" in json and isinstance(live, np.ndarray):
            self._writes.append(partial(self._tensors[json["$ndarray"]].write_over_array, live))
        else:
            self._writes.append(partial(fill, live, self._maker.value(json, None), path))
        return True

    def _pairs(self, json: Json) -> dict[Any, Json] | None:
        """A mapping's items, whichever of its forms it was stored in; None for everything else."""
        if not isinstance(json, dict):
            return None
        tag = next(iter(json), "")
        if len(json) != 1 or not tag.startswith("$"):
            return json
        if tag not in PAIRS:
            return None
        pairs = json[tag][1] if tag == "$default" else json[tag]
        return {self._maker.value(k, None): item for k, item in pairs}

    def _object(self, live: Any, json: Mapping[str, Json], path: str) -> bool:
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
        elif "$stateful" in json and says_its_state(live):
            value = self._maker.given(json["$stateful"])
            self._writes.append(loads(path, live, lambda: live.load_state_dict(value)))
        elif "$scaler" in json and isinstance(live, torch.amp.GradScaler):
            self._scaler(live, json["$scaler"], path)
        elif "$loader" in json and keeps_position(live):
            kept = self._maker.given(json["$loader"])
            self._writes.append(loads(path, live, lambda: load_loader(path, live, kept)))
        elif "$random" in json and random_kind(live) == json["$random"][0]:
            drawn, *seed = (self._maker.given(item) for item in json["$random"][1:])
            self._writes.append(lambda: set_random_state(live, drawn, *seed))
        elif any(tag in json for tag in _IN_PLACE):
            raise StructureError(
                f"{path} was saved from a {kind_of(json)}, and is a {type(live).__qualname__} now", path=path
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
        values = scaler_state(self._maker.given(json))
        self._writes.append(loads(path, live, lambda: live.load_state_dict(values)))

    def _mapping(self, live: MutableMapping[Any, Any], json: Mapping[Any, Json], path: str) -> None:
        for key, item in json.items():
            if key in live:
                self._into(live, key, item, self._member(path, key))
            else:
                value = self._maker.value(item, None)
                self._writes.append(lambda key=key, value=value: live.__setitem__(key, value))  # type: ignore[misc]
        new = {key: is_data(item) for key, item in live.items() if key not in json}
        for key in [key for key, data in new.items() if not data]:
            log.warning("restore.default %s was not saved; its value stays", self._member(path, key))
        gone = [key for key, data in new.items() if data]
        if gone:
            names = ", ".join(self._member(path, key) for key in gone[:4]) + ", …" * (len(gone) > 4)
            log.warning(
                "restore.removed %s comes back as it was saved, without %d of its keys now: %s. What a new version of the "
                "program adds there is set after restore()",
                path, len(gone), names,
            )  # fmt: skip
            self._writes.append(partial(take_out, live, gone))
        self._orders.append(lambda: put_in_order(live, json))

    def _member(self, path: str, key: object) -> str:
        """Path of a mapping's member; a parameter as a key is called by its name."""
        return f"{path}.{self._known.get(id(key), '?')}" if isinstance(key, nn.Parameter) else child(path, key)

    def _sequence(self, live: MutableSequence[Any], json: list[Json], path: str) -> None:
        for i, item in enumerate(json[: len(live)]):
            self._into(live, i, item, child(path, i))
        rest = [self._maker.value(item, None) for item in json[len(live) :]]
        if len(json) != len(live):
            self._writes.append(partial(resize, live, min(len(json), len(live)), rest))

    # -- tensors, modules, optimizers ----------------------------------------------------------------------------

    def _tensor(self, live: torch.Tensor, name: str, path: str) -> None:
        saved = self._tensors[name]
        refuse_other_tensor(path, saved, live)
        with torch._C.DisableTorchFunctionSubclass():  # a subclass of the user's is written as the plain tensor it is
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

    def _say_untied(self, pairs: Sequence[tuple[str, str]]) -> None:
        """Both get the saved values, and training may part them."""
        for one, other in pairs[:1]:
            log.warning(
                "restore.untied %s and %s were one tensor when they were saved, and are two now (%d such pairs); both get "
                "its values. If they should go on as one, tie them before restore()",
                one, other, len(pairs),
            )  # fmt: skip

    def _same_twice(self, first: str, second: str, path: str) -> None:
        """Two names for one live place (a tie): the saved values must agree."""
        if first != second and not self._tensors[first].is_same(self._tensors[second]):
            raise StructureError(
                f"{path} shares its storage with {first} now, but they were saved with different values", path=path
            )
        if self._tensors.location(first).entry != self._tensors.location(second).entry:
            log.warning(
                "restore.tied %s and %s were two tensors when they were saved, with the same values, and are one now: what "
                "changes one changes the other. Give each a tensor of its own before restore()", first, second,
            )  # fmt: skip

    def _module(self, live: nn.Module, json: Mapping[str, Json], path: str) -> None:
        bare = unwrap(live)
        names = ModuleTensors(bare, path, is_fresh=True)
        tensors, extras = names.read()
        saved = json["tensors"]
        refuse_other_names(
            path,
            [*filter(names.is_loaded_by_torch, saved), *names.untaken_extras([*saved, *json["extras"]])],
            [n for n in filter(names.is_loaded_by_torch, tensors) if n in saved or not names.may_leave_out],
        )
        for name in extras.keys() - json["extras"].keys():
            log.warning("restore.default %s.%s was not saved; its value stays", path, name)
        for name in saved:
            full = f"{path}.{name}"
            if names.is_its_own(name) and self._is_written(names, name, self._tensors[full], tensors[name]):
                self._tensor(tensors[name], full, full)
        if not names.is_plain(saved):
            copies = self._maker.given_module(path, {**json, "tensors": list(filter(names.is_given, saved))}, extras)
            # What needs no copy is named, too, and is the live tensor, which has been written by then.
            entries = {name: tensors.get(name) for name in saved}
            said = {**tensors, **extras}
            self._writes.append(loads(path, bare, lambda: names.load({**entries, **copies()}, said)))
            self._load_themselves.append(path)
            return
        for name, value in self._maker.given_extras(json["extras"], extras).items():
            owner = bare.get_submodule(name.rpartition(".")[0])
            self._writes.append(loads(f"{path}.{name}", owner, partial(owner.set_extra_state, value)))

    @staticmethod
    def _is_written(names: ModuleTensors, name: str, saved: SavedTensor, live: torch.Tensor) -> bool:
        """Whether a saved tensor is written over its parameter or buffer; if they differ, that is refused. Other forms and
        shapes are known to none but a module that saves or loads itself."""
        if saved.is_like(live):
            return True
        is_resized = not nn.parameter.is_lazy(live) and saved.dtype == live.dtype and not names.is_loaded_by_torch(name)
        return names.is_saved_by_torch(name) and not is_resized

    def _optimizer(self, live: torch.optim.Optimizer, json: Mapping[str, Json], path: str) -> None:
        names = optimizer_names(live, self._known)
        groups = [[names[id(p)] for p in group["params"]] for group in live.param_groups]
        saved_groups = [group["params"] for group in json["groups"]]
        refuse_other_groups(path, saved_groups, groups)
        refuse_other_way(path, live, was_plain="said" not in json)
        if "said" in json:
            said = self._maker.given(json["said"], None, next(parameters_of(live), None))
            self._loads.append(loads(path, live, lambda: load(live, said)))
            return
        parameters = {names[id(p)]: p for group in live.param_groups for p in group["params"]}
        state: list[tuple[object, object]] = []
        self._storages.update(p.untyped_storage().data_ptr() for p in parameters.values())
        copies = self._copies()
        for name, entry in json["state"]:
            what = f"{path} was saved with moments of {name}, which is in none of its groups"
            parameter = parameters[name] if name in parameters else self._maker.parameter(name, what)
            state.append((parameter, self._entry(live.state, parameter, entry, copies)))
        state += [(self._maker.value(key, None), self._maker.value(entry, None)) for key, entry in json["other"]]

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
        if pairs is None or type(live) is not dict or any(tag in json for tag in PAIRS):
            return self._maker.value(json, None, parameter)
        entry: dict[Any, object] = {}
        for key, item in pairs.items():
            old = live.get(key)
            if isinstance(item, dict) and "$tensor" in item and isinstance(old, torch.Tensor) and not is_wrapper(old):
                entry[key] = old
                self._moments.append(Moment(entry, key, old, item["$tensor"], parameter, copies))
            else:
                entry[key] = self._maker.value(item, None, parameter)
        return entry

    def _options(self, group: dict[str, Any], options: Mapping[str, Json], path: str) -> None:
        for key, item in options.items():
            if key in group:
                self._into(group, key, item, f"{path}.{key}")
            else:
                value = self._maker.value(item, None)
                self._writes.append(lambda key=key, value=value: group.__setitem__(key, value))  # type: ignore[misc]
        for key in set(group) - set(options) - {"params", "param_names"}:
            log.warning("restore.default %s.%s was not saved; its value stays %r", path, key, group[key])
