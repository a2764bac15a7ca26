"""`lspci`, `lspci -nn` and `lspci -vvv`: one block per function, told apart by indentation.

Owns:      the pattern of each line. The library readers on PyPI refuse -vvv (jc) or are live only (pcicrawler).
Promises:  a number is taken only from a whole line; VF BARs under the SR-IOV capability are not taken for BARs of the
           function; windows with base above limit are closed. Blocks in any order give the same functions; two
           blocks of one function that contradict each other leave it unknown; one that holds lines of another function
           tells no more than its first line.
Never:     guesses parents: bus numbers are kept, `assemble` connects them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec

from hinan.wire.facts.address import parse_address, short_address, split_address
from hinan.wire.facts.identity import class_of_name, role_of, vendor_of_name
from hinan.wire.facts.join import join_functions
from hinan.wire.facts.link import width_of
from hinan.wire.facts.model import Acs, Buses, Function, Link, Machine, Port, Role, Window
from hinan.wire.facts.text import number, whole_lines
from hinan.wire.readers import lspci_sriov
from hinan.wire.readers.lspci_mixed import is_mixed

_HEADER = re.compile(
    r"^(?P<address>(?:[0-9a-f]{4,8}:)?[0-9a-f]{2}:[01][0-9a-f]\.[0-7]) "
    r"(?P<class>[A-Za-z0-9][^:\[]*?)(?: \[(?P<code>[0-9a-f]{4})\])?: (?P<name>\S.*)$",
    re.I,
)
_IDS = re.compile(r"\s\[(?P<vendor>[0-9a-f]{4}):(?P<device>[0-9a-f]{4})\]", re.I)
_TAIL = re.compile(r"\s*\((?:rev [0-9a-f]{2}|prog-if [^)]*)\)", re.I)
_SPEED = r"Speed (?P<speed>[0-9]+(?:[.,][0-9]+)?) ?GT/s(?: \([a-z]+\))?, Width x(?P<width>[0-9]{1,3})(?=[\s,(]|$)"
_LNKCAP = re.compile(r"^LnkCap:\s.*?" + _SPEED)
_LNKSTA = re.compile(r"^LnkSta:\s.*?" + _SPEED)
_DEVCAP = re.compile(r"^DevCap:\s+MaxPayload ([0-9]+) bytes")
_DEVCTL = re.compile(r"^MaxPayload ([0-9]+) bytes, MaxReadReq ([0-9]+) bytes")
_BUS = re.compile(r"^Bus: primary=([0-9a-f]{2}), secondary=([0-9a-f]{2}), subordinate=([0-9a-f]{2})", re.I)
_WINDOW = re.compile(r"^(Prefetchable m|M)emory behind bridge: ([0-9a-f]{1,16})-([0-9a-f]{1,16})", re.I)
_REGION = re.compile(
    r"^Region ([0-5]): Memory at ([0-9a-f]{1,16}) \((?:32|64)-bit, (non-)?prefetchable\).*\[size=([0-9]{1,6})([KMGTP]?)\]",
    re.I,
)
_ACS = re.compile(r"^ACSCtl:\s*((?:[A-Za-z]+[+-]\s*)+)")
_CAPABILITY = re.compile(r"^Capabilities: \[[^\]]*\] (.*)")
_PORTS = (
    ("Root Port", Port.ROOT),
    ("Upstream Port", Port.UP),
    ("Downstream Port", Port.DOWN),
    ("PCI-Express to PCI", Port.LEGACY),
    ("Endpoint", Port.ENDPOINT),
)
_SILENT = re.compile(r"\(rev ff\)", re.I)
_UNKNOWN_HEADER = re.compile(r"!!! Unknown header type (?:7f|ff)\b", re.I)
_UNIT = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30, "T": 1 << 40, "P": 1 << 50}


@dataclass
class _Block:
    header: re.Match[str]
    lines: list[tuple[int, str]] = field(default_factory=list)  # indentation, text


def read(text: str) -> Machine | None:
    """Functions of every block in `text`; None when there is none."""
    functions: dict[str, Function] = {}
    verbose = denied = False
    unplaced: list[Acs] = []
    mixed: list[str] = []
    for block in _blocks(text, unplaced):
        disorder = is_mixed(block.lines)
        function = _function(block, [] if disorder else block.lines)
        if disorder:
            mixed.append(short_address(function.address))
        known = functions.get(function.address)
        functions[function.address] = function if known is None else join_functions(known, function)
        verbose = verbose or bool(block.lines)
        denied = denied or any("access denied" in line for _, line in block.lines)
    if not functions and not unplaced:
        return None
    notes: tuple[str, ...] = (
        ("capabilities were not readable (lspci without root): MPS, ACS and link state are unknown",) if denied else ()
    )
    if mixed:
        notes += (f"lines of several functions are in one block, so its details were left out: {' '.join(mixed[:4])}",)
    source = "lspci -vvv" if verbose or unplaced else "lspci"
    return Machine(functions=functions, acs_unplaced=tuple(unplaced), sources=(source,), notes=notes)


def _blocks(text: str, unplaced: list[Acs]) -> Iterator[_Block]:
    """Cut the text into blocks; a last line without newline is dropped; ACSCtl outside any block is kept aside."""
    block: _Block | None = None
    for line in whole_lines(text)[0]:
        header = _HEADER.match(line)
        if header is not None:
            if block is not None:
                yield block
            block = _Block(header)
        elif not line.strip() or line.lstrip().startswith("```"):
            if block is not None:
                yield block
            block = None
        elif block is not None:
            wide = line.expandtabs(8)
            block.lines.append((len(wide) - len(wide.lstrip()), wide.strip()))
        else:
            acs = _acs(line.strip())
            if acs is not None:
                unplaced.append(acs)
    if block is not None:
        yield block


def _acs(line: str) -> Acs | None:
    match = _ACS.match(line)
    if match is None:
        return None
    on = {flag[:-1] for flag in match[1].split() if flag.endswith("+")}
    return Acs(
        source_validation="SrcValid" in on,
        request_redirect="ReqRedir" in on,
        completion_redirect="CmpltRedir" in on,
        upstream_forwarding="UpstreamFwd" in on,
        egress_control="EgressCtrl" in on,
        direct_translated="DirectTrans" in on,
    )


def _function(block: _Block, believed: list[tuple[int, str]]) -> Function:
    """believed: those of its lines that are its own."""
    header = block.header
    address = parse_address(header["address"])
    assert address is not None
    ids = list(_IDS.finditer(header["name"]))
    vendor = int(ids[-1]["vendor"], 16) if ids else vendor_of_name(header["name"])
    named = re.search(r"\bDevice ([0-9a-f]{4})\b", header["name"])
    device = int(ids[-1]["device"], 16) if ids else int(named[1], 16) if named else None
    code = int(header["code"], 16) if header["code"] else class_of_name(header["class"])
    name = _TAIL.sub("", _IDS.sub("", header["name"])).strip()
    role = role_of(code, vendor, device, name, bus=split_address(address)[1])
    known = _attributes(believed)
    silent = next((m[0].strip("!() ") for m in _signs_of_silence(block)), None)
    buses = known.buses if role is Role.BRIDGE else None
    return Function(
        address=address, role=role, class_code=code, vendor_id=vendor, device_id=device, name=name, port=known.port,
        numa_node=known.numa_node, link=known.link, mps_bytes=known.mps, mps_cap_bytes=known.mps_cap,
        mrrs_bytes=known.mrrs, acs=known.acs, buses=buses, windows=tuple(known.windows), bars=tuple(known.bars),
        iommu_group=known.iommu_group, virtual_functions=known.virtual_functions,
        sriov=lspci_sriov.read(believed),
        subtractive=role is Role.BRIDGE and "[Subtractive decode]" in header["name"],
        at_root=known.port is Port.ROOT, off_bus=f"lspci says: {silent}" if silent else None,
    )  # fmt: skip


def _signs_of_silence(block: _Block) -> Iterator[re.Match[str]]:
    """What lspci prints when config space reads all ones: revision ff, header type 7f."""
    yield from filter(None, (_SILENT.search(block.header["name"]), *(_UNKNOWN_HEADER.search(t) for _, t in block.lines)))


@dataclass
class _Known:
    """What the body of a block told so far."""

    port: Port | None = None
    numa_node: int | None = None
    link: Link = field(default_factory=Link)
    mps: int | None = None
    mps_cap: int | None = None
    mrrs: int | None = None
    acs: Acs | None = None
    buses: Buses | None = None
    windows: list[Window] = field(default_factory=list)
    bars: list[Window] = field(default_factory=list)
    iommu_group: int | None = None
    virtual_functions: int | None = None


def _attributes(lines: list[tuple[int, str]]) -> _Known:
    known = _Known()
    base = min((indent for indent, _ in lines), default=0)
    capability: str | None = None
    for indent, line in lines:
        if indent == base:
            started = _CAPABILITY.match(line)
            if started is not None:
                capability = started[1]
                _express(known, capability)
            else:
                _own_line(known, line, in_capability=capability is not None)
        _capability_line(known, line)
    return known


def _express(known: _Known, capability: str) -> None:
    if capability.startswith("Express"):
        known.port = next((port for words, port in _PORTS if words in capability), None)


def _own_line(known: _Known, line: str, *, in_capability: bool) -> None:
    if match := re.fullmatch(r"NUMA node: ([0-9]{1,5})", line):
        known.numa_node = int(match[1])
    elif match := re.fullmatch(r"IOMMU group: ([0-9]{1,9})", line):
        known.iommu_group = int(match[1])
    elif match := _BUS.match(line):
        known.buses = Buses(int(match[1], 16), int(match[2], 16), int(match[3], 16))
    elif match := _WINDOW.match(line):
        first, last = int(match[2], 16), int(match[3], 16)
        if first <= last and "[disabled]" not in line:
            known.windows.append(Window(first, last, match[1].lower().startswith("pref")))
    elif not in_capability and (match := _REGION.match(line)) and "[disabled]" not in line:
        first, size = int(match[2], 16), int(match[4]) * _UNIT[match[5].upper()]
        if first and size:
            known.bars.append(Window(first, first + size - 1, match[3] is None, int(match[1])))


def _capability_line(known: _Known, line: str) -> None:
    if match := _LNKCAP.match(line):
        width = width_of(int(match["width"]))
        known.link = msgspec.structs.replace(known.link, cap_gt_s=number(match["speed"]), cap_width=width)
    elif match := _LNKSTA.match(line):
        width = width_of(int(match["width"]))
        speed = number(match["speed"]) if width else None
        known.link = msgspec.structs.replace(known.link, now_gt_s=speed, now_width=width)
    elif match := _DEVCAP.match(line):
        known.mps_cap = _payload(match[1])
    elif match := _DEVCTL.match(line):
        known.mps, known.mrrs = _payload(match[1]), _payload(match[2])
    elif match := re.search(r"Number of VFs: ([0-9]{1,5}),", line):
        known.virtual_functions = int(match[1])
    elif (acs := _acs(line)) is not None:
        known.acs = acs


def _payload(text: str) -> int | None:
    """A size that three bits of DevCtl can say: 128 << n; None for what somebody typed."""
    return next((128 << n for n in range(8) if str(128 << n) == text), None)
