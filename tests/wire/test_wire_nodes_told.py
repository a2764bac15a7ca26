"""A list of nodes is whole only where a source says so, and of equally near nodes each is right."""

from __future__ import annotations

from pathlib import Path

import pytest
from wire_machines import GB, machine, report
from wire_trees import lspci

from hinan.wire.checks.case import Question
from hinan.wire.facts.placement import has_all_nodes, node_for_gpu
from hinan.wire.machine import capture, sources
from hinan.wire.show.render import render, render_without_gpu
from hinan.wire.show.report import report_without_gpu

LSPCI = lspci("00:01.0 root 01-01", "01:00.0 gpu").replace("\tNUMA node: 0\n", "")
ONE = "node 0 cpus: 0 1\nnode 0 size: 1000 MB\nnode 0 free: 900 MB\n"
NUMACTL_ALL, NUMACTL_CUT = f"available: 1 nodes (0)\n{ONE}", f"available: 2 nodes (0-1)\n{ONE}"
HWLOC = (
    '<topology version="2.0"><object type="Machine" nodeset="{}"{}><object type="Package"><object type="NUMANode" '
    'os_index="0" nodeset="0x1" cpuset="0x3"/></object></object></topology>'
)
NCCL = '<system version="1"><cpu numaid="0" affinity="f"/></system>'


@pytest.mark.parametrize(
    ("text", "node"),
    [
        (NUMACTL_ALL, 0),
        (NUMACTL_CUT, None),
        (ONE, None),
        (HWLOC.format("0x1", ""), 0),
        (HWLOC.format("0x3", ""), None),
        (HWLOC.format("0x1", ' complete_nodeset="0x3"'), None),
        (NCCL, None),
        (NUMACTL_ALL + "\n" + LSPCI.replace("01:00.0", "02:00.0") + "\tNUMA node: 1\n", None),
    ],
)
def test_one_node_in_a_list(text: str, node: int | None) -> None:
    """The GPU's node by elimination: only if the list says that it is whole, and nothing names another node."""
    found = machine(LSPCI, text)
    assert node_for_gpu(found, 0).node == node
    assert has_all_nodes(found) == (node is not None)
    assert sources.read_texts([capture.write(found)]) == found


def test_a_confined_program_does_not_shrink_the_machine() -> None:
    """hwloc in a container with one node, numactl of the host: two."""
    found = machine(LSPCI, HWLOC.format("0x1", ""), NUMACTL_CUT)
    assert (found.node_set, node_for_gpu(found, 0).node) == ((0, 1), None)


def test_packages_of_a_cut_file_are_not_counted() -> None:
    """One of two sockets in it: not "one socket"."""
    assert machine(HWLOC.format("0x1", "")).packages == 1
    assert machine(HWLOC.format("0x3", "")).packages is None


def test_the_live_machine_says_which_nodes_are_online(tmp_path: Path) -> None:
    """/sys tells them in a file of its own; a copy without it may lack some."""
    folder = tmp_path / "sys/devices/system/node"
    for name in ("node0", "node0.bak"):
        (folder / name).mkdir(parents=True)
    assert not has_all_nodes(sources.read_path(tmp_path))
    (folder / "online").write_text("0\n")
    assert has_all_nodes(sources.read_path(tmp_path))


SNC = (
    '<topology version="2.0"><object type="Machine" nodeset="0xf">'
    + "".join(f'<object type="NUMANode" os_index="{i}" nodeset="{1 << i:#x}" cpuset="{1 << i:#x}"/>' for i in range(4))
    + '<object type="Package" nodeset="0x3"><object type="PCIDev" pci_busid="0000:01:00.0" '
    'pci_type="0302 [10de:2330] [0000:0000] 00" pci_link_speed="63.015385"/></object></object></topology>'
)
TOPO = "\tGPU0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\nGPU0\t X \t0-31\t0-1\t\tN/A\n"


@pytest.mark.parametrize("text", [SNC, TOPO])
def test_each_of_equally_near_nodes_is_right(text: str) -> None:
    """Sub-NUMA clustering: a buffer or a stopwatch on either node of the socket; on the other socket it is wrong."""
    found = machine(text)
    assert [f.code for f in report(found, buffer_node=1).findings] == []
    assert [f.code for f in report(found, buffer_node=2).findings] == ["wrong-numa-node"]
    assert render(report(found), found)[0].endswith("nodes 0-1 (reported)")
    for node, rate in ((1, 51.0), (2, None)):
        answer = report(machine(text, f"gpu0_to_cpu_by_dma_under_numa{node} 51.0\n"))
        assert answer.measured_bytes_per_s == (rate * GB if rate else None)
        assert any("not the rate of its own way" in note for note in answer.notes) == (rate is None)


def test_the_bus_is_more_exact_than_a_list_of_near_nodes() -> None:
    """lspci names node 1 of the two: the other one is not as near."""
    found = machine(lspci("00:01.0 root 01-01", "01:00.0 gpu").replace("NUMA node: 0", "NUMA node: 1"), TOPO)
    assert node_for_gpu(found, 0).near == (1,)


def test_dozens_of_nodes_are_a_few_lines() -> None:
    """numactl -H of a GB200: 34 nodes, of which two have CPUs and one is a GPU's memory; the others hold nothing."""
    nodes = range(34)
    parts = [
        f"node {n} cpus: {n if n < 2 else ''}\nnode {n} size: {1000 if n < 3 else 0} MB\nnode {n} free: 0 MB" for n in nodes
    ]
    rows = [f"  {n}: " + "  ".join("10" if n == m else "40" if m < 2 else "80" for m in nodes) for n in nodes]
    text = "\n".join(
        ["available: 34 nodes (0-33)", *parts, "node distances:", f"node {' '.join(map(str, nodes))}", *rows, ""]
    )
    found = machine(text)
    shown = render_without_gpu(report_without_gpu(found, Question()), found)
    told = [line for line in shown if line.startswith(("RAM ", "mem "))]
    assert [line[:12].strip() for line in told] == ["RAM  node 0", "RAM  node 1", "mem  node 2", "mem  nodes 3"]
    assert told[0].endswith("distance 40 to node 1, 80 to node 2")
    assert told[3] == "mem  nodes 3-33: no memory, no CPUs"
