"""Machines of many GPUs, and files that nest deeply: work grows with what is there, not with its square or cube."""

from __future__ import annotations

import time

import pytest
from wire_machines import machine, reports

from hinan.wire.paths import rail
from hinan.wire.show.answer import Report

SWITCHES, GPUS_EACH = 12, 2


def _block(address: str, what: str, *more: str) -> str:
    link = "\t\tLnkCap:\tPort #1, Speed 16GT/s, Width x16, ASPM not supported\n"
    return f"{address} {what}\n" + "".join(f"\t{line}\n" for line in more) + link + "\n"


def _bridge(address: str, port: str, secondary: int, subordinate: int) -> str:
    primary = address[5:7]
    buses = f"Bus: primary={primary}, secondary={secondary:02x}, subordinate={subordinate:02x}, sec-latency=0"
    return _block(
        address, "PCI bridge [0604]: Example [1000:c010]", buses, f"Capabilities: [40] Express (v2) {port}, MSI 00"
    )


def many_gpus() -> str:
    """Switches in domains of their own, each with two GPUs and two NICs."""
    text = ""
    for switch in range(SWITCHES):
        text += _bridge(f"{switch:04x}:00:01.0", "Root Port (Slot-)", 1, 6)
        text += _bridge(f"{switch:04x}:01:00.0", "Upstream Port", 2, 6)
        for port in range(2 * GPUS_EACH):
            text += _bridge(f"{switch:04x}:02:{port:02x}.0", "Downstream Port (Slot+)", 3 + port, 3 + port)
            what = "3D controller [0302]: NVIDIA Corporation Example [10de:20b2]" if port < GPUS_EACH else "Infiniband controller [0207]: Mellanox Technologies Example [15b3:1021]"  # fmt: skip  # noqa: E501
            text += _block(f"{switch:04x}:{3 + port:02x}:00.0", what, "Capabilities: [60] Express (v2) Endpoint, MSI 00")
    return text


def test_each_pair_of_gpu_and_nic_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Reports of all GPUs of a machine compare every GPU with every NIC once, not once for each report."""
    looked = 0
    nearness = rail.nearness

    def counted(*arguments: object) -> object:
        nonlocal looked
        looked += 1
        return nearness(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(rail, "nearness", counted)
    found: list[Report] = reports(machine(many_gpus()))
    gpus = nics = SWITCHES * GPUS_EACH
    assert len(found) == gpus
    assert looked <= gpus * nics
    assert all(answer.all_ranks_ceiling_bytes_per_s == pytest.approx(14.404e9, rel=1e-4) for answer in found)


def test_a_deep_file_takes_seconds() -> None:
    """6,000 bridges above one another: linear work is a few seconds, where its square was many."""
    names = [f"{n >> 16:04x}:{n >> 8 & 0xFF:02x}:{n >> 3 & 0x1F:02x}.{n & 7}" for n in range(6000)]
    link = 'link_speed="16.0 GT/s PCIe" link_width="16"'
    text = '<system version="1"><cpu numaid="0">'
    text += "".join(f'<pci busid="{name}" class="0x060400" {link}>' for name in names)
    text += f'<pci busid="9999:00:00.0" class="0x030200" vendor="0x10de" device="0x20b2" {link}><gpu dev="0"/></pci>'
    text += "</pci>" * len(names) + "</cpu></system>"
    began = time.process_time()
    (answer,) = reports(machine(text))
    assert time.process_time() - began < 12.0
    assert len(answer.hops) == 6001
