"""Worked vectors: link arithmetic, TLP bytes, windows, routes, walks. Each number has a source outside this project."""

import pytest
import wire_dumps as dumps

from hinan.core.errors import ConfigError
from hinan.wire.facts.address import requester_id
from hinan.wire.facts.link import (
    completion_ceiling_bytes_per_s,
    overhead_bytes,
    raw_bytes_per_s,
    speeds_of_raw,
    write_ceiling_bytes_per_s,
)
from hinan.wire.machine import sources
from hinan.wire.machine.root_complex import interleave_node
from hinan.wire.packets.dma import Descriptor, Wire, simulate
from hinan.wire.packets.iommu import Domain, IommuFault, translate, translations_for, translations_per_s, walk_of
from hinan.wire.packets.tlp import Request, completions, reads, writes
from hinan.wire.paths.decode import route_write
from hinan.wire.paths.peer import distance
from hinan.wire.readers.config_space import bridge_windows

GPU = requester_id("0000:19:00.0")
ADDRESS = 0x4012345000


def test_vector_1_raw_of_gen3_x16() -> None:
    """8 GT/s x16 is hwloc's pci_link_speed="15.753846"."""
    assert raw_bytes_per_s(8.0, 16) == pytest.approx(15.753846e9, rel=1e-7)


def test_vector_2_ceiling_of_gen5_x16() -> None:
    """256 of 280 bytes are payload; with ECRC 284."""
    assert write_ceiling_bytes_per_s(32.0, 16, mps_bytes=256) == pytest.approx(57.614e9, rel=1e-5)
    assert write_ceiling_bytes_per_s(32.0, 16, mps_bytes=256, ecrc=True) == pytest.approx(56.803e9, rel=1e-5)
    assert 256 / (256 + overhead_bytes(32.0)) == pytest.approx(0.914286, rel=1e-5)


@pytest.mark.parametrize(
    ("gt_s", "raw", "writes_128_256_512", "reads_64_256"),
    [
        (8.0, 15.754, (13.266, 14.404, 15.048), (12.003, 14.612)),
        (16.0, 31.508, (26.533, 28.807, 30.097), (24.006, 29.225)),
        (32.0, 63.015, (53.066, 57.614, 60.194), (48.012, 58.449)),
        (64.0, 118.0, (104.889, 111.059, 114.424), None),
    ],
)
def test_ceiling_table(
    gt_s: float, raw: float, writes_128_256_512: tuple[float, ...], reads_64_256: tuple[float, ...] | None
) -> None:
    """The table of x16 ceilings, decimal GB/s, as pcie-model's constants give it."""
    assert raw_bytes_per_s(gt_s, 16) == pytest.approx(raw * 1e9, rel=1e-4)
    for mps, value in zip((128, 256, 512), writes_128_256_512, strict=True):
        assert write_ceiling_bytes_per_s(gt_s, 16, mps_bytes=mps) == pytest.approx(value * 1e9, rel=1e-4)
    for size, value in zip((64, 256), reads_64_256 or (), strict=False):
        assert completion_ceiling_bytes_per_s(gt_s, 16, completion_bytes=size) == pytest.approx(value * 1e9, rel=1e-4)


def test_vector_18_old_generations() -> None:
    """8b/10b: 5 GT/s x16 is 8.0, 2.5 GT/s x16 is 4.0 GB/s; what PCIe does not have is unknown."""
    assert raw_bytes_per_s(5.0, 16) == pytest.approx(8.0e9)
    assert raw_bytes_per_s(2.5, 16) == pytest.approx(4.0e9)
    assert (
        raw_bytes_per_s(7.0, 16)
        is raw_bytes_per_s(8.0, 3)
        is raw_bytes_per_s(None, 16)
        is raw_bytes_per_s(8.0, None)
        is None
    )


def test_bandwidth_alone_is_ambiguous() -> None:
    """15.75 GB/s is gen 3 x16, gen 4 x8 or gen 5 x4."""
    assert set(speeds_of_raw(15.753846e9)) == {(8.0, 16), (16.0, 8), (32.0, 4)}


def test_vector_3_write_header() -> None:
    """256 bytes at 0x4012345000, relaxed ordering, tag 0."""
    (packet,) = writes(ADDRESS, bytes(256), requester=GPU, mps_bytes=256, relaxed_ordering=True)
    assert packet.header().hex(" ") == "60 00 20 40 19 00 00 ff 00 00 00 40 12 34 50 00"


def test_vector_4_short_address_uses_three_dw() -> None:
    """Below 4 GiB the 3-DW form must be used."""
    packet = Request(address=0x7FED1234, size_bytes=4, requester=GPU, tag=3, data=bytes(4))
    assert packet.header().hex(" ") == "40 00 00 01 19 00 03 0f 7f ed 12 34"


