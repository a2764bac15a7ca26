"""One test for each captured machine, with the right answer that came with it. Runs where the files are."""

import csv
from collections.abc import Callable
from pathlib import Path

import pytest
from wire_captured import shared_folder

from hinan.wire import legs
from hinan.wire.case import Question
from hinan.wire.check import check_machine
from hinan.wire.decode import route_write
from hinan.wire.link import write_ceiling_bytes_per_s
from hinan.wire.measured import best_measurement
from hinan.wire.model import Function, Machine, Role
from hinan.wire.path import below, path_up
from hinan.wire.peer import distance
from hinan.wire.placement import node_for_gpu
from hinan.wire.readers.iomem import claimants
from hinan.wire.readers.stopwatches import half_bandwidth_bytes
from hinan.wire.report import Report, report_gpu, report_without_gpu

Read = Callable[..., Machine]
GB = 1e9


def reports(machine: Machine, **question: object) -> list[Report]:
    """Every GPU's report."""
    return [report_gpu(machine, gpu, Question(**question)) for gpu in machine.gpus]  # type: ignore[arg-type]


def of_role(machine: Machine, role: Role) -> list[Function]:
    return [f for _, f in sorted(machine.functions.items()) if f.role is role]


def near(value: float | None, expected_gb: float) -> bool:
    return value is not None and abs(value / GB - expected_gb) < 0.006


def hwloc_dgx2h(machine: Machine) -> None:
    found = reports(machine, state_bytes=32 * 10**9)
    assert len(found) == 16
    assert [r.numa_node for r in found] == [0] * 8 + [1] * 8
    for r in found:
        assert near(
            machine.functions[path_up(machine, "0000:" + r.hops[0].address).hops[0].address].link.now_bytes_per_s,
            15.7538,
        )
        assert len(r.hops) == 6  # the GPU and five bridges
        assert (r.hops[0].now_gt_s, r.hops[0].width) == (8.0, 16)
        assert near(r.ceiling_bytes_per_s, 14.404)
        assert near(r.all_ranks_ceiling_bytes_per_s, 3.60)
        assert r.seconds == pytest.approx(2.2, abs=0.05)
        assert r.all_ranks_seconds == pytest.approx(8.9, abs=0.05)
        assert [f.code for f in r.findings] == ["shared-uplink"]
    assert {f.at for r in found for f in r.findings} == {"2b:00.0", "4e:00.0", "ae:00.0", "d7:00.0"}
    assert sum(r.all_ranks_ceiling_bytes_per_s or 0 for r in found) == pytest.approx(57.6e9, rel=1e-3)
    assert machine.product == "NVIDIA DGX-2H"


def hwloc_power8(machine: Machine) -> None:
    for r in reports(machine, state_bytes=10**9):
        assert r.coherent_link is not None
        assert "NVLink" in r.coherent_link
        assert r.ceiling_bytes_per_s is r.seconds is r.all_ranks_ceiling_bytes_per_s is None
        assert any("no ceiling is claimed" in note for note in r.notes)
        assert near(r.reported_bytes_per_s, 40.0)
        assert r.findings == ()
    assert [r.numa_node for r in reports(machine)] == [0, 0, 1, 1]


def hwloc_spark(machine: Machine) -> None:
    answer = report_without_gpu(machine, Question())
    assert len(machine.functions) == 0
    assert len(machine.nodes) == 1
    assert answer.gpu is None
    assert answer.coherent_link is not None  # GB10: whatever GPU it has is not behind PCIe


def hwloc_4numa(machine: Machine) -> None:
    assert machine.gpus == ()
    assert machine.functions["0000:01:00.0"].role is Role.OTHER
    assert [(f.address, f.numa_node) for f in of_role(machine, Role.NIC)][:2] == [
        ("0000:02:00.0", 0),
        ("0000:02:00.1", 0),
    ]
    assert len(machine.nodes) == 4


