"""Findings: each rule fires on its evidence and on nothing else."""

import msgspec
import pytest
import wire_dumps as dumps

from hinan.wire.checks.case import Question
from hinan.wire.checks.check import check_machine
from hinan.wire.facts.model import IommuMode
from hinan.wire.machine import capture, sources
from hinan.wire.show.render import render
from hinan.wire.show.report import report_gpu


def codes(text: str, *more: str, **question: object) -> list[str]:
    """Codes of all findings on a machine, without the shared uplink that dumps.LSPCI_VVV always has."""
    machine = sources.read_texts([text, *more])
    found = check_machine(machine, Question(**question))  # type: ignore[arg-type]
    return [f.code for f in found if f.code != "shared-uplink"]


def edited(before: str, after: str, block: str, count: int = 1) -> str:
    """dumps.LSPCI_VVV with an edit inside the block of one function."""
    start = dumps.LSPCI_VVV.index(f"\n{block} ") if not dumps.LSPCI_VVV.startswith(block) else 0
    assert before in dumps.LSPCI_VVV[start:]
    return dumps.LSPCI_VVV[:start] + dumps.LSPCI_VVV[start:].replace(before, after, count)


def test_nothing_on_a_good_machine() -> None:
    """An idle GPU link, a gen 3 drive in a gen 4 slot and SrcValid+ are no findings."""
    assert codes(dumps.LSPCI_VVV, state_bytes=10**10) == []


def test_speed_under_load() -> None:
    """The same idle-looking link, read under load, is a fault, told once for its two ends."""
    assert codes(dumps.LSPCI_VVV, under_load=True) == ["speed-below-capability"]


def test_width() -> None:
    """x8 of x16 is a fault at any time, with its cost."""
    text = edited(
        "LnkSta:\tSpeed 2.5GT/s (downgraded), Width x16", "LnkSta:\tSpeed 2.5GT/s (downgraded), Width x8", "43:00.0"
    )
    machine = sources.read_texts([text])
    finding = next(
        f for f in check_machine(machine, Question(state_bytes=int(28.807e9))) if f.code == "width-below-capability"
    )
    assert (finding.gpu, finding.at) == (0, "43:00.0")
    assert finding.effect_s == pytest.approx(1.0, rel=1e-3)
    assert "x8 of x16" in finding.evidence


def test_uplink_below_both_capabilities() -> None:
    """A switch uplink at 8 of 16 GT/s is flagged as one of two things, unless a measurement proves the path."""
    text = edited("LnkSta:\tSpeed 16GT/s (ok)", "LnkSta:\tSpeed 8GT/s (downgraded)", "41:00.0")
    assert codes(text) == ["link-suspect", "link-suspect"]  # both GPUs use it
    fast = dumps.NVBANDWIDTH.replace("13.05", "26.00")
    assert codes(text, fast) == []


def test_measured_below_ceiling() -> None:
    """85 % is the line."""
    assert codes(dumps.LSPCI_VVV, dumps.NVBANDWIDTH) == ["below-ceiling"]
    assert codes(dumps.LSPCI_VVV, dumps.NVBANDWIDTH.replace("13.05", "24.60")) == []
    assert codes(dumps.LSPCI_VVV, dumps.NVBANDWIDTH.replace("13.05", "24.40")) == ["below-ceiling"]


def test_buffer_on_another_node() -> None:
    """The buffer's node is compared with the GPU's; without a buffer nothing is said."""
    assert codes(dumps.LSPCI_VVV, buffer_node=0) == ["wrong-numa-node", "wrong-numa-node"]
    assert codes(dumps.LSPCI_VVV, buffer_node=1) == []


def test_acs_only_between_gpu_and_peer() -> None:
    """ReqRedir on the drive's port is a finding of its switch's GPUs; on a management port it is none."""
    text = edited("ReqRedir-", "ReqRedir+", "42:02.0")
    assert codes(text) == ["acs-redirect", "acs-redirect"]
    management = dumps.LSPCI_VVV.replace(
        "02:00.0 VGA", "82:00.0 PCI bridge: M\n\t\tACSCtl:\tSrcValid- ReqRedir+ CmpltRedir+\n\n02:00.0 VGA"
    )
    assert codes(management) == []


