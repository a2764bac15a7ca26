"""Sources that contradict each other on nodes, GPUs and the machine: unknown, named, and in any order the same."""

from collections.abc import Callable
from itertools import combinations

import msgspec
import pytest
import wire_dumps as dumps

from hinan.wire.checks.case import Question
from hinan.wire.facts.iommu_mode import iommu_before
from hinan.wire.facts.model import IommuMode, Machine
from hinan.wire.facts.placement import node_for_gpu
from hinan.wire.machine import capture, sources
from hinan.wire.paths.rail import nic_for_gpu
from hinan.wire.show.report import report_gpu


def both_ways(*texts: str) -> Machine:
    """The texts as one machine, which is the same in both orders and after a capture."""
    found = sources.read_texts(texts)
    assert sources.read_texts(texts[::-1]) == found
    assert sources.read_texts([capture.write(found)]) == found
    return found


def contradiction(machine: Machine) -> str:
    """The sentence on what sources contradict each other on."""
    (note,) = [n for n in machine.notes if "contradict" in n]
    return note


NODES = """\
available: 2 nodes (0-1)
node 0 cpus: 0 1 2 3
node 0 size: 1000 MB
node 0 free: 900 MB
node 1 cpus: 4 5 6 7
node 1 size: 1000 MB
node 1 free: 800 MB
node distances:
node   0   1
  0:  10  21
  1:  21  10
"""


@pytest.mark.parametrize(
    ("before", "after", "words", "unknown"),
    [
        ("0 size: 1000", "0 size: 2000", "memory 1.0 GB or 2.1 GB at node 0", ("size_bytes", "free_bytes")),
        ("0:  10  21", "0:  10  80", "distance 21 to node 1 or 80 to node 1 at node 0", ("distances",)),
        ("cpus: 0 1 2 3", "cpus: 0 1 2 3 4", "CPUs 4 (0 to 3) or 5 (0 to 4) at node 0", ("cpus",)),
        ("cpus: 0 1 2 3", "cpus:", "CPUs 4 (0 to 3) or none at node 0", ("cpus",)),
    ],
)
def test_nodes(before: str, after: str, words: str, unknown: tuple[str, ...]) -> None:
    """Two numactl outputs; a third that agrees with one of them settles nothing."""
    assert before in NODES
    other = NODES.replace(before, after)
    for machine in (both_ways(NODES, other), sources.read_texts([NODES, other, NODES])):
        assert words in contradiction(machine)
        node, neighbour = machine.nodes
        assert all(getattr(node, name) in (None, {}) for name in unknown)
        assert neighbour.size_bytes is not None
        assert neighbour.distances


def test_free_memory_is_of_a_moment() -> None:
    """Two moments contradict nobody: the least of them is counted on. MB and bytes are the same size."""
    machine = both_ways(NODES, NODES.replace("free: 900", "free: 500").replace("size: 1000", "size: 1001"))
    assert not any("contradict" in note for note in machine.notes)
    assert machine.nodes[0].free_bytes == 500 << 20


def test_a_program_that_may_use_some_cpus_contradicts_nobody() -> None:
    """NCCL prints the affinity of its process: fewer CPUs than numactl are the same node's, others are not."""
    nccl = '<system version="1"><cpu numaid="0" affinity="{}"/><cpu numaid="1" affinity="f0"/></system>\n'
    machine = both_ways(NODES, nccl.format("3"))
    assert not any("contradict" in note for note in machine.notes)
    assert machine.nodes[0].cpus == (0, 1, 2, 3)
    assert "CPUs" in contradiction(both_ways(NODES, nccl.format("f00")))


MATRIX = "\tGPU0\tGPU1\tNIC0\tNIC1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n" + (
    "GPU0\t X \tNV18\tPIX\tSYS\t0-31\t1\t\tN/A\nGPU1\tNV18\t X \tSYS\tPIX\t0-31\t1\t\tN/A\n"
)


def test_matrices_on_nodes() -> None:
    """topo -m twice, and topo -m against lspci: node unknown, and the bus does not decide."""
    other = MATRIX.replace("0-31\t1", "0-31\t0")
    for machine in (both_ways(MATRIX, other), both_ways(dumps.LSPCI_VVV, other)):
        assert "NUMA node 0 or 1 at GPU 0 GPU 1" in contradiction(machine)
        placement = node_for_gpu(machine, 0)
        assert (placement.node, "contradict" in placement.why) == (None, True)
        assert report_gpu(machine, machine.gpus[0], Question()).labels["numa_node"] == "unknown"


def test_what_is_no_contradiction_on_nodes() -> None:
    """A list of near nodes that holds the bus's, and a bus that names a node of memory only."""
    near = MATRIX.replace("0-31\t1\t", "0-31\t0-2\t")
    memory_only = NODES.replace("cpus: 4 5 6 7", "cpus:")
    for texts in ((dumps.LSPCI_VVV, MATRIX), (dumps.LSPCI_VVV, near)):
        assert not any("contradict" in note for note in both_ways(*texts).notes)
    far = MATRIX.replace("0-31\t1", "0-31\t0")
    found = sources.read_texts([dumps.LSPCI_VVV, far, memory_only])
    assert not any("NUMA node" in note and "contradict" in note for note in found.notes)


