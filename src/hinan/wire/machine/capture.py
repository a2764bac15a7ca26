"""One file that holds a machine: written on a node by `hinan wire capture`, read anywhere by every verb.

Owns:      the format (`{"hinan_wire": 1, "machine": {...}}`).
Promises:  no identity leaves the node (`identities`), and what is written is read back before anyone gets it. Reading
           checks every type and range; a wrong file says where it is wrong.
Never:     pickles.
"""

from __future__ import annotations

import json
from math import isfinite
from typing import NoReturn

import msgspec

from hinan.core.errors import FormatError, FormatFromFuture
from hinan.wire.facts.model import Machine
from hinan.wire.machine.identities import without_identities

VERSION = 1


def write(machine: Machine, *, host: str | None = None) -> str:
    """The file's text: sorted, indented JSON that a person can review before sending it.

    Raises:
        FormatError: what was written does not read as the same machine.
    """
    washed = without_identities(machine, host)
    body = msgspec.to_builtins(washed, str_keys=True)
    try:
        text = json.dumps({"hinan_wire": VERSION, "machine": body}, indent=1, sort_keys=True, allow_nan=False) + "\n"
    except ValueError as error:
        raise FormatError(f"this machine cannot be written down: {error}") from error
    if read(text) != washed:
        raise FormatError("this machine cannot be written down: the file would not read as the same machine")
    return text


def read(text: str) -> Machine | None:
    """The machine of a capture file; None when the JSON is something else or cut.

    Raises:
        FormatFromFuture: written by a newer hinan.
        FormatError: a value has the wrong type, or cannot be (a negative node, an MPS of 200 bytes).
    """
    try:
        document = json.loads(text, parse_constant=_refuse, parse_float=_float, parse_int=_int)
    except (ValueError, RecursionError) as error:
        if '"hinan_wire"' in text[:200]:
            raise FormatError(f"this capture file is cut or damaged ({error}); copy it again") from error
        return None
    if not isinstance(document, dict) or "hinan_wire" not in document:
        return None
    version = document["hinan_wire"]
    if type(version) is int and version < 1:
        raise FormatError(f"the capture file is damaged: there is no format {version}")
    if type(version) is not int or version > VERSION:
        raise FormatFromFuture(f"capture format {version!r}; this hinan reads up to {VERSION}", version=version)
    try:
        machine = msgspec.convert(document.get("machine"), Machine, str_keys=True)
    except msgspec.ValidationError as error:
        raise FormatError(f"the capture file is damaged: {error}") from error
    _check_places(machine)
    return machine


def _refuse(constant: str) -> NoReturn:
    """JSON has no NaN and no Infinity; Python's reader would take them."""
    raise ValueError(f"{constant} is no number")


def _float(text: str) -> float:
    number = float(text)
    return number if isfinite(number) else _refuse(text)


def _int(text: str) -> int:
    """Nothing in a machine is larger than an address."""
    return int(text) if len(text) <= 20 and int(text) < 1 << 64 else _refuse(text[:24])


def _check_places(machine: Machine) -> None:
    """What types do not say: a function stands under its own address, ranges begin before they end, MPS is 2^n."""
    for address, function in machine.functions.items():
        if function.address != address:
            raise FormatError(f"the capture file is damaged: {function.address} stands under {address}")
        for window in (*function.windows, *function.bars, *(function.sriov.bars if function.sriov else ())):
            if window.first > window.last:
                raise FormatError(
                    f"the capture file is damaged: {address} has a range from {window.first:#x} to {window.last:#x}"
                )
        for size in (function.mps_bytes, function.mps_cap_bytes, function.mrrs_bytes):
            if size is not None and size.bit_count() != 1:
                raise FormatError(
                    f"the capture file is damaged: {address} has a payload of {size} bytes, which is no power of two"
                )
