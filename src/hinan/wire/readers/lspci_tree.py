"""`lspci -t`, `-tv`, `-tvnn`: the tree in ASCII art, read by columns.

Owns:      the geometry: a device belongs to the last bus opened at a smaller column on its line or above it.
Promises:  the tree that was drawn. A device whose bus lies outside the range of the bridge above it is left out: the
           lines were cut or moved.
Relies on: two spaces between a device number and its name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from hinan.wire.facts.identity import class_of_name, role_of, vendor_of_name
from hinan.wire.facts.model import Buses, Function, Machine, Role
from hinan.wire.facts.text import whole_lines

_LINE = re.compile(r"^[\s|]*[-+\\]")
_ROOT = re.compile(r"[-+\\]-?\[(?:(?P<domain>[0-9a-f]{4,8}):)?(?P<bus>[0-9a-f]{2})\](?=-|$)", re.I)
_TOKEN = re.compile(
    r"-(?P<devfn>[01][0-9a-f]\.[0-7])"
    r"(?P<bridge>-\[(?:[0-9a-f]{4,8}:)?(?P<sec>[0-9a-f]{2})(?:-(?P<sub>[0-9a-f]{2}))?\])?"
    r"(?=(?P<end>\s{2,}(?P<name>\S.*)|\s*$)|-)",
    re.I,
)
_IDS = re.compile(r"\s*\[(?P<vendor>[0-9a-f]{4}):(?P<device>[0-9a-f]{4})\]", re.I)


@dataclass(frozen=True)
class _Bus:
    column: int
    domain: int
    number: int
    last: int
    bridge: str | None


def read(text: str) -> Machine | None:
    """The functions of the tree with their parents; None when there is no tree."""
    functions: dict[str, Function] = {}
    open_buses: list[_Bus] = []
    dropped = 0
    for line in whole_lines(text)[0]:
        if not _LINE.match(line):
            continue
        position = 0
        root = _ROOT.search(line)
        if root is not None and not _TOKEN.search(line[: root.start() + 1]):
            bus = int(root["bus"], 16)
            open_buses = [_Bus(root.start(), int(root["domain"] or "0", 16), bus, bus, None)]
            position = root.end()
        while (token := _TOKEN.search(line, position)) is not None:
            function = _place(token, open_buses)
            if function is None or function.address in functions:
                dropped += 1
                break
            functions[function.address] = function
            if function.buses is None:
                break
            parent = open_buses[-1]
            open_buses.append(
                _Bus(token.start(), parent.domain, function.buses.secondary, function.buses.subordinate, function.address)
            )
            position = token.end()
    if not functions:
        return None
    notes = (f"{dropped} devices of the tree stand under no bus that fits and were left out",) if dropped else ()
    return Machine(functions=functions, sources=("lspci -tv",), notes=notes)


def _place(token: re.Match[str], open_buses: list[_Bus]) -> Function | None:
    """The function of a token; closes buses at its column and right of it. None when no open bus can hold it."""
    while open_buses and open_buses[-1].column >= token.start():
        open_buses.pop()
    if not open_buses:
        return None
    bus = open_buses[-1]
    address = f"{bus.domain:04x}:{bus.number:02x}:{token['devfn'].lower()}"
    buses = None
    if token["sec"]:
        secondary, subordinate = int(token["sec"], 16), int(token["sub"] or token["sec"], 16)
        outside = bus.bridge is not None and not bus.number <= secondary <= subordinate <= bus.last
        if outside or subordinate < secondary:
            return None
        buses = Buses(bus.number, secondary, subordinate)
    return _named(address, bus, buses, (token["name"] or "").strip())


def _named(address: str, bus: _Bus, buses: Buses | None, label: str) -> Function:
    ids = list(_IDS.finditer(label))
    vendor = int(ids[-1]["vendor"], 16) if ids else vendor_of_name(label)
    name = _IDS.sub("", label).strip() or None
    hexed = re.search(r"\bDevice ([0-9a-f]{4})\b", label)
    device = int(ids[-1]["device"], 16) if ids else int(hexed[1], 16) if hexed else None
    role = Role.BRIDGE if buses is not None else role_of(class_of_name(label), vendor, device, name)
    return Function(
        address=address, role=role, parent=bus.bridge, buses=buses,
        at_root=bus.bridge is None and role is not Role.GPU,  # a GPU's port is not told then (`ports`)
        vendor_id=vendor, device_id=device, name=name,
    )  # fmt: skip
