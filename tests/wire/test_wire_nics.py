"""Which NIC is a GPU's: RDMA before none, wide before narrow, and the verdict on GPUDirect RDMA that follows."""

import pytest
import wire_dumps as dumps

from hinan.wire.facts.model import Function
from hinan.wire.facts.nics import has_rdma
from hinan.wire.machine import sources
from hinan.wire.paths.hotpath import paths_of
from hinan.wire.paths.rail import nic_for_gpu


@pytest.mark.parametrize(
    ("class_code", "vendor", "device", "name", "told"),
    [
        (0x0207, 0x15B3, 0x1021, None, True),
        (0x0200, 0x15B3, 0x101B, None, True),
        (0x0208, 0x8086, 0x24F0, None, True),
        (0x0200, 0x1D0F, 0xEFA1, "Elastic Fabric Adapter (EFA)", True),
        (0x0200, 0x1D0F, 0xEC20, None, False),
        (0x0200, 0x8086, 0x1533, None, False),
        (0x0280, 0x8086, 0x2725, None, False),
        (0x0200, 0x14E4, 0x165F, None, False),
        (0x0200, 0x1AF4, 0x1041, None, False),
        (0x0200, 0x8086, 0x1592, None, None),  # E810: iWARP and RoCE, if the driver is there
        (0x0200, 0x14E4, 0x1750, None, None),
        (None, None, None, "Intel Corporation I210 Gigabit Network Connection", False),
        (None, None, None, "Mellanox Technologies MT2910 Family [ConnectX-7]", True),
        (None, None, None, "Example 40 Gigabit Ethernet Controller", None),
    ],
)
def test_rdma(class_code: int | None, vendor: int | None, device: int | None, name: str | None, told: bool | None) -> None:
    """By class, IDs and name; None where nobody knows."""
    nic = Function(address="0000:01:00.0", class_code=class_code, vendor_id=vendor, device_id=device, name=name)
    assert has_rdma(nic) is told


def nic(address: str, named: str, link: str, kind: str = "Ethernet controller [0200]") -> str:
    """A NIC on node 1, behind a root port of its own, as lspci -vvvnn prints it."""
    bus = address[:2]
    return (
        f"\n00:{bus}.0 PCI bridge [0604]: Example Root [8086:352a]\n\tBus: primary=00, secondary={bus}, subordinate={bus}\n"
        "\tCapabilities: [40] Express (v2) Root Port (Slot+), MSI 00\n"
        f"\n{address} {kind}: {named}\n\tNUMA node: 1\n"
        f"\tCapabilities: [60] Express (v2) Endpoint, MSI 00\n\t\tLnkCap:\tPort #0, {link}, ASPM L1\n"
    )


MANAGEMENT = nic("10:00.0", "Intel Corporation I210 [8086:1533]", "Speed 2.5GT/s, Width x1")
WIFI = nic("11:00.0", "Intel Corporation Wi-Fi [8086:2725]", "Speed 5GT/s, Width x1", "Network controller [0280]")
CX7 = nic("12:00.0", "Mellanox Technologies Example [15b3:1021]", "Speed 32GT/s, Width x16")
SECOND = nic("13:00.0", "Mellanox Technologies Example [15b3:1021]", "Speed 32GT/s, Width x16")
STORAGE = nic("14:00.0", "Mellanox Technologies Example [15b3:101f]", "Speed 16GT/s, Width x8")
E810 = nic("15:00.0", "Intel Corporation Example [8086:1592]", "Speed 16GT/s, Width x16")


@pytest.mark.parametrize(
    ("nics", "rails"),
    [
        ((MANAGEMENT, CX7), ["12:00.0", "12:00.0"]),
        ((WIFI, CX7, SECOND), ["12:00.0", "13:00.0"]),
        ((STORAGE, CX7), ["12:00.0", "12:00.0"]),
        ((E810, STORAGE), ["14:00.0", "14:00.0"]),
        ((MANAGEMENT, E810), ["15:00.0", "15:00.0"]),
        ((MANAGEMENT,), ["10:00.0", "10:00.0"]),
    ],
)
def test_the_rail_takes_the_best_of_what_is_near(nics: tuple[str, ...], rails: list[str]) -> None:
    """All on the GPUs' node: a management NIC takes no turn, and a narrow link none beside a wide one."""
    machine = sources.read_texts([dumps.LSPCI_VVV + "".join(nics)])
    assert [nic_for_gpu(machine, index).nic for index in (0, 1)] == rails


@pytest.mark.parametrize(
    ("near", "words"),
    [
        (MANAGEMENT, "no: 10:00.0 is a NIC without RDMA"),
        (WIFI, "no: 11:00.0 is a NIC without RDMA"),
        (E810, "whether 15:00.0 has RDMA is unknown"),
        (CX7, "possible, unproven: GPU and NIC meet only at the root complex; the driver was not asked"),
    ],
)
def test_the_verdict(near: str, words: str) -> None:
    """ "No" for what cannot, and what nobody knows is said to be unknown."""
    machine = sources.read_texts([dumps.LSPCI_VVV + near])
    found = paths_of(machine, machine.gpus[0]).rdma
    assert words in found
    assert ("RDMA is unknown" in found) == (near is E810)


def test_a_labelled_nic_that_cannot() -> None:
    """topo -m calls it PIX, the bus says what it is: the next label decides."""
    import msgspec

    from hinan.wire.machine.assemble import assemble

    machine = sources.read_texts([dumps.LSPCI_VVV + MANAGEMENT + CX7, dumps.TOPO])
    placed = msgspec.structs.replace(machine, nic_names={"mlx5_0": "0000:10:00.0", "mlx5_4": "0000:12:00.0"})
    assert nic_for_gpu(assemble(placed), 0).nic == "mlx5_4"
