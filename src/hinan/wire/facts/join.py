"""Two descriptions of one function, and the signs that two files are not of one machine.

Owns:      which facts two sources must agree on. What they contradict each other on is unknown, and stays so whatever a
           third one says: nobody can tell which of them is of today.
Never:     compares what changes by itself (the present speed of a link, free memory) or what a source may leave out.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations
from typing import Any

import msgspec

from hinan.wire.facts.model import Function, Link, Machine, Port, Role

NCCL = "NCCL topology"
_IDENTITY = ("device_id", "class_code")
_FIXED = ("numa_node", "mps_bytes", "acs", "buses", "iommu_mode", "gpudirect")
_ARE_NOT, _MAY_NOT_BE = "these files are not of one machine", "these files may not be of one machine"
OF_SEVERAL_MACHINES = "the sources may be of different machines"
"""Why nothing is said that joins one device with another: short, where `Machine.mixed` has the evidence."""
_FIXED_LINK = ("cap_gt_s", "cap_width")


def join_functions(strong: Function, weak: Function, *, smaller_end: bool = False) -> Function:
    """`strong` with its unknown fields taken from `weak`, and without those on which the two contradict each other.

    Args:
        smaller_end: `weak` tells of a link the smaller capability of its two ends (NCCL); less is no contradiction, and
            says what the other end can do.
    """
    changes: dict[str, Any] = _place(strong, weak)
    for name in set(Function.__struct_fields__) - changes.keys():
        mine, other = getattr(strong, name), getattr(weak, name)
        if _is_unset(mine) and not _is_unset(other):
            changes[name] = other
    if strong.role is Role.OTHER and strong.class_code is None:
        changes["role"] = weak.role
    link = {f: getattr(weak.link, f) for f in Link.__struct_fields__ if _is_unset(getattr(strong.link, f))}
    link |= _both_ends(strong.link, weak.link) if smaller_end else {}
    filled = msgspec.structs.replace(strong, link=msgspec.structs.replace(strong.link, **link), **changes)
    disputed = _disputes(strong, weak, smaller_end=smaller_end)
    return _without(filled, disputed, same_role=strong.role is weak.role) if disputed else filled


def _is_unset(value: Any) -> bool:
    """Does a field say nothing? A number 0 says something: it is GPU 0, node 0, group 0, though it equals False."""
    return value is None or value is False or value == ()


def _place(strong: Function, weak: Function) -> dict[str, Any]:
    """Where it stands, as one source draws it: what is above, and whether it is a switch in one line or a port of it.

    A parent across a gap is a guess from bus numbers, which `tree` makes again. Of an endpoint "at the root" only means
    that no port was drawn above it (NCCL leaves root ports out, a VM shows none): a parent that is drawn says more.
    """
    drawn = strong.parent is not None and not strong.gap_above
    told = drawn or (strong.at_root and (strong.role is Role.BRIDGE or weak.parent is None or weak.gap_above))
    source = strong if told or not (weak.parent or weak.at_root) else weak
    port = strong.port if source is strong and weak.port is Port.SWITCH else strong.port or weak.port
    return {"parent": source.parent, "gap_above": source.gap_above, "at_root": source.at_root, "port": port}


def _both_ends(mine: Link, smaller: Link) -> dict[str, float | int]:
    """Of a link that can do less than this end of it: what it can do."""
    pairs = (("both_gt_s", mine.cap_gt_s, smaller.cap_gt_s), ("both_width", mine.cap_width, smaller.cap_width))
    return {name: less for name, own, less in pairs if own is not None and less is not None and less < own}


def _disputes(strong: Function, weak: Function, *, smaller_end: bool) -> dict[str, tuple[str, ...]]:
    found: dict[str, set[str]] = {}
    for known in (strong.disputed, weak.disputed):
        for name, values in known.items():
            found.setdefault(name, set()).update(values)
    pairs = [(name, getattr(strong, name), getattr(weak, name)) for name in (*_IDENTITY, *_FIXED)]
    for name in _FIXED_LINK:
        mine, other = getattr(strong.link, name), getattr(weak.link, name)
        of_link = {getattr(strong.link, name.replace("cap", "both")), getattr(weak.link, name.replace("cap", "both"))}
        if {mine, other} & (of_link - {None}):
            continue  # said of the link as a whole, which contradicts no end
        if not (smaller_end and mine is not None and other is not None and other < mine):
            pairs.append((name, mine, other))
    for name, mine, other in pairs:
        told = {_told(name, value) for value in (mine, other) if value is not None}
        if len(told) == 2 or (told and name in found):
            found.setdefault(name, set()).update(told)
    return {name: tuple(sorted(values)) for name, values in sorted(found.items())}


def _told(name: str, value: Any) -> str:
    if name in _IDENTITY:
        return f"{value:04x}"
    if name == "acs":
        return " ".join(flag for flag in value.__struct_fields__ if getattr(value, flag)) or "all off"
    if name == "buses":
        return f"{value.secondary:02x}-{value.subordinate:02x}"
    return f"x{value}" if name == "cap_width" else f"{value:g} GT/s" if name == "cap_gt_s" else f"{value}"


def _without(function: Function, disputed: dict[str, tuple[str, ...]], *, same_role: bool) -> Function:
    """The disputed fields as unknown. Of two different devices at one address nothing but the place is left."""
    if disputed.keys() & set(_IDENTITY):
        role = function.role if same_role else Role.OTHER
        changes: dict[str, Any] = dict.fromkeys((*_IDENTITY, *_FIXED, "vendor_id", "name", "coherent_link"))
        return msgspec.structs.replace(function, role=role, link=Link(), bars=(), disputed=disputed, **changes)
    link = msgspec.structs.replace(function.link, **{name: None for name in _FIXED_LINK if name in disputed})
    fields: dict[str, Any] = {name: None for name in _FIXED if name in disputed}
    return msgspec.structs.replace(function, link=link, disputed=disputed, **fields)


def link_is_disputed(function: Function) -> bool:
    """Do sources contradict each other on what this function's link can do?"""
    return bool(function.disputed.keys() & {*_FIXED_LINK, *_IDENTITY})


