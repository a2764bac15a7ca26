"""Our TLPs against cocotbext-pcie, byte for byte, on random transfers: its own write, read and completion code runs."""

import contextlib
import os
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hinan.wire.packets.dma import Descriptor, Wire, simulate
from hinan.wire.packets.tlp import completions, reads, writes

pytest.importorskip("cocotbext.pcie", reason="cocotbext-pcie is in the test extra")
os.environ.setdefault("PYGPI_PYTHON_BIN", "python")

from cocotbext.pcie.core.rc import RootComplex
from cocotbext.pcie.core.region import MemoryTlpRegion
from cocotbext.pcie.core.tlp import Tlp
from cocotbext.pcie.core.utils import PcieId

SIZES = {128: 0, 256: 1, 512: 2, 1024: 3, 2048: 4, 4096: 5}
ADDRESSES = st.one_of(st.integers(0, (1 << 32) - 20_000), st.integers(1 << 32, (1 << 64) - 20_000))
GPU = PcieId(0x19, 0, 0)


def finish(coroutine: Any) -> None:
    """Run a coroutine that waits for nothing."""
    with contextlib.suppress(StopIteration):
        coroutine.send(None)
        raise AssertionError("the oracle waited for a simulator")


class Device:
    """A function that keeps what it is asked to send."""

    def __init__(self, mps: int, mrrs: int) -> None:
        self.pcie_id, self.bus_master_enable = GPU, True
        self.pcie_cap = SimpleNamespace(max_payload_size=SIZES[mps], max_read_request_size=SIZES[mrrs])
        self.sent: list[Tlp] = []

    async def perform_posted_operation(self, tlp: Tlp) -> None:
        self.sent.append(tlp)


@settings(max_examples=60, deadline=None)
@given(ADDRESSES, st.binary(max_size=9000), st.sampled_from(sorted(SIZES)))
def test_writes_are_those_of_the_oracle(address: int, data: bytes, mps: int) -> None:
    """Cut at the same places, same headers, same padding."""
    device = Device(mps, 512)
    finish(MemoryTlpRegion(device).write(address, data))
    ours = [packet.pack() for packet in writes(address, data, requester=int(GPU), mps_bytes=mps)]
    assert ours == [bytes(tlp.pack()) for tlp in device.sent]


@settings(max_examples=60, deadline=None)
@given(ADDRESSES, st.integers(1, 9000), st.sampled_from(sorted(SIZES)), st.integers(1, 256))
def test_reads_are_legal_and_unpack(address: int, size: int, mrrs: int, tags: int) -> None:
    """The oracle unpacks every request to itself, finds it legal, and together they cover the range once."""
    at = address
    for packet in reads(address, size, requester=int(GPU), mrrs_bytes=mrrs, tags=tags):
        tlp = Tlp.unpack_header(packet.header())
        assert tlp.check()
        assert tlp.length * 4 <= mrrs
        assert tlp.address + tlp.get_first_be_offset() == at
        assert bytes(tlp.pack_header()) == packet.header()
        at += tlp.get_be_byte_count()
    assert at == address + size


@settings(max_examples=40, deadline=None)
@given(ADDRESSES, st.binary(min_size=1, max_size=3000), st.sampled_from(sorted(SIZES)))
def test_smallest_completions_are_those_of_the_oracle(address: int, data: bytes, mps: int) -> None:
    """A root complex of the oracle, told to cut at every read completion boundary, answers what we compute."""
    start = address - address % 4  # the oracle's data is by whole DWs
    for request in reads(start, len(data) // 4 * 4 + 4, requester=int(GPU), mrrs_bytes=512):
        payload = bytes((start + i) % 251 for i in range(request.size_bytes))
        answered = _oracle_completions(request.header(), payload, mps)
        ours = [c.pack() for c in completions(request, payload, completer=0, mps_bytes=mps, every_rcb=True)]
        assert ours == answered


def _oracle_completions(header: bytes, payload: bytes, mps: int) -> list[bytes]:
    sent: list[bytes] = []

    async def read(address: int, size: int) -> bytes:
        return payload

    async def send(tlp: Tlp) -> None:
        sent.append(bytes(tlp.pack()))

    log = SimpleNamespace(info=lambda *_: None, debug=lambda *_: None, warning=lambda *_: None)
    root = SimpleNamespace(
        log=log, send=send, max_payload_size=SIZES[mps], read_completion_boundary=False, split_on_all_rcb=True,
        mem_address_space=SimpleNamespace(read=read, find_regions=lambda *_: True),
    )  # fmt: skip
    finish(RootComplex.handle_mem_read_tlp(root, Tlp.unpack_header(header)))
    return sent


@settings(max_examples=60, deadline=None)
@given(ADDRESSES, st.binary(min_size=1, max_size=6000), st.sampled_from([128, 256, 512]), st.booleans())
def test_simulated_copies_arrive_whole(address: int, data: bytes, mps: int, every_rcb: bool) -> None:
    """Both directions, unpacked by the oracle, give back the bytes that were copied, in order of time."""
    wire = Wire(gt_s=16.0, width=16, mps_bytes=mps)
    memory: dict[int, int] = {}
    for sent in simulate(Descriptor(address=address, size_bytes=len(data), requester=int(GPU)), wire, data):
        tlp = Tlp.unpack(sent.packet.pack())
        first = tlp.get_first_be_offset()
        for offset in range(tlp.get_be_byte_count()):
            memory[tlp.address + first + offset] = tlp.data[first + offset]
    assert bytes(memory[address + i] for i in range(len(data))) == data
    received = b""
    last_s = 0.0
    back = Descriptor(address=address, size_bytes=len(data), to_host=False, requester=int(GPU))
    for sent in simulate(back, wire, data, every_rcb=every_rcb):
        assert sent.start_s >= last_s
        last_s = sent.start_s
        if not sent.up:
            tlp = Tlp.unpack(sent.packet.pack())
            assert tlp.check()
            offset = tlp.lower_address & 3
            received += bytes(tlp.data[offset : offset + min(tlp.byte_count, len(tlp.data) - offset)])
    assert received == data
