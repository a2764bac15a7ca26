"""What leaves a node in a capture file: no identity, whatever a host or an interface is called; and it can be read."""

from pathlib import Path

import msgspec
import pytest
import wire_dumps as dumps

from hinan.core.errors import FormatError
from hinan.wire.facts.model import Function, IomemRange, Machine, Measurement
from hinan.wire.machine import capture, sample, sources


def live(root: Path, interface: str, product: str) -> Path:
    """A copied /sys with one NIC of this name."""
    entry = root / "sys/bus/pci/devices/0000:41:00.0"
    entry.mkdir(parents=True)
    for name, text in (("class", "0x020000"), ("vendor", "0x15b3"), ("device", "0x101b")):
        (entry / name).write_text(text)
    net = root / "sys/class/net" / interface
    net.mkdir(parents=True)
    (net / "device").symlink_to(entry)
    (root / "sys/class/dmi/id").mkdir(parents=True)
    (root / "sys/class/dmi/id/product_name").write_text(product)
    return root


@pytest.mark.parametrize(
    "interface", ["enx0c42a179abcd", "ibx0c42a1030079abcd", "wlx0c42a179abcd", "roce0c42a1030079abcd", "bond-0c42a179abcd"]
)
def test_capture_leaves_no_identity_of_a_live_node(tmp_path: Path, interface: str) -> None:
    """Interfaces are named after MACs and GUIDs, and a vendor's product name may hold the serial number."""
    machine = sources.read_live(live(tmp_path, interface, "Example R1 SN CZ12345678"))
    text = capture.write(machine)
    assert "0c42a1" not in text
    assert "CZ12345678" not in text
    again = sources.read_texts([text])
    assert list(again.nic_names.values()) == ["0000:41:00.0"]
    assert again.product == "Example R1 SERIAL"


def test_capture_keeps_interfaces_apart() -> None:
    """Two MACs become two names, the same in nic_names and in the matrix; a plain name stays."""
    topo = dumps.TOPO.replace("mlx5_0", "ibx0c42a1030079abcd").replace("NIC1: mlx5_4", "NIC1: ibx0c42a1030079ffff")
    machine = sources.read_texts([topo])
    names = {"ibx0c42a1030079abcd": "0000:41:00.0", "ibx0c42a1030079ffff": "0000:42:00.0", "mlx5_7": "0000:43:00.0"}
    again = capture.read(capture.write(msgspec.structs.replace(machine, nic_names=names)))
    assert again is not None
    assert again.nic_names == {"ibxMAC": "0000:41:00.0", "ibxMAC-2": "0000:42:00.0", "mlx5_7": "0000:43:00.0"}
    assert {"ibxMAC", "ibxMAC-2"} <= again.gpus[0].relations.keys()


@pytest.mark.parametrize(
    "words", ["fe80::0c42:a1ff:fe79:abcd", "2001:db8:0:0:1:2:3:4", "0c42:a103:0079:abcd", "0c42.a179.abcd"]
)
def test_capture_replaces_addresses_of_networks(words: str) -> None:
    """Every spelling of an IP address, a MAC or a GUID in a note; PCI addresses and ranges stay."""
    text = capture.write(Machine(notes=(f"at {words}, seen from 0000:41:00.0 and 0001:82:00.0-03.0",)))
    assert words not in text
    assert "0000:41:00.0 and 0001:82:00.0-03.0" in text


@pytest.mark.parametrize(
    "host",
    ["gpu", "bridge", "nic", "gpu.lab.example", "0000", "1", "system", "ram", "nvidia", "sysfs", "power9", "example"],
)
@pytest.mark.parametrize("raw", [*dumps.ALL_TEXTS, capture.write(sample.machine())])
def test_capture_reads_back_on_a_host_of_any_name(host: str, raw: str) -> None:
    """A node that is called like a word of the format writes the same machine: only its notes may differ."""
    machine = sources.read_texts([raw])
    again = capture.read(capture.write(machine, host=host))
    assert again is not None
    free = {"notes": (), "product": None, "virtual": (), "mixed": None, "coherent_link": None}
    assert msgspec.structs.replace(again, **free) == msgspec.structs.replace(machine, **free)


