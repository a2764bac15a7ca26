"""The right answer for each captured topology file: hwloc, NCCL and RCCL."""

from collections.abc import Callable

import pytest
from wire_machines import near, of_role, reports

from hinan.wire.checks.case import Question
from hinan.wire.facts.model import Machine, Role
from hinan.wire.paths.path import path_up
from hinan.wire.show.report import report_without_gpu


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


TOPOLOGIES: dict[str, Callable[[Machine], None]] = {
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
}
"""Checks by the name of the file."""