def hwloc_forced(machine: Machine) -> None:
    near = {int(a[5:7], 16): f.numa_affinity for a, f in machine.functions.items()}
    assert {nodes for bus, nodes in near.items() if bus <= 0x09} == {(0, 2)}  # the group of the first package
    assert {nodes for bus, nodes in near.items() if 0x40 <= bus <= 0x46} == {(1, 3)}
    assert all(bus <= 0x09 or 0x40 <= bus <= 0x46 for bus in near)
    assert machine.gpus == ()


def hwloc_fake(machine: Machine) -> None:
    node_of = {int(a[5:7], 16): f.numa_node for a, f in machine.functions.items()}
    assert node_of[0x00] == 0
    assert node_of[0x40] == 1
    assert node_of[0x80] == node_of[0xC0] == 3
    assert machine.packages == 4


def ndv5(machine: Machine) -> None:
    found = reports(machine)
    assert [r.gpu.address for r in found if r.gpu and r.numa_node == 0] == [
        f"{d}:00:00.0" for d in ("0001", "0002", "0003", "0008")
    ]
    assert [r.gpu.address for r in found if r.gpu and r.numa_node == 1] == [
        f"{d}:00:00.0" for d in ("0009", "000a", "000b", "000c")
    ]
    for r in found:
        assert near(r.ceiling_bytes_per_s, 57.614)
        assert near(r.all_ranks_ceiling_bytes_per_s, 57.614)
        assert len(r.hops[-1].shared_with) == 1
        assert r.virtual
        assert r.findings == ()


def ndv4(machine: Machine) -> None:
    for r in reports(machine):
        assert near(r.ceiling_bytes_per_s, 28.807)
        assert near(r.all_ranks_ceiling_bytes_per_s, 14.404)
        assert len(r.hops[-1].shared_with) == 3
        assert r.virtual
    assert len({r.hops[-1].address for r in reports(machine)}) == 4
    assert {n.index for n in machine.nodes} == {0, 1, 2, 3}


def p4d(machine: Machine) -> None:
    found = reports(machine)
    assert [r.numa_node for r in found] == [0] * 4 + [1] * 4
    for r in found:
        assert near(r.ceiling_bytes_per_s, 14.403)
        assert near(r.all_ranks_ceiling_bytes_per_s, 7.20)
        assert [f.code for f in r.findings] == ["shared-uplink"]
    assert len({r.hops[-1].address for r in found}) == 4


def oci(machine: Machine) -> None:
    found = reports(machine)
    assert [r.numa_node for r in found] == [0] * 4 + [1] * 4
    for r in found:
        assert near(r.ceiling_bytes_per_s, 57.614)  # not 8 GB/s
        assert [(f.code, f.at) for f in r.findings] == [("link-suspect", r.hops[-1].address)]
        assert "5 GT/s" in r.findings[0].evidence
    assert len({f.at for r in found for f in r.findings}) == 8


def mi300x(machine: Machine) -> None:
    found = reports(machine)
    assert len(found) == 8
    assert all(machine.functions["0000:" + r.hops[0].address].class_code == 0x1200 for r in found)
    assert all(len(r.hops) == 4 and near(r.ceiling_bytes_per_s, 57.614) for r in found)


def rome(machine: Machine) -> None:
    nodes = [r.numa_node for r in reports(machine)]
    assert sorted(n for n in nodes if n is not None) == [0, 0, 1, 1, 2, 2, 3, 3]


def three_pcie(machine: Machine) -> None:
    found = reports(machine)
    assert [r.narrowest for r in found] == ["21:00.0", "81:00.0", "e2:00.0"]
    for r in found:
        assert near(r.ceiling_bytes_per_s, 28.807)
        assert (r.hops[0].cap_gt_s, r.hops[1].cap_gt_s) == (32.0, 16.0)
    assert all(machine.functions["0000:" + r.hops[0].address].class_code == 0x0380 for r in found)


def vm16(machine: Machine) -> None:
    assert len(machine.gpus) == 16
    assert all(r.virtual and any("as told by the VM" in note for note in r.notes) for r in reports(machine))