def test_capture_refuses_what_would_not_read_back() -> None:
    """A value that no file can hold is refused when writing, not when somebody reads it."""
    for rate in (float("inf"), float("nan")):
        with pytest.raises(FormatError, match="cannot be written"):
            capture.write(Machine(coherent_bytes_per_s=rate))
    with pytest.raises(FormatError, match="damaged"):
        capture.write(Machine(functions={"0000:41:00.0": Function(address="0000:42:00.0")}))


def test_capture_names_disputed_interfaces_after_no_mac() -> None:
    """Where sources disagree on their place or nearness, they stand in the record of contradictions only."""
    link = '<pci busid="0000:{}:00.0" class="0x020000"><nic><net name="enx001122aabbcc" dev="0"/></nic></pci>'
    files = [f'<system version="1"><cpu numaid="0">{link.format(bus)}</cpu></system>' for bus in ("41", "42")]
    topo = dumps.TOPO.replace("NIC0: mlx5_0", "NIC0: rocex0011223344556677")
    assert topo.count("PIX") and "rocex" in topo
    machine = sources.read_texts([*files, topo, topo.replace("PIX", "SYS")])
    assert any("enx001122aabbcc" in what for what in machine.disputed)
    assert any("rocex0011223344556677 PIX" in gpu.disputed.get("relations", ()) for gpu in machine.gpus)
    text = capture.write(machine)
    assert "001122aabbcc" not in text
    assert "0011223344556677" not in text
    again = capture.read(text)
    assert again is not None
    assert again.disputed == {"place of enxMAC": ("0000:41:00.0", "0000:42:00.0")}
    assert {"rocexMAC PIX", "rocexMAC SYS"} <= {v for gpu in again.gpus for v in gpu.disputed.get("relations", ())}


@pytest.mark.parametrize(
    ("words", "secret"),
    [
        ("Serial No: 7ABC123", "7ABC123"), ("Serial No. 7ABC123", "7ABC123"), ("SerialNumber=7ABC123", "7ABC123"),
        ("product_serial: 7ABC123", "7ABC123"), ('"serial": "7ABC123"', "7ABC123"), ("S/N 7ABC123", "7ABC123"),
        ("Service Tag: 7ABC123", "7ABC123"), ("service_tag=7ABC123", "7ABC123"), ("Asset Tag 12345", "12345"),
        ("uuid 4c4c4544003710528033b7c04f564d32", "4c4c4544"), ("4C4C4544003710528033B7C04F564D32", "4C4C4544"),
        ("guid 0cc47a0300123456", "0cc47a"), ("node_guid: 0x0cc47a0300123456", "0cc47a"), ("MAC 0cc47a123456", "0cc47a"),
        ("eui.0025388b11b2a3b4", "0025388b"), ("serialno 7", " 7"), ("chassis no 12345", "12345"),
        ("Serial: QWERTY", "QWERTY"),
    ],
)  # fmt: skip
def test_capture_replaces_serial_numbers_in_every_spelling(words: str, secret: str) -> None:
    """Of a machine, a board or an adapter, with any sign between word and number, in notes as in names of products."""
    text = capture.write(Machine(notes=(f"Example R1 {words}, rev 2",), product=f"Example R1 {words}"))
    assert secret not in text
    assert text.count("Example R1") == 2
    assert "rev 2" in text


def test_capture_does_not_say_where_the_kernel_lies() -> None:
    """Root sees it in /proc/iomem; a file that others get has the memory around it only."""
    ranges = tuple(
        IomemRange(first, 0xFFFFF, name)
        for first, name in enumerate(
            ("System RAM", "Kernel code", "Kernel rodata", "Kernel data", "Kernel bss", "Kernelet")
        )
    )
    again = capture.read(capture.write(Machine(iomem=ranges)))
    assert again is not None
    assert [r.name for r in again.iomem] == ["System RAM", "Kernelet"]


def test_a_virtio_nic_is_known_by_name(tmp_path: Path) -> None:
    """/sys/class/net/eth0/device leads to virtio0, whose parent is the PCI function."""
    root = live(tmp_path, "eth1", "Example R1")
    (root / "sys/bus/pci/devices/0000:41:00.0/virtio0").mkdir()
    (root / "sys/class/net/eth0").mkdir()
    (root / "sys/class/net/eth0/device").symlink_to(root / "sys/bus/pci/devices/0000:41:00.0/virtio0")
    assert sources.read_live(root).nic_names == {"eth0": "0000:41:00.0", "eth1": "0000:41:00.0"}


