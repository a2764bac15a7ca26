"""What identifies a node, and how it is taken out of a machine before a file leaves.

Owns:      the patterns, and which fields hold free text.
Promises:  no serial number, UUID, GUID, world-wide name, MAC or IP address, and not the host name: the model has no field
           for them, and free text is washed. Names of other hosts go where they are made of an IP address or end in a
           private domain. Interfaces that are named after their MAC get another name, the same one everywhere. Nor is told
           where the kernel lies in memory.
Never:     touches addresses, words of the format, or what decides something (names of hardware are from a public list,
           so that a host which is called like one must not change them, nor the names of sources).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import Any

import msgspec

from hinan.wire.facts.disputes import PLACE_OF, Disputed
from hinan.wire.facts.model import Function, Gpu, IomemRange, Machine, Measurement

_BETWEEN = r"""(?![a-z])[ \t.:=#"']*"""  # a word and its value
_HAS_DIGIT = r"(?=[\w-]*[0-9])"
"""Before a value: behind a bare "serial" stand words of hardware too (Serial Attached SCSI, serial adapter)."""
_NUMBERED = r"serial[ _-]?(?:number|num|no|nr)|\bs/n|(?:service|asset)[ _-]?tag|chassis[ _-]?(?:number|num|no|nr)"
_OCTET = r"(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])"
_NOT_AN_ADDRESS = r"(?!0000)"
"""Before 16 hex digits: no memory reaches 48 bits, so the first four tell something in GUIDs, and nothing in addresses."""
_SECRETS = (
    (re.compile(r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b", re.I), "UUID"),
    (re.compile(r"\b(?:[0-9a-f]{2}[:-]){5,7}[0-9a-f]{2}\b", re.I), "MAC"),
    (re.compile(r"\b(?:[0-9a-f]{4}\.){2}[0-9a-f]{4}\b", re.I), "MAC"),
    (re.compile(r"\b(?:[0-9a-f]{4}:){3}[0-9a-f]{4}\b", re.I), "GUID"),
    (re.compile(r"\b(?:[0-9a-f]{1,4}:){7}[0-9a-f]{1,4}\b", re.I), "IP"),
    (re.compile(r"\b(?:[0-9a-f]{1,4}:)+:(?:[0-9a-f]{1,4}(?::[0-9a-f]{1,4})*)?", re.I), "IP"),
    (re.compile(rf"(?<![\w.])(?:{_OCTET}\.){{3}}{_OCTET}(?!\w|\.[0-9])"), "IP"),  # five numbers are a version
    (re.compile(rf"(?<![\w-])(?:[a-z][a-z0-9]*-)+(?!0-)(?:{_OCTET}-){{3}}{_OCTET}(?![\w-])(?:\.[\w-]+)*", re.I), "HOST"),
    (re.compile(r"(?<![\w.-])(?:[\w-]+\.)+(?:internal|local|lan|localdomain|amazonaws\.com)(?![\w.-])", re.I), "HOST"),
    (re.compile(rf"\b0x{_NOT_AN_ADDRESS}[0-9a-f]{{16}}\b", re.I), "GUID"),
    (re.compile(r"\b(?:naa|wwn)[.-](?:0x)?[0-9a-f]{16,32}\b", re.I), "WWN"),
    (re.compile(r"\bnvme\.[0-9a-f]{4}-[0-9a-f]+-[0-9a-f]+-[0-9a-f]{8}\b", re.I), "NVME"),
    (re.compile(r"\b[in]qn\.[0-9]{4}-[0-9]{2}\.[^\s\"'<>]+", re.I), "NQN"),
    (re.compile(r"\b(GPU|MIG)-[0-9a-f]{8}(?![0-9a-z-])", re.I), r"\1-UUID"),
    (re.compile(r"\b(enx|wlx|wwx|ibx|rocex?)(?:[0-9a-f]{16}|[0-9a-f]{12})(?![0-9a-f])", re.I), r"\1MAC"),
    (re.compile(rf"(?:\bmac(?: ?addr(?:ess)?)?|guid|uuid){_BETWEEN}(?:0x)?[0-9a-f]{{12,32}}\b", re.I), "GUID"),
    (re.compile(r"\beui\.[0-9a-f]{16,32}\b", re.I), "EUI"),
    (re.compile(r"(?<![0-9a-z])(?:0x)?[0-9a-f]{32}(?![0-9a-z])", re.I), "UUID"),
    (re.compile(rf"(?<![0-9a-z]){_NOT_AN_ADDRESS}(?=[0-9]*[a-f])[0-9a-f]{{16}}(?![0-9a-z])", re.I), "GUID"),
    (re.compile(rf"""(?:{_NUMBERED})["']?[ \t]*[.:=#][ \t.:=#"']*[\w-]+""", re.I), "SERIAL"),
    (re.compile(rf"(?:{_NUMBERED}){_BETWEEN}(?:{_HAS_DIGIT}[\w-]+|[\w-]{{4,}})", re.I), "SERIAL"),
    (re.compile(r"""serial["']?[ \t]*[.:=#][ \t"']*[\w-]{4,}""", re.I), "SERIAL"),
    (re.compile(rf"serial{_BETWEEN}{_HAS_DIGIT}[\w-]{{4,}}", re.I), "SERIAL"),
    (re.compile(r"\bsn\b[ :=#]*(?=[\w-]*[0-9])[\w-]{6,}", re.I), "SERIAL"),
)
_KERNEL = re.compile(r"Kernel (?:code|rodata|data|bss)\b")
"""Ranges of /proc/iomem that say where the kernel of this boot lies, which it hides from others than root (KASLR)."""
_HEX_IN_NAME = re.compile(r"[0-9a-f]{16}|[0-9a-f]{12}", re.I)


def wash(text: str, host: str | None = None) -> str:
    """`text` without identities; `host` is this node's name. One of digits only is no more than a number, and stays."""
    for pattern, word in _SECRETS:
        text = pattern.sub(word, text)
    names = {host, host.split(".")[0]} if host else set()
    for name in sorted((name for name in names if not name.isdigit()), key=len, reverse=True):
        text = re.sub(rf"(?<![A-Za-z0-9]){re.escape(name)}(?![A-Za-z0-9])", "HOST", text, flags=re.I)
    return text


def without_identities(machine: Machine, host: str | None = None) -> Machine:
    """The same machine, to be shown to others."""
    names = _apart(_all_interfaces(machine), lambda name: _HEX_IN_NAME.sub("MAC", wash(name, host)))
    sources = _apart({*machine.sources, *(m.source for m in machine.measurements)}, wash)
    runs = _apart({m.run for m in machine.measurements if m.run is not None}, wash)
    return msgspec.structs.replace(
        _cleaned(machine, ("product", "coherent_link", "mixed", "virtual", "notes"), host),
        functions={address: _hardware(function) for address, function in machine.functions.items()},
        gpus=tuple(_renamed(gpu, names) for gpu in machine.gpus),
        cpu_model=_or_none(machine.cpu_model),
        iomem=tuple(IomemRange(r.first, r.last, wash(r.name)) for r in machine.iomem if not _KERNEL.match(r.name)),
        measurements=tuple(_measured(m, sources, runs) for m in machine.measurements),
        sources=tuple(sources[source] for source in machine.sources),
        nic_names={names[name]: address for name, address in machine.nic_names.items()},
        disputed=_disputed(machine.disputed, names),
    )


def _all_interfaces(machine: Machine) -> set[str]:
    """Also those of which sources say different things: they stand in no other field."""
    placed = {what.removeprefix(PLACE_OF) for what in machine.disputed if what.startswith(PLACE_OF)}
    told = {value.rpartition(" ")[0] for gpu in machine.gpus for value in gpu.disputed.get("relations", ())}
    return {*machine.nic_names, *placed, *told, *(other for gpu in machine.gpus for other in gpu.relations)}


def _disputed(disputed: Disputed, names: dict[str, str]) -> Disputed:
    """What was said, with interfaces under their new names and names of products washed."""
    shown = {_said(what, names): tuple(sorted(_said(each, names) for each in told)) for what, told in disputed.items()}
    return dict(sorted(shown.items()))


def _said(text: str, names: dict[str, str]) -> str:
    return wash(" ".join(names.get(word, word) for word in text.split(" ")))


def _apart(names: Iterable[str], clean: Callable[[str], str]) -> dict[str, str]:
    """A name for each, in the order of the old ones, so that two stay two; those that tell nothing keep theirs."""
    found: dict[str, str] = {}
    for name in sorted(names):
        plain = clean(name)
        taken, number = plain, 1
        while taken in found.values():
            number += 1
            taken = f"{plain}-{number}"
        found[name] = taken
    return found


def _cleaned(machine: Machine, fields: Iterable[str], host: str | None) -> Machine:
    changes: dict[str, Any] = {}
    for name in fields:
        value = getattr(machine, name)
        if value is not None:
            changes[name] = wash(value, host) if isinstance(value, str) else tuple(wash(each, host) for each in value)
    return msgspec.structs.replace(machine, **changes)


def _or_none(text: str | None) -> str | None:
    return wash(text) if text is not None else None


def _hardware(function: Function) -> Function:
    return msgspec.structs.replace(
        function, name=_or_none(function.name), coherent_link=_or_none(function.coherent_link),
    )  # fmt: skip


def _renamed(gpu: Gpu, names: dict[str, str]) -> Gpu:
    relations = {names[other]: label for other, label in gpu.relations.items()}
    return msgspec.structs.replace(
        gpu, name=_or_none(gpu.name), relations=relations, disputed=_disputed(gpu.disputed, names)
    )


def _measured(m: Measurement, sources: dict[str, str], runs: dict[str, str]) -> Measurement:
    run = runs[m.run] if m.run is not None else None
    return msgspec.structs.replace(m, gpu_name=_or_none(m.gpu_name), source=sources[m.source], run=run)
