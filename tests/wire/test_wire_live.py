"""The live machine: a made-up /sys and /proc, config space, pages of a file."""

import os
import shutil
from pathlib import Path

import msgspec
import pytest
import wire_dumps as dumps

from hinan.core.errors import ConfigError
from hinan.wire.checks.case import Question
from hinan.wire.checks.check import check_machine
from hinan.wire.facts.model import IommuMode, Port, Role
from hinan.wire.machine import sample, sources
from hinan.wire.paths.decode import route_write
from hinan.wire.paths.hotpath import paths_of
from hinan.wire.readers import pages
from hinan.wire.show.render import render
from hinan.wire.show.report import report_gpu


def config(*, port: int, mps: int, bridge: tuple[int, int, int] | None = None, acs: int | None = None) -> bytes:
    """Config space with an Express capability at 40h and, if asked, ACS at 100h."""
    data = bytearray(4096)
    data[0x34], data[0x40] = 0x40, 0x10
    data[0x42:0x44] = (port << 4 | 2).to_bytes(2, "little")
    data[0x44:0x46] = (2).to_bytes(2, "little")  # DevCap: 512
    data[0x48:0x4A] = ({128: 0, 256: 1, 512: 2}[mps] << 5 | 2 << 12).to_bytes(2, "little")
    if bridge:
        data[0x0E] = 1
        data[0x18:0x1B] = bytes(bridge)
        for offset, value in ((0x20, 0x9000), (0x22, 0x90F0), (0x24, 0x0001), (0x26, 0xFFF1)):
            data[offset : offset + 2] = value.to_bytes(2, "little")
        data[0x28:0x2C], data[0x2C:0x30] = (0x3000).to_bytes(4, "little"), (0x30FF).to_bytes(4, "little")
    if acs is not None:
        data[0x100:0x104] = (0x0001_000D).to_bytes(4, "little")
        data[0x106:0x108] = acs.to_bytes(2, "little")
    return bytes(data)


def device(root: Path, path: str, config_bytes: bytes, **files: str) -> Path:
    """One PCI device folder with its link in /sys/bus/pci/devices."""
    folder = root / "sys/devices/pci0000:40" / path
    folder.mkdir(parents=True)
    (folder / "config").write_bytes(config_bytes)
    for name, value in files.items():
        (folder / name).write_text(value + "\n")
    link = root / "sys/bus/pci/devices" / folder.name
    link.parent.mkdir(parents=True, exist_ok=True)
    link.symlink_to(os.path.relpath(folder, link.parent))
    return folder


