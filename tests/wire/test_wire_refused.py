"""What cannot be read is an answer in one line, or an unknown value: never a traceback."""

from __future__ import annotations

import textwrap
from pathlib import Path

import pytest
import test_wire_live
import wire_dumps as dumps
from wire_machines import machine, report
from wire_trees import TWO, lspci

from hinan.core.errors import ConfigError
from hinan.wire.checks.notes import union
from hinan.wire.machine import capture, sources

root = test_wire_live.root  # the fixture: a made-up /sys


def test_links_in_a_circle(root: Path) -> None:
    """In a copied /sys: that function is where its bus number says, the others are as they were."""
    whole = sources.read_path(root)
    entry = root / "sys/bus/pci/devices/0000:50:00.0"
    entry.symlink_to(entry.name)
    circled = sources.read_path(root)
    assert {a: f for a, f in circled.functions.items() if a != "0000:50:00.0"} == whole.functions
    assert not circled.functions["0000:50:00.0"].at_root


def test_a_name_that_is_too_long() -> None:
    """For any file system."""
    with pytest.raises(ConfigError, match=r"cannot read x{300}: File name too long"):
        sources.read_path(Path("x" * 300))


def test_a_folder_that_may_not_be_entered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Asking what is in it is refused already."""

    def refuse(self: Path) -> bool:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "is_dir", refuse)
    with pytest.raises(ConfigError, match="cannot read closed/file: Permission denied"):
        sources.read_path(Path("closed/file"))


def test_parts_of_sys_that_may_not_be_read(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each is as if it were not there."""
    plain = Path.iterdir

    def refuse(self: Path):  # type: ignore[no-untyped-def]
        if self.name in ("node", "net", "devices"):
            raise PermissionError(13, "Permission denied")
        return plain(self)

    monkeypatch.setattr(Path, "iterdir", refuse)
    found = sources.read_path(root)
    assert (found.functions, found.nodes, found.nic_names) == ({}, (), {})


def test_folders_that_look_like_nodes(root: Path) -> None:
    """Somebody's backup of one is none."""
    whole = sources.read_path(root)
    for name in ("node0.bak/memory0", "node0/memory0.bak"):
        (root / "sys/devices/system/node" / name).mkdir(parents=True)
    assert sources.read_path(root) == whole


@pytest.mark.parametrize("indent", ["    ", "\t", "  \t"])
def test_an_output_that_was_pasted_with_an_indent(indent: str) -> None:
    """It is that output."""
    for text in (dumps.LSPCI_VVV, dumps.NUMACTL, dumps.TOPO):
        assert machine(textwrap.indent(text, indent)) == machine(text)


@pytest.mark.parametrize("digits", [9, 23, 5000])
def test_numbers_that_nothing_has(digits: int) -> None:
    """A node, a group, a number of functions: unknown, and the capture file reads back."""
    text = dumps.LSPCI_VVV.replace("NUMA node: 1", "NUMA node: " + "9" * digits)
    text = text.replace("Number of VFs: 2", "Number of VFs: " + "9" * digits)
    found = machine(text)
    assert report(found).numa_node is None
    assert sources.read_texts([capture.write(found)]) == found
    hwloc = dumps.HWLOC.replace('os_index="0"', f'os_index="{"9" * digits}"')
    capture.write(machine(hwloc))


def test_paths_that_are_not_told_are_named_once() -> None:
    """Short addresses, of all GPUs in one sentence."""
    rows = [row for row in TWO if row.split()[1] in ("down", "gpu")]
    found = machine(lspci(*rows))
    (note,) = [n for n in union(report(found, index).notes for index in (0, 1)) if "root complex" in n]
    assert note == ("the path is not known up to the root complex, the source does not tell what is above: 02:00.0 02:01.0")
