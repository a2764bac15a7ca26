"""Asks objects of the user's which attributes they have: some answer with anything, and some with any error."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from hinan.host.signals import ours


def has(value: object, *names: str) -> bool:
    """Whether an object has all of these attributes.

    Members of a mapping are none: `__getattr__ = dict.__getitem__` finds them, raises a KeyError where there is no such
    member, and in a defaultdict makes it. So a mapping has what its class has.
    """
    return all(hasattr(type(value), name) or (not isinstance(value, Mapping) and _gives(value, name)) for name in names)


def says_its_state(value: object) -> bool:
    """Whether it gives its state and takes it back: schedulers, scalers, loaders, objects of the user's."""
    return has(value, "state_dict", "load_state_dict")


def items_of(value: Mapping[Any, Any]) -> Collection[tuple[Any, Any]]:
    """The items of a mapping, for who only looks for something in a state; none where they cannot be asked for, which the
    first evacuation says by path."""
    try:
        return list(value.items())
    except ours(Exception):
        return ()


def _gives(value: object, name: str) -> bool:
    try:
        return hasattr(value, name)
    except ours(Exception):
        return False