def cost(code: str, text: str, *more: str, gpu: int = 0, **question: object) -> tuple[str, float | None]:
    """Effect in words and in seconds of the one finding of this code for a GPU."""
    machine = sources.read_texts([text, *more])
    found = check_machine(machine, Question(**question))  # type: ignore[arg-type]
    (finding,) = [f for f in found if (f.code, f.gpu) == (code, gpu)]
    return finding.effect, finding.effect_s


def test_a_redirect_costs_what_the_uplink_lacks() -> None:
    """The drive is the narrow hop on both ways: 0 s. Behind an uplink of x1 the way over the root is slower."""
    text = edited("ReqRedir-", "ReqRedir+", "42:02.0")
    assert cost("acs-redirect", text, state_bytes=10**10)[1] == 0.0
    start = text.index("41:00.0 PCI")
    narrow = text[:start] + text[start:].replace("Speed 16GT/s, Width x16", "Speed 16GT/s, Width x2", 1)
    # Completions of 256 B carry 20 B each. The drive's gen 3 x4 is as fast as gen 4 x2.
    gen3_x4, gen4_x1 = 31.508e9 / 8 * 256 / 276, 31.508e9 / 16 * 256 / 276
    assert cost("acs-redirect", narrow, state_bytes=10**10)[1] == pytest.approx(0.0, abs=1e-9)
    thin = narrow.replace("Speed 16GT/s, Width x2", "Speed 16GT/s, Width x1")
    assert cost("acs-redirect", thin, state_bytes=10**10)[1] == pytest.approx(10**10 / gen4_x1 - 10**10 / gen3_x4, rel=1e-3)
    assert cost("acs-redirect", thin)[1] is None


def test_a_translating_iommu_costs_at_most_what_was_measured() -> None:
    """Measured 26.1 of 28.8 GB/s bounds it; without a stopwatch it is a count of translations, and no seconds."""
    machine = sources.read_texts([dumps.LSPCI_VVV])
    text = capture.write(msgspec.structs.replace(machine, iommu_mode=IommuMode.TRANSLATED))
    words, effect_s = cost("iommu-translating", text, state_bytes=80 << 30)
    assert effect_s is None
    assert "20,971,520 translations of 4 KiB pages, or 40,960 of 2 MiB" in words
    words, effect_s = cost("iommu-translating", text, dumps.NVBANDWIDTH, state_bytes=10**10)
    assert effect_s == pytest.approx(1e10 / 26.1e9 - 1e10 / 28.807e9, rel=1e-3)
    assert "at most" in words
    too_fast = dumps.NVBANDWIDTH.replace("26.10", "29.10")
    assert cost("iommu-translating", text, too_fast, state_bytes=10**10)[1] == 0.0


def test_another_node_costs_what_was_measured_there() -> None:
    """Measured on both nodes: the difference. Else the range seen elsewhere, in seconds of this state, as words."""
    words, effect_s = cost("wrong-numa-node", dumps.LSPCI_VVV, buffer_node=0, state_bytes=int(28.807e9))
    assert effect_s is None
    assert "(here up to +4.00 s)" in words
    log = dumps.SUPERBENCH.replace("numa0 25.85", "numa0 13.05")
    words, effect_s = cost("wrong-numa-node", dumps.LSPCI_VVV, log, buffer_node=0, state_bytes=10**10)
    assert effect_s == pytest.approx(1e10 / 13.05e9 - 1e10 / 26.1e9, rel=1e-6)
    assert "measured 13.1 GB/s there, 26.1 on the near node" in words
    one_node = log.replace("gpu0_to_cpu_by_dma_under_numa0 13.05\n", "")
    assert cost("wrong-numa-node", dumps.LSPCI_VVV, one_node, buffer_node=0, state_bytes=10**10)[1] is None