def test_plain_words_are_no_serial_numbers() -> None:
    """What only looks like one stays: words that begin alike, checksums of runs, product names."""
    for words in (
        "Serial Attached SCSI controller", "Serial controller: ASPEED", "USB to Serial adapter", "Serial RapidIO",
    ):  # fmt: skip
        assert words in capture.write(Machine(notes=(words,)))
    for words in ("serialized copies", "no tag", "sn1 a", "run 0badc0de", "Tesla V100-SXM2-32GB", "asset tags are kept"):
        assert words in capture.write(Machine(notes=(words,)))


def test_capture_washes_who_measured_and_keeps_runs_apart() -> None:
    """A file may call a source or a run anything; two of them stay two, in `sources` and in each measurement alike."""
    runs = ("4c4c4544-0037-1052-8033-b7c04f564d32", "4c4c4544-0037-1052-8033-b7c04f564d33")
    sources_ = ("stopwatch S/N 7ABC123", "stopwatch S/N 7ABC124")
    told = tuple(
        Measurement(what="d2h_all", bytes_per_s=1e9 + order, source=source, run=run, gpu_index=0, at_once=8)
        for order, (source, run) in enumerate(zip(sources_, runs, strict=True))
    )
    text = capture.write(Machine(measurements=told, sources=sources_))
    assert not any(secret in text for secret in ("7ABC12", "4c4c4544"))
    again = capture.read(text)
    assert again is not None
    assert tuple(m.source for m in again.measurements) == again.sources
    assert len(set(again.sources)) == len({m.run for m in again.measurements}) == 2


@pytest.mark.parametrize(
    ("words", "secret"),
    [
        ("wwid naa.5002538f41234567", "5002538f"), ("naa.600508b1001c4d5b0123456789abcdef", "600508b1"),
        ("wwn-0x5002538f41234567", "5002538f"), ("nvme.144d-533643544e4730-53414d53554e47-00000001", "533643544e4730"),
        ("nqn.1994-11.com.samsung:nvme:PM9A3:S64GNN0T123456", "S64GNN0T"), ("iqn.2001-04.com.example:store", "store"),
        ("port 48b02d0300aabbcc", "48b02d03"), ("port 0002C90300A1B2C3", "0300A1B2"), ("0x0002c90300a1b2c3", "0300a1b2"),
        ("Serial No. CZJ", "CZJ"), ("Asset Tag: AB", "AB"), ("GPU-1f2e3d4c", "1f2e3d4c"),
        ("ip-10-0-3-17", "10-0-3-17"), ("ip-10-0-3-17.ec2.internal", "ec2"), ("gpu-worker-192-168-1-9", "192-168"),
        ("node017.rack3.local", "node017"), ("h.compute.amazonaws.com", "compute"),
    ],
)  # fmt: skip
def test_capture_replaces_names_of_other_machines_and_drives(words: str, secret: str) -> None:
    """World-wide names, bare GUIDs, and host names that are an IP address or end like those of a private network."""
    text = capture.write(Machine(notes=(f"Example R1 {words}, rev 2",), product=f"Example R1 {words}"))
    assert secret not in text
    assert text.count("Example R1") == 2
    assert "rev 2" in text


@pytest.mark.parametrize(
    "words",
    [
        "0000004012345000-0000007fffffffff : System RAM", "0x0000004012345000", "0x4012345000", "380000000000",
        "0000:41:00.0", "00000001:41:00.0", "0000:c0:01.1-41.0", "1030792151040 bytes", "1234567890123456 bytes",
        "VBIOS 96.00.89.00.01", "driver 535.104.05", "firmware 28.39.1002", "driver 31.0.15.4601", "fw 20.27.03.00",
        "PCI MMCONFIG 0000 [bus 00-ff]", "GPUs 0-1-2-3", "cpus-0-1-2-3", "GPU-direct", "node 0-3-1-2", "local memory",
        "/usr/local/cuda", "naa", "PNP0C02:00", "feedfacecafe",
    ],
)  # fmt: skip
def test_capture_keeps_what_the_machine_is(words: str) -> None:
    """Addresses of PCI and of memory, sizes, versions and lists of numbers are no identities."""
    assert words in capture.write(Machine(notes=(f"told: {words}",)))