def superbench_copy(machine: Machine) -> None:
    gpu = machine.gpus[0]
    by_node = [best_measurement(machine, gpu, node) for node in (0, 1)]
    assert [round(m.bytes_per_s / GB, 2) for m in by_node if m] == [25.85, 26.10]
    assert all(m is None or m.engine == "ce" for m in by_node)  # the kernel copies (5.67, 6.41) are not taken
    assert check_machine(machine, Question()) == ()


def superbench_d2h(machine: Machine) -> None:
    best = best_measurement(machine, machine.gpus[0], None)
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
    h2d = [best_measurement(machine, gpu, None, "h2d") for gpu in machine.gpus]
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


ANSWERS: dict[str, Callable[[Machine], None]] = {
    "hwloc-dgx2h.xml": hwloc_dgx2h,
    "hwloc-power8-p100.xml": hwloc_power8,
    "hwloc-dgx-spark-gb10-v3.xml": hwloc_spark,
    "hwloc-4numa-96core-pci.xml": hwloc_4numa,
    "hwloc-40core-forced-locality.xml": hwloc_forced,
    "hwloc-fake-4package-localities.xml": hwloc_fake,
    "nccl-azure-ndv5-topo.xml": ndv5,
    "nccl-azure-ndv4-topo.xml": ndv4,
    "nccl-aws-p4d.xml": p4d,
    "nccl-aws-p4de.xml": p4d,
    "nccl-oci-H100-topology.xml": oci,
    "rccl-topo_8p_940.xml": mi300x,
    "rccl-topo_8p_rome_4nics.xml": rome,
    "rccl-topo_3p_pcie.xml": three_pcie,
    "rccl-topo_16p1h_vm.xml": vm16,
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


@pytest.mark.parametrize("name", sorted(ANSWERS))
def test_captured_machine(name: str, read: Read) -> None:
    """The right answer, found in a copy whose name says nothing."""
    ANSWERS[name](read(name))


def test_every_row_of_the_manifest_has_a_test() -> None:
    """No captured file is left out; the measured points have a test of their own."""
    folder = shared_folder()
    if folder is None:
        pytest.skip("the captured machines are not here (set HINAN_SHARED)")
    with (folder / "MANIFEST.tsv").open() as file:
        rows = {row["file"] for row in csv.DictReader(file, delimiter="\t")}
    assert rows == {*ANSWERS, "measured-points.tsv"}


LINKS = {"PCIe gen5 x16": 32.0, "PCIe gen4 x16": 16.0, "PCIe gen3 x16": 8.0}


def test_measured_points(captured: Path) -> None:
    """Every measured value lies below the predicted ceiling of its wire; the remote penalty is no constant."""
    with (captured / "measured-points.tsv").open() as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    compared = 0
    for row in rows:
        gt_s = next((speed for words, speed in LINKS.items() if row["wire"].startswith(words)), None)
        ceiling = write_ceiling_bytes_per_s(gt_s, 16, mps_bytes=256)
        for text in row["D2H_GBps"].replace("-", "/").split("/"):
            if ceiling is not None:
                compared += 1
                assert float(text) * GB <= ceiling
    assert compared >= 9
    ratios = {round(value / GB / ceiling, 3) for value, ceiling in ((55.12e9, 57.614), (26.3e9, 28.807), (13.1e9, 14.403))}
    assert ratios == {0.957, 0.913, 0.910}


def test_joined_asus_machine(read: Read) -> None:
    """Tree, devices, nodes, relations, transfers, gdscheck and gdsio of one server become one answer."""
    names = [n for n in ANSWERS if n.startswith("stelline-asus")]
    machine = read(*names)
    found = reports(machine, state_bytes=int(61.2e9))
    assert [h.address for h in found[0].hops] == ["01:00.0", "00:01.1"]
    for r in found:
        assert near(r.ceiling_bytes_per_s, 28.807)
        assert near(r.all_ranks_ceiling_bytes_per_s, 28.807)
        assert (r.measured_bytes_per_s or 0) / (r.ceiling_bytes_per_s or 1) == pytest.approx(0.913, abs=0.001)
        assert r.findings == ()
        assert any("GDS: measured" in note for note in r.notes)
    assert machine == read(*reversed(names))
