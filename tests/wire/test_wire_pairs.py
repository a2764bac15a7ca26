"""Two files of one machine tell no less than either: property tests over what each kind of source leaves out."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import combinations
from pathlib import Path

import msgspec
import pytest
import wire_dumps as dumps
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from test_wire_ends import MIXED, edited
from wire_captured import shared_folder
from wire_machines import machine, near, report

from hinan.wire.checks.findings import Finding
from hinan.wire.facts.model import Link, Machine, Port, Role
from hinan.wire.machine import sources
from hinan.wire.machine.assemble import assemble
from hinan.wire.machine.merge import merge
from hinan.wire.paths.path import path_up
from hinan.wire.show.rates import rate_of

_CLASS = {Role.GPU: "0x030200", Role.NIC: "0x020000", Role.NVME: "0x010802", Role.BRIDGE: "0x060400"}
_WITHIN = 1 + 1e-9


def nccl_of(whole: Machine) -> str:
    """What NCCL writes of a machine: devices and upper switch ports, and of each link what both of its ends can do."""
    kept = {
        a: f for a, f in whole.functions.items() if f.port is Port.UP or f.role in (Role.GPU, Role.NIC, Role.NVME)
    }  # fmt: skip
    numbers = {gpu.address: gpu.index for gpu in whole.gpus}

    def lines(address: str) -> str:
        function = kept[address]
        way = path_up(whole, address).hops
        ends = [end.link for end in way[:2] if end is way[0] or end.port in (Port.ROOT, Port.DOWN)]
        speed = min((end.cap_gt_s for end in ends if end.cap_gt_s), default=None)
        width = min((end.cap_width for end in ends if end.cap_width), default=0)
        below = [
            a for a in kept if next((h.address for h in path_up(whole, a).hops[1:] if h.address in kept), "") == address
        ]
        gpu = f'<gpu dev="{numbers[address]}"/>' if address in numbers else ""
        return (
            f'<pci busid="{address}" class="{_CLASS[function.role]}" link_width="{width}" '
            f'link_speed="{f"{speed:.1f} GT/s PCIe" if speed else ""}">{gpu}{"".join(map(lines, sorted(below)))}</pci>'
        )

    tops = [a for a in sorted(kept) if not any(h.address in kept for h in path_up(whole, a).hops[1:])]
    body = "".join(map(lines, tops))
    node = whole.gpus[0].numa_node
    return f'<system version="1"><cpu numaid="{node}" affinity="ff" arch="x86_64">{body}</cpu></system>'


def drawn(whole: Machine) -> Machine:
    """What /sys tells without root: the tree and the links, and neither ports nor payloads nor ACS."""
    functions = {
        a: msgspec.structs.replace(f, port=None, mps_bytes=None, acs=None, sriov=None) for a, f in whole.functions.items()
    }
    return Machine(functions=functions, sources=("sysfs",))


def present(whole: Machine) -> Machine:
    """What hwloc tells: the tree, and no capability."""
    bare = {a: msgspec.structs.replace(f, link=Link()) for a, f in drawn(whole).functions.items()}
    return Machine(functions=bare, sources=("hwloc XML",))


def without(text: str, cut: set[str]) -> str:
    """The dump without the blocks of these functions."""
    return "\n\n".join(block for block in text.split("\n\n") if block.split(" ")[0] not in cut)


def assert_no_less(joined: Machine, *parts: Machine) -> None:
    """No path is shorter, no figure higher and no finding lost, against each of the parts."""
    for part in parts:
        for gpu in part.gpus:
            alone, both = report(part, gpu.index), report(joined, gpu.index)
            assert {hop.address for hop in alone.hops} <= {hop.address for hop in both.hops}
            # Why not a share beside an unknown one: what the other GPU takes at most may be less than was left to it.
            whole = all(report(part, each.index).all_ranks_ceiling_bytes_per_s for each in part.gpus)
            for name in ("ceiling_bytes_per_s", "all_ranks_ceiling_bytes_per_s")[: 1 + whole]:
                before, after = getattr(alone, name), getattr(both, name)
                assert before is None or (after is not None and after <= before * _WITHIN), (name, before, after)
            # Why not those of one link: what one end cannot know of the other, the other source says. Nor a link that
            # others fill, where the GPU's own is told to be no wider than its part of it.
            share, ceiling = alone.all_ranks_known_bytes_per_s, both.ceiling_bytes_per_s
            narrow = {"shared-uplink"} if share and ceiling and ceiling <= share * 1.001 else set()
            assert _told(alone.findings) - _told(both.findings) <= {"width-below-capability", "link-suspect"} | narrow


def _told(findings: tuple[Finding, ...]) -> set[str]:
    """Codes, and of a redirect the place: one shared uplink has two ends to be named by."""
    return {f"{f.code} {f.at}" if f.code == "acs-redirect" else f.code for f in findings}


@st.composite
def dumped(draw: st.DrawFn) -> str:
    """LSPCI_VVV with any capability, width and ACS on each of its bridges and GPUs."""
    blocks = dumps.LSPCI_VVV.split("\n\n")
    for order, block in enumerate(blocks):
        speed, width = draw(st.sampled_from(("8", "16", "32"))), draw(st.sampled_from(("8", "16")))
        block = re.sub(r"(LnkCap:.*?)Speed 16GT/s, Width x16", rf"\g<1>Speed {speed}GT/s, Width x{width}", block)
        block = re.sub(r"(LnkSta:.*?Width) x16", rf"\g<1> x{width}", block)
        blocks[order] = block.replace("ReqRedir- Cmplt", f"ReqRedir{draw(st.sampled_from('+-'))} Cmplt")
    return "\n\n".join(blocks)


@given(dumped(), st.sets(st.sampled_from(("40:01.0", "41:00.0", "42:00.0", "42:01.0", "42:02.0"))))
@settings(max_examples=40, deadline=None)
def test_any_two_files_of_one_machine(text: str, cut: set[str]) -> None:
    """A dump that lacks any of its bridges, NCCL's file, /sys without root and hwloc's tree, in pairs."""
    whole = machine(text)
    dump = sources.read_text(without(text, cut))
    nccl = sources.read_text(nccl_of(whole))
    assert dump is not None
    assert nccl is not None
    for pair in combinations((dump, nccl, drawn(whole), present(whole)), 2):
        joined = assemble(merge(pair))
        assert joined == assemble(merge(pair[::-1]))
        assert assemble(joined) == joined
        assert not any("parent" in f.disputed for f in joined.functions.values())
        assert_no_less(joined, *(assemble(merge([part])) for part in pair))


@given(dumped(), st.sampled_from(("dump", "nccl", "drawn", "present")), st.booleans())
@settings(max_examples=8, deadline=None)
def test_a_gpu_that_was_moved_between_two_files(text: str, kind: str, turned: bool) -> None:
    """It hangs on a root port of its own in a newer file of any kind: where it is is unknown, in either order."""
    apart = text.replace("43:00.0", "50:00.0").replace("secondary=43, subordinate=43", "secondary=47, subordinate=47")
    port = text[len("40:01.0") : text.index("\n\n")].replace("primary=40", "primary=4f")
    moved = apart + "\n\n4f:01.0" + port.replace("secondary=41, subordinate=46", "secondary=50, subordinate=50")
    there = text.replace("43:00.0", "50:00.0").replace("secondary=43, subordinate=43", "secondary=50, subordinate=50")
    there = there.replace("subordinate=46", "subordinate=50")
    before, after = machine(there), machine(moved + "\n")
    kinds = {"dump": sources.read_text(moved + "\n"), "nccl": sources.read_text(nccl_of(after)), "drawn": drawn(after)}
    pair = [kinds.get(kind) or present(after), sources.read_text(there)]
    joined = assemble(merge([part for part in (pair[::-1] if turned else pair) if part is not None]))
    gpu = next(gpu for gpu in joined.gpus if gpu.address == "0000:50:00.0")
    assert (path_up(before, gpu.address or "").complete, path_up(after, gpu.address or "").complete) == (True, True)
    if kind == "nccl":  # it names no root port: a file that draws less
        ways = [[hop.address for hop in path_up(each, gpu.address or "").hops] for each in (joined, before)]
        assert ways[0] == ways[1]
        return
    assert "parent" in joined.functions["0000:50:00.0"].disputed
    answer = report(joined, gpu.index)
    assert (answer.path_complete, answer.all_ranks_ceiling_bytes_per_s) == (False, None)
    assert any("place below" in note and "50:00.0" in note for note in answer.notes)


@given(dumped())
@settings(max_examples=30, deadline=None)
def test_a_whole_dump_learns_nothing_from_nccl(text: str) -> None:
    """Hop by hop, figure by figure and finding by finding: NCCL knows nothing that the dump does not."""
    alone = machine(text)
    joined = machine(text, nccl_of(alone))
    for index in (0, 1):
        one, both = report(alone, index), report(joined, index)
        assert (one.hops, one.narrowest, one.findings) == (both.hops, both.narrowest, both.findings)
        assert one.all_ranks_ceiling_bytes_per_s == both.all_ranks_ceiling_bytes_per_s


def test_the_nccl_file_again_beside_a_capture() -> None:
    """What it said of a link is in the capture already, and contradicts nothing."""
    text = edited(dumps.LSPCI_VVV, "42:00.0", ("Speed 16GT/s, Width x16", "Speed 8GT/s, Width x16"))
    nccl = nccl_of(machine(text))
    once = machine(without(text, {"42:00.0"}), nccl)
    again = assemble(merge([once, *filter(None, [sources.read_text(nccl)])]))
    assert near(report(once).ceiling_bytes_per_s, 14.404)
    assert again.functions == once.functions


def _h100() -> str:
    folder = shared_folder()
    if folder is None:
        pytest.skip("the captured machines are not here (set HINAN_SHARED)")
    text = Path(folder, "lspci-vvv-h100x8-socket0.txt").read_text(encoding="utf-8")
    slow = re.sub(r"(?m)^(15:01\.0 (?:.|\n)*?LnkCap:.*?Speed )32GT", r"\g<1>16GT", text, count=1)
    return re.sub(r"(?m)^(17:01\.0 (?:.|\n)*?ACSCtl:.*?ReqRedir)-", r"\g<1>+", slow, count=1)


def test_a_captured_server_with_a_slow_root_port() -> None:
    """16 GT/s above the switch, ACS redirect below it: 28.8 GB/s and four findings, with NCCL's file as without."""
    text = _h100()
    alone = machine(text)
    joined = machine(nccl_of(alone), text)
    one, both = report(alone), report(joined)
    assert (one.hops, one.narrowest) == (both.hops, both.narrowest)
    assert near(both.ceiling_bytes_per_s, 28.807)
    assert [f.code for f in both.findings] == [f.code for f in one.findings] == ["acs-redirect"] * 4
    assert rate_of(one) == rate_of(both)


@given(st.data())
@settings(max_examples=8, deadline=None)
def test_a_captured_server_cut_anywhere(data: st.DataObject) -> None:
    """Any bridges of it missing from the dump."""
    text = _h100()
    whole = machine(text)
    bridges = sorted(a[5:] for a, f in whole.functions.items() if f.role is Role.BRIDGE)
    cut = without(text, data.draw(st.sets(st.sampled_from(bridges), max_size=6)))
    assume(cut)
    assert_no_less(machine(cut, nccl_of(whole)), machine(cut), machine(nccl_of(whole)))


@pytest.mark.parametrize("other", [drawn, present])
def test_ports_keep_their_kinds_beside_nccl(other: Callable[[Machine], Machine]) -> None:
    """A gen 3 x16 card in a gen 4 x8 slot, from /sys without root or hwloc: ends stay joined, and nothing is wrong."""
    whole = machine(MIXED)
    nccl = sources.read_text(nccl_of(whole))
    assert nccl is not None
    joined = report(assemble(merge([other(whole), nccl])))
    assert [hop.kind for hop in joined.hops] == ["gpu", "downstream port", "upstream port", "root port"]
    assert near(joined.ceiling_bytes_per_s, 7.202)
    assert joined.findings == ()
