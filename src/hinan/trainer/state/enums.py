"""Classes of enums, found again in what this process has imported. Nothing is imported because a file says so."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from enum import Enum, Flag
from functools import reduce
from operator import or_
from typing import Any

from hinan.formats.values import Json, decode_value

_MAIN = ("__main__", "__mp_main__")
"""The program's own module: its name in a process that was started as the program is, and in one that it spawned."""


def class_of(module: str, qualname: str) -> type[Enum] | None:
    """The enum of this name, if a module that was imported has one there."""
    names = _MAIN if module in _MAIN else (module,)
    spaces = (getattr(sys.modules.get(name), "__dict__", {}) for name in names)
    return next((found for space in spaces if (found := _below(space, qualname)) is not None), None)


def is_found_again(kind: type[Enum]) -> bool:
    """Whether a restore finds this class by its name."""
    return class_of(kind.__module__, kind.__qualname__) is kind


def member_of(kind: type[Enum], said: Json) -> Enum:
    """A member by its name, or a combination of flags by its value.

    Raises:
        KeyError, ValueError, or whatever the class raises: it has none.
    """
    if isinstance(said, str) and (said in kind.__members__ or not issubclass(kind, Flag)):
        return kind.__members__[said]
    return kind(_of_names(kind, said) if isinstance(said, str) else decode_value(said, _refuse) or 0)


def _of_names(kind: type[Enum], said: str) -> Any:
    """The value of a combination that was written as Python shows it: "A|B", with a number for bits without a name."""
    parts = (kind.__members__[name].value if name in kind.__members__ else int(name) for name in said.split("|"))
    return reduce(or_, parts)


def _below(space: Mapping[str, Any], qualname: str) -> type[Enum] | None:
    """What stands under a dotted name. Looked up in dictionaries: an attribute may be code, and import."""
    found: Any = None
    owner = ""
    for name in qualname.split("."):
        # In a class, a name like __Private is kept as _Owner__Private.
        mangled = f"_{owner.lstrip('_')}{name}"
        found = space.get(name, space.get(mangled) if name.startswith("__") else None)
        if not isinstance(found, type):
            return None
        space, owner = vars(found), name
    return found if isinstance(found, type) and issubclass(found, Enum) else None


def _refuse(path: str, tag: str, payload: Json) -> object:
    raise ValueError(f"a value tagged {tag} is no value of an enum")
