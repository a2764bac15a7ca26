"""GPUs that one source names and the bus does not list: fallen off, or a dump that is not whole.

Owns:      telling the two apart. An empty port is evidence: a bridge whose bus number the GPU had is there, and nothing
           is behind it. Without one the list may as well be cut, and there is a note instead of a finding.
Relies on: a file that names another GPU of this bus too being of this machine.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from hinan.wire.facts.address import short_address, split_address
from hinan.wire.facts.model import Function, Gpu, Machine, Role

BUS, TOPOLOGY = frozenset({"sysfs", "lspci -vvv", "lspci -tv", "lspci"}), frozenset({"hwloc XML", "NCCL topology"})


def lost_from_topology(machines: Sequence[Machine]) -> dict[str, str]:
    """GPUs of hwloc or NCCL files that a list of the bus lacks: address -> evidence."""
    listed: dict[str, Function] = {}
    for machine in machines:
        if BUS & set(machine.sources) and not TOPOLOGY & set(machine.sources):
            listed |= machine.functions
    found: dict[str, str] = {}
    for machine in machines:
        named = sorted(a for a, f in machine.functions.items() if f.role is Role.GPU)
        if TOPOLOGY & set(machine.sources) and any(a in listed and listed[a].role is Role.GPU for a in named):
            found |= _evidence([a for a in named if a not in listed], listed, " and ".join(machine.sources))
    return found


def lost_from_measurements(told: Sequence[Gpu], functions: Mapping[str, Function]) -> dict[str, str]:
    """The same for GPUs that a stopwatch or a capture names by address."""
    named = [gpu.address for gpu in told if gpu.address is not None]
    if not any(a in functions and functions[a].role is Role.GPU for a in named):
        return {}
    return _evidence([a for a in named if a not in functions], functions, "a measurement")


def _evidence(addresses: Sequence[str], listed: Mapping[str, Function], who: str) -> dict[str, str]:
    ports = {address: empty_port(address, listed) for address in addresses}
    return {
        address: f"{who} names it; {short_address(port)} is on the bus, with nothing behind it"
        for address, port in ports.items()
        if port is not None
    }


def empty_port(address: str, listed: Mapping[str, Function]) -> str | None:
    """The bridge behind which this address was, if the list has the bridge and nothing behind it."""
    domain, bus, _, _ = split_address(address)
    for bridge in listed.values():
        if bridge.buses is None or bridge.buses.secondary != bus or split_address(bridge.address)[0] != domain:
            continue
        behind = range(bridge.buses.secondary, bridge.buses.subordinate + 1)
        if not any(split_address(a)[0] == domain and split_address(a)[1] in behind for a in listed):
            return bridge.address
    return None


def notes(told: Sequence[Gpu], functions: Mapping[str, Function], lost: Mapping[str, str]) -> tuple[str, ...]:
    """Sentences on GPUs that are named elsewhere and neither listed nor known to be lost."""
    on_bus = {a for a, f in functions.items() if f.role is Role.GPU}
    if not on_bus:
        return ()
    named = {gpu.address for gpu in told if gpu.address is not None}
    strangers, known = named - on_bus - lost.keys(), named & on_bus
    found = []
    if strangers and known:
        found.append(f"{len(strangers)} GPUs are named by a source and not on the bus as listed: is the list whole?")
    elif strangers:
        found.append(f"{len(strangers)} GPUs are named by addresses that are not on this bus: another machine's file?")
    count = len({gpu.index for gpu in told if gpu.address is None})  # several sources number the same GPUs
    if count > len(on_bus):
        found.append(f"another source names {count} GPUs, the bus lists {len(on_bus)}: a list that was cut, or lost GPUs")
    return tuple(found)
