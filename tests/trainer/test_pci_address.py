"""Which device writes the images, as an address on the bus."""

from __future__ import annotations

from types import SimpleNamespace

import torch

from hinan.trainer.ports.device import _address, pci_address


def test_a_state_on_the_cpu_has_no_device() -> None:
    """Host memory, several accelerators, or one without a place on a PCI bus: not known, and nobody is asked."""
    cpu, first, second = torch.device("cpu"), torch.device("cuda:0"), torch.device("cuda:1")
    assert pci_address({cpu}) is pci_address(set()) is pci_address({cpu, first, second}) is None
    assert pci_address({cpu, torch.device("xpu:0")}) is None


def test_the_address_is_that_of_sysfs() -> None:
    """Hexadecimal, with the domain; a torch without these attributes gives nothing."""
    properties = SimpleNamespace(pci_domain_id=1, pci_bus_id=0xDC, pci_device_id=0)
    assert _address(properties) == "0001:dc:00.0"
    assert _address(SimpleNamespace(name="a device")) is None