def test_vector_6_three_bytes_before_the_page_end() -> None:
    """Length 1, first enables 1110, last 0000, DW address ...ffc; ends exactly at 4 KiB."""
    (packet,) = writes(0x4012345FFD, b"abc", requester=GPU, mps_bytes=256)
    assert (packet.length_dw, packet.byte_enables) == (1, (0b1110, 0b0000))
    assert packet.header()[-4:] == bytes.fromhex("12345ffc")
    assert packet.data == b"\x00abc"


def test_vector_7_read_and_its_completions() -> None:
    """512 bytes, tag 0x21: two completions of 256 at best, eight of 64 at worst."""
    request = Request(address=ADDRESS, size_bytes=512, requester=GPU, tag=0x21, write=False)
    assert request.header().hex(" ") == "20 00 00 80 19 00 21 ff 00 00 00 40 12 34 50 00"
    best = [len(c.data) for c in completions(request, bytes(512), completer=0, mps_bytes=256)]
    worst = [len(c.data) for c in completions(request, bytes(512), completer=0, mps_bytes=256, every_rcb=True)]
    assert (best, worst) == ([256] * 2, [64] * 8)


def test_length_1024_dw_is_encoded_as_0() -> None:
    """4096 bytes: the length field is 0."""
    (packet,) = writes(0x1_0000_0000, bytes(4096), requester=0, mps_bytes=4096)
    assert int.from_bytes(packet.header()[2:4], "big") & 0x3FF == 0


def test_a_translated_request_says_so() -> None:
    """AT = 10 in bits 11:10 of DW 0."""
    packet = Request(address=ADDRESS, size_bytes=4, requester=GPU, data=bytes(4), translated=True)
    assert packet.header()[2] >> 2 & 3 == 0b10


def test_vector_9_bridge_windows() -> None:
    """Registers to ranges, as drivers/pci/probe.c; base above limit is closed."""
    found = bridge_windows(reg20=0x9620, reg22=0x9710, reg24=0x0001, reg26=0xFFF1, reg28=0x2100, reg2c=0x217F)
    assert [(w.first, w.last) for w in found] == [(0x96200000, 0x971FFFFF), (0x210000000000, 0x217FFFFFFFFF)]
    assert found[1].size_bytes == 512 << 30
    assert bridge_windows(reg20=0xFFF0, reg22=0x0000, reg24=0xFFF1, reg26=0x0001) == ()


def test_vectors_10_and_11_on_a_machine_of_our_own() -> None:
    """What no window holds goes up to DRAM; what a sibling's window holds turns inside the switch."""
    machine = sources.read_texts([dumps.LSPCI_VVV, dumps.SRAT])
    up = route_write(machine, "0000:43:00.0", 0x4012345000)
    assert [s.action for s in up.steps] == ["up", "up", "up", "up", "memory"]
    assert (up.destination, up.node) == ("system memory", 0)
    peer = route_write(machine, "0000:45:00.0", 0x300000000000)
    assert [s.action for s in peer.steps] == ["up", "up", "turn", "down", "claim"]
    assert peer.destination == "BAR 1 of 43:00.0"
    assert distance(machine, "0000:45:00.0", "0000:43:00.0") == 4


def test_vector_12_redirect_and_no_common_bridge() -> None:
    """ReqRedir on the drive's port sends it through the root (-2); devices that meet only there are -1."""
    port = dumps.LSPCI_VVV.index("42:02.0 PCI bridge")
    redirected = dumps.LSPCI_VVV[:port] + dumps.LSPCI_VVV[port:].replace("ReqRedir-", "ReqRedir+", 1)
    machine = sources.read_texts([redirected])
    assert distance(machine, "0000:45:00.0", "0000:43:00.0") == -2
    actions = [s.action for s in route_write(machine, "0000:45:00.0", 0x300000000000).steps]
    assert actions == ["up", "redirect", "up", "up", "down", "down", "down", "down", "claim"]
    assert distance(machine, "0000:02:00.0", "0000:43:00.0") == -1


def test_source_validation_redirects_nothing() -> None:
    """SrcValid+ on the root port is no redirect: Linux counts RR, CR and EC only."""
    machine = sources.read_texts([dumps.LSPCI_VVV])
    acs = machine.functions["0000:40:01.0"].acs
    assert acs is not None
    assert acs.source_validation
    assert not acs.redirects


