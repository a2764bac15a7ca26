"""The right answer for each captured output of a command: lists of the bus, NUMA, address maps, stopwatches."""

from collections.abc import Callable

import pytest
from wire_machines import GB, near, of_role, reports

from hinan.wire.checks.case import Question
from hinan.wire.checks.check import check_machine
from hinan.wire.checks.measured import best_measurement
from hinan.wire.facts.link import write_ceiling_bytes_per_s
from hinan.wire.facts.model import Machine, Role
from hinan.wire.facts.placement import node_for_gpu
from hinan.wire.paths import legs
from hinan.wire.paths.decode import route_write
from hinan.wire.paths.path import below, path_up
from hinan.wire.paths.peer import distance
from hinan.wire.readers.iomem import claimants
from hinan.wire.readers.stopwatches import half_bandwidth_bytes


def superbench_copy(machine: Machine) -> None:
    gpu = machine.gpus[0]
    by_node = [best_measurement(machine, gpu, (node,)) for node in (0, 1)]
    assert [round(m.bytes_per_s / GB, 2) for m in by_node if m] == [25.85, 26.10]
    assert all(m is None or m.engine == "ce" for m in by_node)  # the kernel copies (5.67, 6.41) are not taken
    assert check_machine(machine, Question()) == ()


def superbench_d2h(machine: Machine) -> None:
    best = best_measurement(machine, machine.gpus[0], ())
    assert best is not None
    assert best.bytes_per_s / GB == pytest.approx(13.1, abs=0.15)
    points = [(m.size_bytes or 0, m.bytes_per_s) for m in machine.measurements if m.what == "d2h"]
    plateau, half = half_bandwidth_bytes(points) or (0.0, 0.0)
    assert plateau / GB == pytest.approx(13.1, abs=0.15)
    assert 18_500 <= half <= 20_500
    assert pytest.approx(0.91, abs=0.005) == 13.1 / 14.403


def nvbandwidth_host(machine: Machine) -> None:
    d2h = [r.measured_bytes_per_s or 0.0 for r in reports(machine)]
    assert min(d2h) / GB == pytest.approx(55.1197)
    assert d2h.index(min(d2h)) == 7
    h2d = [best_measurement(machine, gpu, (), "h2d") for gpu in machine.gpus]
    slowest = min((m for m in h2d if m), key=lambda m: m.bytes_per_s)
    assert (slowest.gpu_index, round(slowest.bytes_per_s / GB, 4)) == (3, 55.5519)
    ceiling = write_ceiling_bytes_per_s(32.0, 16, mps_bytes=256) or 1.0
    assert min(d2h) / ceiling == pytest.approx(0.957, abs=0.001)


def nvbandwidth_error(machine: Machine) -> None:
    assert all(r.measured_bytes_per_s is None and r.labels["measured_bytes_per_s"] == "unknown" for r in reports(machine))
    assert any("no measurement" in note for note in machine.notes)


def h100(machine: Machine) -> None:
    found = reports(machine, state_bytes=int(61.2e9))
    assert [r.gpu.address for r in found if r.gpu] == ["19:00.0", "3b:00.0", "4c:00.0", "5d:00.0"]
    assert [h.address for h in found[0].hops] == ["19:00.0", "17:01.0", "16:00.0", "15:01.0"]
    assert [h.kind for h in found[0].hops] == ["gpu", "downstream port", "upstream port", "root port"]
    for r in found:
        assert all((h.cap_gt_s, h.now_gt_s, h.width, h.mps) == (32.0, 32.0, 16, 256) for h in r.hops)
        assert near(r.ceiling_bytes_per_s, 57.614)
        assert near(r.all_ranks_ceiling_bytes_per_s, 57.614)
        assert r.seconds == pytest.approx(1.06, abs=0.005)
        assert (r.numa_node, r.mps_bytes, r.findings) == (0, 256, ())
    assert found[0].hops[2].shared_with == ("18:00.0", "1a:00.0", "1b:00.0")
    drive = machine.functions["0000:18:00.0"]
    assert (drive.role, drive.link.cap_gt_s, drive.link.cap_width) == (Role.NVME, 16.0, 4)
    assert distance(machine, "0000:18:00.0", "0000:19:00.0") == 4
    assert distance(machine, "0000:3a:00.0", "0000:19:00.0") == -1
    direct = legs.direct(machine, "0000:19:00.0", "0000:18:00.0")
    assert "stays below 16:00.0 (ACS redirect off)" in direct.why
    gpu = machine.functions["0000:19:00.0"]
    assert [(w.bar, w.size_bytes >> 20) for w in gpu.bars] == [(0, 16), (2, 128 << 10), (4, 32)]  # VF BARs left out
    windows = machine.functions["0000:17:01.0"].windows
    assert [(w.first, w.last) for w in windows] == [(0x96200000, 0x971FFFFF), (0x210000000000, 0x217FFFFFFFFF)]
    up = route_write(machine, "0000:19:00.0", 0x4012345000)
    assert [s.at for s in up.steps] == ["0000:19:00.0", "0000:17:01.0", "0000:16:00.0", "0000:15:01.0", "root complex"]
    assert up.destination == "unknown"  # windows of one socket, and no source tells RAM
    turned = route_write(machine, "0000:18:00.0", 0x210000000000)
    assert [s.action for s in turned.steps] == ["up", "up", "turn", "down", "claim"]
    assert turned.destination == "BAR 2 of 19:00.0"


