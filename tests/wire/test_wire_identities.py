"""What leaves a node in a capture file: no identity, whatever a host or an interface is called; and it can be read."""

from pathlib import Path

import msgspec
import pytest
import wire_dumps as dumps

from hinan.core.errors import FormatError
from hinan.wire.facts.model import Function, Machine
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