def test_another_node_of_the_same_socket() -> None:
    """NPS4: distance 12 within a socket, 32 between them. Inside nothing crosses a socket link, and no range is told."""
    rows = ["  0   1   2   3", "10  12  32  32", "12  10  32  32", "32  32  10  12", "32  32  12  10"]
    nodes = "".join(f"node {n} cpus: {n}\nnode {n} size: 1000 MB\nnode {n} free: 900 MB\n" for n in range(4))
    numactl = "available: 4 nodes (0-3)\n" + nodes + "node distances:\nnode " + rows[0] + "\n"
    numactl += "".join(f"  {n}:  {row}\n" for n, row in enumerate(rows[1:]))
    words, effect_s = cost("wrong-numa-node", dumps.LSPCI_VVV, numactl, buffer_node=0, state_bytes=10**8)
    assert (words, effect_s) == (
        "each byte goes to another node of the same socket: what that costs is not known, so measure", None,
    )  # fmt: skip
    far, _ = cost("wrong-numa-node", dumps.LSPCI_VVV, numactl, buffer_node=2, state_bytes=10**8)
    assert far.startswith("each byte crosses the socket link: elsewhere it took 0.98 to 5 times as long (here up to +")
    assert "-" not in far.partition("(")[2]
    log = dumps.SUPERBENCH.replace("numa0 25.85", "numa0 13.05")
    assert "measured 13.1 GB/s there" in cost("wrong-numa-node", dumps.LSPCI_VVV, numactl, log, buffer_node=0)[0]


def test_ram_short() -> None:
    """Node 1 has 1 GiB free, and two GPUs that evacuate to it."""
    assert codes(dumps.LSPCI_VVV, dumps.NUMACTL, state_bytes=10**10) == ["ram-short"]
    assert codes(dumps.LSPCI_VVV, dumps.NUMACTL, state_bytes=5 * 10**8) == []
    (short,) = [f for f in check_machine(sources.read_texts([dumps.LSPCI_VVV, dumps.NUMACTL]), Question(state_bytes=10**9))
                if f.code == "ram-short"]  # fmt: skip
    assert short.evidence == "node 1 has 1.1 GB free, 2 GPUs evacuate 1.0 GB each to it, 2.0 GB together"
    assert "ram-short" not in codes(dumps.LSPCI_VVV, dumps.NUMACTL, state_bytes=10**9, buffer_node=0)
    made = {"0000:43:00.0": 1, "0000:44:00.0": 1}  # slots of a run: they take no more
    assert codes(dumps.LSPCI_VVV, dumps.NUMACTL, state_bytes=10**10, buffers=made) == []
    half = {"0000:43:00.0": 1}
    assert codes(dumps.LSPCI_VVV, dumps.NUMACTL, state_bytes=10**9, buffers=half) == []
    assert codes(dumps.NUMACTL, state_bytes=10**10) == []  # no GPU: some node has room
    assert codes(dumps.NUMACTL, state_bytes=10**12) == ["ram-short"]


def test_a_port_with_a_smaller_payload() -> None:
    """MPS 128 at the root port and 256 at the GPU is a fault; the smaller one at the GPU is none."""
    small = edited("MaxPayload 256 bytes, MaxReadReq 512", "MaxPayload 128 bytes, MaxReadReq 512", "40:01.0")
    assert codes(small) == ["mps-mismatch", "mps-mismatch"]  # both GPUs are above it
    at_gpu = edited("MaxPayload 256 bytes, MaxReadReq 512", "MaxPayload 128 bytes, MaxReadReq 512", "44:00.0")
    assert codes(at_gpu) == []


def test_a_measurement_that_no_link_can_carry() -> None:
    """191 % of the ceiling is somebody else's log: a finding, and no proof that the links are whole."""
    fast = dumps.NVBANDWIDTH.replace("26.10", "55.10").replace("13.05", "26.00")
    assert codes(dumps.LSPCI_VVV, fast) == ["above-ceiling"]
    slow_uplink = edited("LnkSta:\tSpeed 16GT/s (ok)", "LnkSta:\tSpeed 8GT/s (downgraded)", "41:00.0")
    assert codes(slow_uplink, fast) == ["above-ceiling", "link-suspect"]
    # hwloc tells the present speed, which idles low: more than that can be measured, and is a note
    hwloc = sources.read_texts([dumps.HWLOC, dumps.BANDWIDTH_TEST])
    answer = report_gpu(hwloc, hwloc.gpus[0], Question())
    assert not any(f.code == "above-ceiling" for f in answer.findings)
    assert any("above the ceiling" in note for note in answer.notes)


def test_what_is_usual_stands_beside_a_ceiling_only() -> None:
    """91 to 97 % of nothing is no help."""
    for text, said in ((dumps.LSPCI_VVV, True), (dumps.TOPO, False)):
        machine = sources.read_texts([text])
        shown = "\n".join(render(report_gpu(machine, machine.gpus[0], Question()), machine))
        assert ("of the ceiling is usual" in shown) == said