def h100_with_redirect(machine: Machine) -> None:
    """The same with ReqRedir+ on 17:00.0 is checked in test_vector_12 on a machine of our own."""


def a100_list(machine: Machine) -> None:
    assert len(of_role(machine, Role.GPU)) == 8
    assert len(of_role(machine, Role.NIC)) == 9
    assert len(of_role(machine, Role.NVSWITCH)) == 6
    assert {f.device_id for f in of_role(machine, Role.GPU)} == {0x20B2}
    for r in reports(machine):
        assert r.ceiling_bytes_per_s is r.numa_node is r.narrowest is None
        assert not r.path_complete


def a10_list(machine: Machine) -> None:
    assert [(f.address, f.device_id) for f in of_role(machine, Role.GPU)] == [("0000:06:00.0", 0x2236)]
    assert not reports(machine)[0].path_complete
    assert reports(machine)[0].virtual


def asus_tree(machine: Machine) -> None:
    assert [h.address for h in path_up(machine, "0000:01:00.0").hops] == ["0000:01:00.0", "0000:00:01.1"]
    assert path_up(machine, "0000:01:00.0").complete
    drives = [f.address for f in below(machine, "0000:60:01.1") if f.role is Role.NVME]
    assert drives == [f"0000:{bus:02x}:00.0" for bus in (0x65, 0x66, 0x67, 0x68, 0x6B, 0x6C, 0x6D, 0x6E)]
    assert len(machine.gpus) == 4
    for gpu in machine.gpus:
        assert all(distance(machine, gpu.address or "", drive) == -1 for drive in drives)


def asus_numactl(machine: Machine) -> None:
    assert [n.index for n in machine.nodes] == [0, 1]
    assert machine.nodes[0].distances[1] == 32


def asus_topo(machine: Machine) -> None:
    assert [node_for_gpu(machine, g).node for g in range(4)] == [0, 0, 1, 1]
    assert machine.gpus[0].relations["GPU2"] == "SYS"
    assert not {"PIX", "PXB"} & {v for g in machine.gpus for v in g.relations.values()}


def asus_devices(machine: Machine) -> None:
    for r in reports(machine):
        assert (r.hops[0].cap_gt_s, r.hops[0].now_gt_s, r.hops[0].width, r.hops[0].mps) == (16.0, 2.5, 16, 256)
        assert near(r.ceiling_bytes_per_s, 28.807)
        assert r.findings == ()
    assert [r.numa_node for r in reports(machine)] == [0, 0, 1, 1]


def asus_transfers(machine: Machine) -> None:
    assert [r.measured_bytes_per_s for r in reports(machine)] == [pytest.approx(26.3e9)] * 4


def asus_gdsio(machine: Machine) -> None:
    gds = [m.bytes_per_s / 2**30 for m in machine.measurements if m.what == "gds_write"]
    cpu = [m.bytes_per_s / 2**30 for m in machine.measurements if m.what == "cpu_write"]
    assert (round(min(gds), 1), round(max(gds), 1)) == (22.0, 24.4)
    assert (round(min(cpu), 1), round(max(cpu), 1)) == (24.5, 25.5)
    far = [m.bytes_per_s / 2**30 for m in machine.measurements if m.what == "gds_write" and m.gpu_index in (2, 3)]
    assert min(far) > 23.0
    assert check_machine(machine, Question()) == ()