LINK16 = {
    "max_link_speed": "32.0 GT/s PCIe",
    "current_link_speed": "2.5 GT/s PCIe",
    "max_link_width": "16",
    "current_link_width": "16",
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Root port 40:01.0 with ACS, GPU 41:00.0 with a virtual function 41:00.4, two nodes."""
    device(tmp_path, "0000:40:01.0", config(port=4, mps=256, bridge=(0x40, 0x41, 0x41), acs=0x1D), vendor="0x8086",
           device="0x352a", numa_node="1", **{"class": "0x060400"}, **LINK16)  # fmt: skip
    resource = "0x0000300000000000 0x0000301fffffffff 0x000000000014220c\n" + "0x0 0x0 0x0\n" * 5
    gpu = device(tmp_path, "0000:40:01.0/0000:41:00.0", config(port=0, mps=256), vendor="0x10de", device="0x2330",
                 numa_node="1", resource=resource, sriov_numvfs="1", **{"class": "0x030200"}, **LINK16)  # fmt: skip
    vf = device(tmp_path, "0000:40:01.0/0000:41:00.4", config(port=0, mps=256)[:64], vendor="0x10de", device="0x2330",
                numa_node="-1", max_link_width="0", max_link_speed="Unknown", **{"class": "0x088000"})  # fmt: skip
    (vf / "physfn").symlink_to("../0000:41:00.0")
    for number, functions, mode in (("5", (gpu,), "DMA-FQ"), ("6", (vf,), "DMA")):
        group = tmp_path / "sys/kernel/iommu_groups" / number
        group.mkdir(parents=True)
        (group / "type").write_text(mode + "\n")
        for function in functions:
            (function / "iommu_group").symlink_to(group)
    for node, cpus in ((0, "0-3"), (1, "4-7")):
        folder = tmp_path / f"sys/devices/system/node/node{node}"
        folder.mkdir(parents=True)
        (folder / "cpulist").write_text(cpus + "\n")
        (folder / "distance").write_text("10 21\n" if node == 0 else "21 10\n")
        (folder / "meminfo").write_text(f"Node {node} MemTotal:  2048 kB\nNode {node} MemFree:   1024 kB\n")
        (folder / f"memory{node}").mkdir()
        (folder / f"memory{node + 2}").mkdir()
    (tmp_path / "sys/devices/system/memory").mkdir()
    (tmp_path / "sys/devices/system/memory/block_size_bytes").write_text("8000000\n")
    (tmp_path / "proc").mkdir()
    (tmp_path / "proc/iomem").write_text(dumps.IOMEM)
    (tmp_path / "proc/cpuinfo").write_text("model name\t: Example CPU\nflags\t: fpu hypervisor\n")
    return tmp_path


def test_sysfs(root: Path) -> None:
    """Hops, capability and state, MPS and ACS from config space, windows, BARs, groups, nodes, ranges."""
    machine = sources.read_live(root)
    gpu, port = machine.functions["0000:41:00.0"], machine.functions["0000:40:01.0"]
    assert (gpu.parent, port.port, port.at_root) == ("0000:40:01.0", Port.ROOT, True)
    assert (gpu.mps_bytes, gpu.mps_cap_bytes, gpu.mrrs_bytes) == (256, 512, 512)
    assert (gpu.iommu_group, gpu.iommu_mode) == (5, IommuMode.TRANSLATED)
    assert port.acs is not None
    assert port.acs.redirects
    assert [(w.first, w.last) for w in port.windows] == [(0x90000000, 0x90FFFFFF), (0x300000000000, 0x30FFFFFFFFFF)]
    assert [(w.bar, w.size_bytes) for w in gpu.bars] == [(0, 128 << 30)]
    answer = report_gpu(machine, machine.gpus[0], Question())
    assert answer.ceiling_bytes_per_s == pytest.approx(57.614e9, rel=1e-4)
    assert (answer.numa_node, answer.iommu) == (1, "translated")
    assert [f.code for f in answer.findings] == ["iommu-translating"]
    assert machine.nodes[1].ranges[0].first == 0x8000000
    assert machine.nodes[1].free_bytes == 1 << 20
    assert machine.virtual


def test_sysfs_of_a_gpu_that_does_not_answer(root: Path) -> None:
    """All ones: off the bus, and no link is made of registers that read 63 lanes."""
    gpu = root / "sys/bus/pci/devices/0000:41:00.0"
    (gpu / "config").write_bytes(b"\xff" * 64)
    (gpu / "current_link_width").write_text("63\n")
    (gpu / "max_link_width").write_text("63\n")
    machine = sources.read_live(root)
    (finding,) = check_machine(machine, Question())
    assert (finding.code, finding.evidence) == ("gpu-off-bus", "its config space reads all ones")
    assert machine.functions["0000:41:00.0"].link.cap_width is None


def test_sysfs_virtual_function_is_told(root: Path) -> None:
    """VF -> PF -> IOMMU group, and what the group isolates; numa_node -1 and width 0 are unknown."""
    machine = sources.read_live(root)
    vf = machine.functions["0000:41:00.4"]
    assert (vf.physical_function, vf.numa_node, vf.link.cap_width) == ("0000:41:00.0", None, None)
    assert paths_of(machine, machine.gpus[0]).virtual_functions == (
        "VF 41:00.4 -> PF 41:00.0 -> IOMMU group 6: isolates this VF alone",
    )


def test_without_root_mps_is_unknown(root: Path) -> None:
    """64 bytes of config space: windows yes, MPS and ACS no, and a note says why."""
    for entry in (root / "sys/bus/pci/devices").iterdir():
        path = entry / "config"
        path.write_bytes(path.read_bytes()[:64])
    machine = sources.read_live(root)
    answer = report_gpu(machine, machine.gpus[0], Question())
    assert answer.mps_bytes is None
    assert answer.assumed_mps_bytes == 256
    assert any("needs root" in note for note in answer.notes)
    assert len(machine.functions["0000:40:01.0"].windows) == 2


def test_a_readable_device_without_the_capability(root: Path) -> None:
    """256 bytes could be read, as root does, and no Express capability is in them: root would not help."""
    for entry in (root / "sys/bus/pci/devices").iterdir():
        path = entry / "config"
        path.write_bytes(path.read_bytes()[:0x34] + bytes(256 - 0x34))
    notes = sources.read_live(root).notes
    assert not any("needs root" in note for note in notes)
    assert any("no device has a PCI Express capability" in note for note in notes)


def test_a_copied_sys_folder_is_a_source(root: Path) -> None:
    """`--from FOLDER` reads a tree that was copied from elsewhere."""
    assert len(sources.read_paths([root]).gpus) == 1
    with pytest.raises(ConfigError, match="sys/"):
        sources.read_path(root / "proc")


def test_this_machine_is_readable() -> None:
    """Whatever runs the tests can be read; nothing is written, nothing raised."""
    machine = sources.read_live()
    assert machine.sources == ("sysfs",)
    check_machine(machine, Question())


def test_pages_of_a_file_in_tmpfs(tmp_path: Path) -> None:
    """Each page is read with its frame and node (root), or says unknown; never zero."""
    folder = Path("/dev/shm") if os.access("/dev/shm", os.W_OK) else tmp_path
    path = folder / f"hinan-wire-test-{os.getpid()}"
    path.write_bytes(b"x" * 10_000)
    try:
        found = pages.pages_of(path)
    finally:
        path.unlink()
    assert [p.offset_bytes for p in found] == [0, 4096, 8192]
    assert all(p.virtual % 4096 == 0 for p in found)
    for page in found:
        assert (page.physical is None) == (page.label != "read")
        assert page.physical != 0


def test_pages_are_spread() -> None:
    """The first, the last, and others between; a small file shows all."""
    assert pages.spread(1, 4) == [0]
    assert pages.spread(3, 4) == [0, 1, 2]
    assert pages.spread(20_971_520, 4) == [0, 6990506, 13981012, 20971519]


def test_pagemap_entries() -> None:
    """Bit 63 is "present"; a frame of zero is a refusal, not an address."""
    assert pages.frame_of(1 << 63 | 0x1234) == 0x1234
    assert pages.frame_of(0x1234) is pages.frame_of(1 << 63) is pages.frame_of(None) is None


def test_pages_of_nothing(tmp_path: Path) -> None:
    """A missing or empty file is refused by name."""
    (tmp_path / "empty").touch()
    for name in ("empty", "missing"):
        with pytest.raises(ConfigError, match=name):
            pages.pages_of(tmp_path / name)


def test_sample_is_a_whole_server() -> None:
    """Eight GPUs with paths to the root, an NVMe drive and a NIC behind each uplink, no findings."""
    machine = sample.machine()
    assert len(machine.gpus) == 8
    assert check_machine(machine, Question(state_bytes=10**11)) == ()
    for role in (Role.NVME, Role.NIC):
        assert sum(f.role is role for f in machine.functions.values()) == 8


def test_sysfs_bars_of_virtual_functions(root: Path) -> None:
    """Lines 7 to 12 of `resource` are those of all VFs together; a bridge's own BARs are read too."""
    gpu, port = (root / "sys/bus/pci/devices" / name for name in ("0000:41:00.0", "0000:40:01.0"))
    for name, value in (("numvfs", 1), ("offset", 4), ("stride", 1)):
        (gpu / f"sriov_{name}").write_text(f"{value}\n")
    own, empty = "0x0000300000000000 0x0000301fffffffff 0x000000000014220c\n", "0x0 0x0 0x0\n"
    vfs = "0x0000302000000000 0x000030200003ffff 0x000000000014220c\n"
    (gpu / "resource").write_text(own + 6 * empty + vfs + 5 * empty)
    (port / "resource").write_text("0x0000000091000000 0x000000009101ffff 0x0000000000140204\n")
    (root / "sys/kernel/iommu_groups/5/type").write_text("identity\n")
    machine = sources.read_live(root)
    ends = [route_write(machine, "0000:41:00.0", a).destination for a in (0x302000000000, 0x30200003FFFF, 0x302000040000)]
    assert ends == ["nowhere"] * 3  # a device's own BARs lie behind the port that it sends to
    told = machine.functions["0000:41:00.0"].sriov
    assert told is not None
    assert (told.enabled, told.sized, told.bars[0].size_bytes) == (True, True, 256 << 10)
    assert route_write(machine, "0000:41:00.0", 0x9101FFFF).destination == "BAR 0 of 40:01.0"


def test_a_copy_of_sysfs_without_its_groups(root: Path) -> None:
    """`iommu_group` and `physfn` lead nowhere in a copy of some folders: the groups exist, and their mode is unknown."""
    shutil.rmtree(root / "sys/kernel")
    machine = sources.read_live(root)
    gpu = machine.functions["0000:41:00.0"]
    assert (gpu.iommu_group, gpu.iommu_mode, machine.iommu_mode) == (5, None, None)
    assert report_gpu(machine, machine.gpus[0], Question()).iommu is None
    assert any("on (groups exist), mode unknown" in line for line in render(report_gpu(machine, machine.gpus[0], Question()), machine))  # fmt: skip  # noqa: E501
    vf = root / "sys/bus/pci/devices/0000:41:00.4/physfn"
    vf.unlink()
    vf.symlink_to("../../elsewhere/0000:41:00.0")
    assert sources.read_live(root).functions["0000:41:00.4"].physical_function == "0000:41:00.0"


def test_a_copy_with_groups_as_folders(root: Path) -> None:
    """`cp -L` makes a folder of the link: which group it is nobody knows, but that there is one."""
    for entry in (root / "sys/bus/pci/devices").iterdir():
        if (entry / "iommu_group").is_symlink():
            (entry / "iommu_group").unlink()
            (entry / "iommu_group").mkdir()
    machine = sources.read_live(root)
    assert (machine.functions["0000:41:00.0"].iommu_group, machine.iommu_mode) == (None, None)


def test_power_is_no_grace(root: Path) -> None:
    """POWER9 without groups: the advice to translate is for Grace."""
    (root / "proc/cpuinfo").write_text("processor\t: 0\ncpu\t\t: POWER9, altivec supported\nclock\t\t: 3800.0MHz\n")
    shutil.rmtree(root / "sys/kernel")
    for entry in (root / "sys/bus/pci/devices").iterdir():
        (entry / "iommu_group").unlink(missing_ok=True)
    gpu, port = (root / "sys/bus/pci/devices" / address for address in ("0000:41:00.0", "0000:40:01.0"))
    (gpu / "device").write_text("0x1db5\n")
    (port / "vendor").write_text("0x1014\n")
    (port / "device").write_text("0x04c1\n")
    machine = sources.read_live(root)
    assert (machine.cpu_arch, machine.iommu_mode) == ("ppc64le", IommuMode.OFF)
    assert check_machine(machine, Question()) == ()
    answer = report_gpu(machine, machine.gpus[0], Question())
    assert (answer.ceiling_bytes_per_s, answer.coherent_link) == (None, "NVLink between GPU and CPU (V100 SXM2 32GB on a POWER host)")  # fmt: skip  # noqa: E501
    untold = msgspec.structs.replace(machine, cpu_arch=None)
    assert check_machine(untold, Question()) == ()