def test_matrices_on_nics() -> None:
    """PIX or SYS to a NIC: its label is gone, and no NIC is chosen by the labels that are left."""
    machine = both_ways(MATRIX, MATRIX.replace("NV18\tPIX\tSYS", "NV18\tSYS\tPIX"))
    assert "nearness of NIC0 PIX or NIC0 SYS or NIC1 PIX or NIC1 SYS at GPU 0" in contradiction(machine)
    assert machine.gpus[0].relations == {"GPU1": "NV18"}
    assert nic_for_gpu(machine, 0).nic is None
    assert nic_for_gpu(machine, 1).nic == "NIC1"
    left = both_ways(MATRIX, MATRIX.replace("NV18\tPIX\tSYS", "NV18\tNODE\tSYS"))
    assert left.gpus[0].relations == {"GPU1": "NV18", "NIC1": "SYS"}
    assert nic_for_gpu(left, 0).nic is None  # NIC0 is nearer, by whatever label


def test_logs_of_two_products_under_one_number() -> None:
    """Nobody knows which of the two is here: no name and no figure."""
    one, other = (
        dumps.BANDWIDTH_TEST.replace("NVIDIA Example", name) for name in ("Tesla V100-PCIE-32GB", "NVIDIA H100 PCIe")
    )
    machine = both_ways(one, other)
    assert "name NVIDIA H100 PCIe or Tesla V100-PCIE-32GB at GPU 0" in contradiction(machine)
    assert report_gpu(machine, machine.gpus[0], Question()).measured_bytes_per_s is None


def test_the_iommu() -> None:
    """gdscheck says disabled, the groups translate: unknown, for the machine and for each GPU."""
    machine = sources.read_texts([dumps.LSPCI_VVV])
    grouped = {a: msgspec.structs.replace(f, iommu_mode=IommuMode.TRANSLATED) for a, f in machine.functions.items()}
    translated = capture.write(msgspec.structs.replace(machine, iommu_mode=IommuMode.TRANSLATED, functions=grouped))
    found = both_ways(translated, dumps.GDSCHECK.format(compat="false"))
    assert "IOMMU off or translated" in contradiction(found)
    assert [iommu_before(found, gpu.address) for gpu in found.gpus] == [None, None]


def test_interfaces_and_gdscheck() -> None:
    """One interface at two places is at neither, and two gdscheck outputs agree on what both say."""
    nccl = dumps.NCCL.replace('name="mlx5_3"', 'name="mlx5_9"').replace('gdr="1"><nvlink', 'gdr="0"><nvlink')
    moved = nccl.replace("0000:33:00.0", "0000:34:00.0")
    found = both_ways(nccl, moved)
    assert "place of mlx5_9 0000:33:00.0 or 0000:34:00.0" in contradiction(found)
    assert found.nic_names == {}
    checks = [dumps.GDSCHECK.format(compat=word) for word in ("true", "false")]
    machine = both_ways(*checks)
    assert "gdscheck's compat_mode False or True" in contradiction(machine)
    assert machine.gds is not None
    assert (machine.gds.compat_mode, machine.gds.nvme_supported) == (None, True)


def test_what_the_driver_offers() -> None:
    """gdr 0 and 1 of one function: neither "no" nor "the driver offers it"."""
    found = both_ways(dumps.NCCL, dumps.NCCL.replace('rank="1" gdr="1"', 'rank="1" gdr="0"'))
    assert "GPUDirect False or True at 32:00.0" in contradiction(found)
    assert found.functions["0000:32:00.0"].gpudirect is None


EDITS: tuple[Callable[[str], str], ...] = (
    lambda raw: raw,
    lambda raw: raw.replace("16GT/s", "32GT/s").replace("16.0 GT/s", "8.0 GT/s").replace("15.753846", "4.0"),
    lambda raw: raw.replace("NUMA node: 1", "NUMA node: 0").replace('numaid="0"', 'numaid="1"').replace("\t0\t", "\t1\t"),
    lambda raw: raw.replace("MB", "KB").replace("0123", "3210").replace("26.", "13.").replace("22.5", "9.5"),
    lambda raw: raw.replace("ReqRedir-", "ReqRedir+").replace("Supported", "Unsupported").replace("PIX", "SYS"),
    lambda raw: raw.replace("43:00", "47:00").replace("mlx5_0", "mlx5_4").replace("Node 0 PXM", "Node 1 PXM"),
)


def test_order_of_sources_plays_no_part() -> None:
    """Every pair of sources, and of a source with another version of itself, in both orders."""
    texts = list(dict.fromkeys(edit(raw) for raw in dumps.ALL_TEXTS for edit in EDITS))
    machines = {text: sources.read_text(text) for text in texts}
    from hinan.wire.machine.assemble import assemble
    from hinan.wire.machine.merge import merge

    for one, other in combinations(texts, 2):
        first, second = machines[one], machines[other]
        if first is not None and second is not None:
            found = assemble(merge([first, second]))
            assert assemble(merge([second, first])) == found
            assert assemble(found) == found