def asus_acs(machine: Machine) -> None:
    assert len(machine.acs_unplaced) > 30
    assert not any(acs.redirects for acs in machine.acs_unplaced)


def asus_gdscheck(machine: Machine) -> None:
    gds = machine.gds
    assert gds is not None
    assert (gds.nvme_supported, gds.compat_mode, gds.iommu_off) == (True, False, True)
    assert set(gds.bar1_bytes.values()) == {65536 << 20}
    assert check_machine(machine, Question()) == ()


def puget_numactl(machine: Machine) -> None:
    assert len(machine.nodes) == 1
    assert machine.nodes[0].free_bytes == 1724 << 20
    assert [f.code for f in check_machine(machine, Question(state_bytes=int(61.2e9)))] == ["ram-short"]


def puget_transfers(machine: Machine) -> None:
    assert reports(machine)[0].measured_bytes_per_s == pytest.approx(26.3e9)


def iomem_vm(machine: Machine) -> None:
    assert [r.name for r in claimants(machine.iomem, 0x123456000)] == ["System RAM"]
    names = [r.name for r in claimants(machine.iomem, 0xFD5C0000)]
    assert names == ["PCI Bus 0000:00", "PCI Bus 0000:02", "0000:02:01.0", "e1000"]


def topo_h100(machine: Machine) -> None:
    assert [node_for_gpu(machine, g).node for g in range(8)] == [0] * 4 + [1] * 4
    for gpu in machine.gpus:
        assert gpu.relations[f"mlx5_{gpu.index}"] == "PIX"
        assert gpu.relations["mlx5_8"] == ("NODE" if gpu.index < 4 else "SYS")


def topo_oci(machine: Machine) -> None:
    assert machine.gpus[0].relations["mlx5_0"] == "PXB"
    assert not any(name.startswith("NIC") for g in machine.gpus for name in g.relations)
    assert [g.numa_node for g in machine.gpus] == [0] * 4


def topo_gb200(machine: Machine) -> None:
    assert [node_for_gpu(machine, g).node for g in range(4)] == [0, 0, 1, 1]
    assert all(r.ceiling_bytes_per_s is None for r in reports(machine))


def epyc_nodes(machine: Machine) -> None:
    assert len(machine.nodes) == 8
    assert {d for n in machine.nodes for d in n.distances.values()} == {10, 12, 32}
    assert machine.nodes[3].distances[0] == 12
    assert all(n.cpus and len(n.cpus) == 32 for n in machine.nodes)


OUTPUTS: dict[str, Callable[[Machine], None]] = {
    "superbench-gpu_copy_bw_performance.log": superbench_copy,
    "superbench-cuda_memory_d2h_bw.log": superbench_d2h,
    "nvbandwidth-azure-h100-host.json": nvbandwidth_host,
    "nvbandwidth-azure-h100-error.json": nvbandwidth_error,
    "lspci-vvv-h100x8-socket0.txt": h100,
    "lspci-nn-a100.txt": a100_list,
    "lspci-nn-a10.txt": a10_list,
    "stelline-asus-esc8000a-lspci-tv.txt": asus_tree,
    "stelline-asus-esc8000a-numactl.txt": asus_numactl,
    "stelline-asus-esc8000a-topo-m.txt": asus_topo,
    "stelline-asus-esc8000a-lspci-devices.txt": asus_devices,
    "stelline-asus-esc8000a-transfers.txt": asus_transfers,
    "stelline-asus-esc8000a-gdsio.txt": asus_gdsio,
    "stelline-asus-esc8000a-acs.txt": asus_acs,
    "stelline-asus-esc8000a-gdscheck.txt": asus_gdscheck,
    "stelline-puget-wrx90-numactl.txt": puget_numactl,
    "stelline-puget-wrx90-transfers.txt": puget_transfers,
    "iomem-vm.txt": iomem_vm,
    "topo-m-h100-mlx5cols.txt": topo_h100,
    "topo-m-oci-h100-legend.txt": topo_oci,
    "topo-m-gb200-numa.txt": topo_gb200,
    "numactl-epyc-nps4-8node.txt": epyc_nodes,
}
"""Checks by the name of the file."""