def test_vector_13_iommu_indices() -> None:
    """Root by bus, context by devfn, nine bits per level."""
    walk = walk_of("0000:9b:00.0", 0x7F5B8C9DE123)
    assert (walk.root_index, walk.context_index) == (0x9B, 0)
    assert (walk.indices, walk.offset) == ((254, 366, 100, 478), 0x123)
    large = walk_of("0000:9b:00.0", 0x7F5B8C9DE123, leaf_bytes=2 << 20)
    assert (large.indices, large.offset) == ((254, 366, 100), 0x1DE123)


def test_iommu_cost_table() -> None:
    """Reads on a full miss, translations for 80 GiB, translations per second at 57.6 GB/s."""
    sizes = (4 << 10, 2 << 20, 1 << 30)
    assert [walk_of("0000:00:00.0", 0, leaf_bytes=s).reads for s in sizes] == [4, 3, 2]
    assert [translations_for(80 << 30, s) for s in sizes] == [20_971_520, 40_960, 80]
    rates = [translations_per_s(57.614e9, s) for s in sizes]
    assert rates == [pytest.approx(14.07e6, rel=1e-3), pytest.approx(27.5e3, rel=1e-2), pytest.approx(54, rel=1e-2)]


def test_iommu_translates_faults_and_passes_through() -> None:
    """A leaf of each size, a missing entry at each level, and a context in pass-through."""
    gpu, iova = "0000:9b:00.0", 0x7F5B8C9DE123
    for leaf, level in ((4 << 10, 1), (2 << 20, 2), (1 << 30, 3)):
        domain = Domain(leaves={(level, iova & ~(leaf - 1)): 0x40_0000_0000})
        physical, walk = translate({0x9B: {0: domain}}, gpu, iova)
        assert physical == 0x40_0000_0000 | iova & leaf - 1
        assert walk is not None
        assert walk.reads == 5 - level
    assert translate({0x9B: {0: Domain(passthrough=True)}}, gpu, iova) == (iova, None)
    for contexts, level_name in (({}, "root"), ({0x9B: {}}, "context"), ({0x9B: {0: Domain()}}, "leaf")):
        with pytest.raises(IommuFault, match="lost") as caught:
            translate(contexts, gpu, iova)
        assert caught.value.evidence["level"] == level_name


def test_vector_17_interleave() -> None:
    """Page 7 over nodes {0, 2, 3} is on node 2."""
    assert interleave_node((0, 2, 3), 7) == 2


def test_vector_19_pinning_in_chunks() -> None:
    """512 GiB in 4 KiB pages at 16 bytes each is 2 GiB of page table data: more than an int holds."""
    assert translations_for(512 << 30, 4 << 10) * 16 == 2 << 30 > 2**31 - 1


def test_simulated_write_stream_has_the_ceiling() -> None:
    """A long aligned copy on paper runs at exactly the ceiling of link.py; the semaphore is last."""
    wire = Wire(gt_s=32.0, width=16, mps_bytes=256)
    found = list(simulate(Descriptor(address=ADDRESS, size_bytes=1 << 20, requester=GPU, semaphore_address=0x1000), wire))
    data_end = found[-2].end_s
    assert (1 << 20) / data_end == pytest.approx(write_ceiling_bytes_per_s(32.0, 16, mps_bytes=256), rel=1e-9)
    assert found[-1].packet.address == 0x1000  # type: ignore[union-attr]
    assert all(sent.up for sent in found)


def test_simulated_reads_wait_for_tags() -> None:
    """With few tags a read is bound by the round trip, with many by the link."""
    rates = []
    for tags in (2, 256):
        wire = Wire(gt_s=32.0, width=16, mps_bytes=256, mrrs_bytes=512, tags=tags, round_trip_s=1e-6)
        found = list(simulate(Descriptor(address=0x1_0000_0000, size_bytes=1 << 18, to_host=False), wire))
        rates.append((1 << 18) / max(s.end_s for s in found))
    ceiling = completion_ceiling_bytes_per_s(32.0, 16, completion_bytes=256) or 0.0
    assert rates[0] == pytest.approx(2 * 512 / 1e-6, rel=0.05)
    assert 0.75 * ceiling < rates[1] < ceiling


@pytest.mark.parametrize("mps", [0, 100, 8192])
def test_sizes_pcie_does_not_have_are_refused(mps: int) -> None:
    """A payload size is one of six."""
    with pytest.raises(ConfigError, match="payload"):
        list(writes(0, b"x", requester=0, mps_bytes=mps))
    with pytest.raises(ConfigError, match="payload"):
        list(reads(0, 1, requester=0, mrrs_bytes=mps))


def test_a_transfer_beyond_64_bits_is_refused() -> None:
    """Addresses do not wrap."""
    with pytest.raises(ConfigError, match="64 address bits"):
        list(writes((1 << 64) - 2, b"abc", requester=0, mps_bytes=128))