def mixed_evidence(machines: Sequence[Machine]) -> str | None:
    """Why the files are not of one machine, or may not be, as a sentence; None when nothing says so.

    Two names of the product, or mostly other devices at the addresses that both have: they are not. Two lists of the bus
    whose GPUs are mostly elsewhere: they may be two parts of one list, which only the one who cut it knows.
    """
    pairs = list(combinations(sorted(machines, key=lambda m: m.sources), 2))
    for one, other in pairs:
        who = _who(one, other)
        names = [" ".join(m.product.split()) for m in (one, other) if m.product]
        if len(set(names)) == 2:
            return f"{_ARE_NOT} ({who}: {names[0]} or {names[1]})"
        shared = one.functions.keys() & other.functions.keys()
        strange = [a for a in shared if _is_other(one.functions[a], other.functions[a])]
        if strange and 2 * len(strange) >= len(shared):
            return f"{_ARE_NOT} ({who}: {len(strange)} of {len(shared)} common addresses are other devices)"
    for one, other in pairs:
        mine, theirs = _gpus(one), _gpus(other)
        both = mine & theirs
        if mine and theirs and 2 * len(both) < min(len(mine), len(theirs)):
            told = f"{len(mine)} and {len(theirs)} GPUs, {len(both)} of them at the same address"
            return f"{_MAY_NOT_BE} ({_who(one, other)}: {told}; if they are parts of one list, put them into one file)"
    return None


def _who(one: Machine, other: Machine) -> str:
    return f"{' and '.join(one.sources)} against {' and '.join(other.sources)}"


def _gpus(machine: Machine) -> frozenset[str]:
    return frozenset(address for address, f in machine.functions.items() if f.role is Role.GPU)


def _is_other(one: Function, other: Function) -> bool:
    pairs = [(getattr(one, name), getattr(other, name)) for name in _IDENTITY]
    return any(mine != theirs for mine, theirs in pairs if mine is not None and theirs is not None)
