"""What a function is, from class, vendor, device and name: GPU, NVMe, NIC, bridge, or none of our business.

Owns:      the few tables of identifiers. Facts about products, not about any one machine.
Promises:  a BMC's display is not a GPU; an AMD accelerator of class 0380 or 1200 is one; NVSwitches and audio are not.
Relies on: names as the PCI ID database spells them, where a source prints names only (lspci without -n).
"""

from __future__ import annotations

import re

from hinan.wire.facts.model import Role

NVIDIA, AMD_GPU, AMD, INTEL, HABANA, MELLANOX, ASPEED = 0x10DE, 0x1002, 0x1022, 0x8086, 0x1DA3, 0x15B3, 0x1A03
VIRTIO = 0x1AF4
IBM = 0x1014
_VENDOR_NAMES = (
    (re.compile(r"^NVIDIA", re.I), NVIDIA),
    (re.compile(r"^Advanced Micro Devices.*\[AMD/ATI\]|^AMD/ATI|^ATI Technologies", re.I), AMD_GPU),
    (re.compile(r"^Advanced Micro Devices|^AMD\b", re.I), AMD),
    (re.compile(r"^Intel\b", re.I), INTEL),
    (re.compile(r"^Habana", re.I), HABANA),
    (re.compile(r"^Mellanox", re.I), MELLANOX),
    (re.compile(r"^ASPEED", re.I), ASPEED),
    (re.compile(r"^IBM\b", re.I), IBM),
    (re.compile(r"^Red Hat", re.I), 0x1AF4),
    (re.compile(r"^Microsoft", re.I), 0x1414),
    (re.compile(r"^VMware", re.I), 0x15AD),
)
_CLASS_NAMES = (
    (re.compile(r"^3D controller", re.I), 0x0302),
    (re.compile(r"^VGA compatible controller", re.I), 0x0300),
    (re.compile(r"^Display controller", re.I), 0x0380),
    (re.compile(r"^Processing accelerators", re.I), 0x1200),
    (re.compile(r"^Non-Volatile memory controller", re.I), 0x0108),
    (re.compile(r"^Ethernet controller", re.I), 0x0200),
    (re.compile(r"^Infiniband controller", re.I), 0x0207),
    (re.compile(r"^Network controller", re.I), 0x0280),
    (re.compile(r"^PCI bridge", re.I), 0x0604),
    (re.compile(r"^Host bridge", re.I), 0x0600),
    (re.compile(r"^Bridge", re.I), 0x0680),
    (re.compile(r"^RAID bus controller", re.I), 0x0104),
    (re.compile(r"^Serial Attached SCSI controller", re.I), 0x0107),
)
_DISPLAYS = (0x0300, 0x0302, 0x0380, 0x1200)
_ROLES = {0x0108: Role.NVME, 0x0604: Role.BRIDGE, 0x0609: Role.BRIDGE, 0x0C06: Role.NIC}
NVSWITCH_DEVICES = {0x1AC0, 0x1AC1, 0x1AC2, 0x1AF1, 0x22A3}
_AMD_BMC_DISPLAYS = {0x515E, 0x5159, 0x515F, 0x5969, 0x4752, 0x4750, 0x4754}
_VIRTUAL_VENDORS = {0x1B36: "QEMU", VIRTIO: "virtio", 0x1414: "Hyper-V", 0x15AD: "VMware", 0x5853: "Xen"}
_MI250X = 0x7408  # not 0x740c, which names the MI250 too: that is a PCIe card on other hosts
C2C_DEVICES = {0x2342, 0x2345, 0x2348, 0x2941, 0x2942, 0x31C2, 0x31C3, 0x2E12}
_C2C_NAME = re.compile(r"\bGH200\b|\bGB200\b|\bGB300\b|\bGB10\b|\bGrace\b(?! CPU)|DGX[ _]Spark|\bGH100 \[GH200", re.I)
_PCIE_NAME = re.compile(r"\bPCI-?E\b|\bNVL\b|\bRTX\b|\bL40S?\b|\bL4\b|\bA10G?\b", re.I)
_H_PCIE_CARDS = {0x2321, 0x2322, 0x2331, 0x233B}  # H100 NVL, H800 PCIe, H100 PCIe, H200 NVL
_GRACE_HOSTS = {0x22B2, 0x22B9}  # NVIDIA's root ports of Grace
_POWER_HOSTS = {0x03DC, 0x04C1}  # IBM's PHB3 and PHB4: root ports of POWER8 and POWER9
_POWER_NAME = re.compile(r"\bPOWER[89](?:NVL|P)?\b|\(PHB[34]\)", re.I)
_POWER_GPU_NAME = re.compile(r"\bG[PV]100|\b[PV]100\b", re.I)
_PCIE_CARDS = {0x15F7, 0x15F8, 0x1DB4, 0x1DB6}  # P100 and V100 as PCIe cards: no NVLink to a CPU
GPU_NAMES = {
    (NVIDIA, 0x15F9): "P100 SXM2 16GB",
    (NVIDIA, 0x1DB1): "V100 SXM2 16GB",
    (NVIDIA, 0x1DB5): "V100 SXM2 32GB",
    (NVIDIA, 0x1DB8): "V100 SXM3 32GB",
    (NVIDIA, 0x20B0): "A100 SXM4 40GB",
    (NVIDIA, 0x20B2): "A100 SXM4 80GB",
    (NVIDIA, 0x2236): "A10",
    (NVIDIA, 0x2330): "H100 SXM5 80GB",
    (NVIDIA, 0x2335): "H200 SXM 141GB",
    (NVIDIA, 0x2901): "B200",
    (NVIDIA, 0x2909): "B200",
    (AMD_GPU, 0x738C): "MI100",
    (AMD_GPU, 0x740C): "MI250X",
    (AMD_GPU, 0x740F): "MI210",
    (AMD_GPU, 0x74A1): "MI300X",
}


def vendor_of_name(name: str) -> int | None:
    """Vendor ID of a PCI-database name, if it is one we tell apart."""
    return next((vendor for pattern, vendor in _VENDOR_NAMES if pattern.search(name)), None)


def class_of_name(name: str) -> int | None:
    """Class code of the class name that lspci prints first, if it is one we tell apart."""
    return next((code for pattern, code in _CLASS_NAMES if pattern.search(name)), None)


def _display_is_gpu(code: int, vendor: int | None, device: int | None, bus: int | None) -> bool:
    if vendor == NVIDIA:
        return True
    if vendor == AMD_GPU:
        return code != 0x0300 or (device is not None and device >= 0x6600 and device not in _AMD_BMC_DISPLAYS)
    if vendor in (INTEL, HABANA):
        return code == 0x1200 or (bus is not None and bus != 0)
    return vendor is None and code in (0x0302, 0x0380, 0x1200)


def role_of(
    class_code: int | None, vendor: int | None, device: int | None, name: str | None, *, bus: int | None = None
) -> Role:
    """The role of a function; OTHER when nothing says more.

    Args:
        class_code: 16 bits (0x0302), None where a source prints names only (`lspci -tv`).
        bus: bus number; an Intel display on bus 0 is inside the CPU and no target of training.
    """
    if vendor == NVIDIA and device in NVSWITCH_DEVICES:
        return Role.NVSWITCH
    if class_code is None:
        return _role_of_name(name or "", vendor)
    if class_code in _DISPLAYS and _display_is_gpu(class_code, vendor, device, bus):
        return Role.GPU
    if class_code == 0x0680 and vendor == NVIDIA:
        return Role.NVSWITCH
    return Role.NIC if class_code >> 8 == 0x02 else _ROLES.get(class_code, Role.OTHER)


_NAMES = (
    (re.compile(r"audio|usb|ucsi|type-c|smbus|\bbridge\b|raid", re.I), Role.OTHER),
    (re.compile(r"NVSwitch", re.I), Role.NVSWITCH),
    (re.compile(r"nvme|non-volatile|\bSSD\b", re.I), Role.NVME),
    (re.compile(r"ConnectX|ethernet|infiniband|BlueField|\bEFA\b|network", re.I), Role.NIC),
)
_AMD_NAMES = re.compile(r"instinct|\bMI\d{2,3}|aqua vanjaram|aldebaran|arcturus", re.I)


def _role_of_name(name: str, vendor: int | None) -> Role:
    """For `lspci -tv`, which prints no class: by words; what NVIDIA makes and is none of those is a GPU."""
    role = next((role for pattern, role in _NAMES if pattern.search(name)), None)
    if role is not None:
        return role
    if vendor == NVIDIA:
        device = re.search(r"\bDevice ([0-9a-f]{4})\b", name)
        return Role.NVSWITCH if device and int(device[1], 16) in NVSWITCH_DEVICES else Role.GPU
    return Role.GPU if vendor == AMD_GPU and _AMD_NAMES.search(name) else Role.OTHER


def gpu_name(vendor: int | None, device: int | None) -> str | None:
    """The product name of a GPU's device ID, if we know it."""
    return GPU_NAMES.get((vendor, device)) if vendor is not None and device is not None else None


def coherent_evidence(vendor: int | None, device: int | None, *names: str | None) -> str | None:
    """Why this GPU reaches RAM by NVLink-C2C, or None: PCIe arithmetic says nothing about it."""
    if vendor in (NVIDIA, None) and device in C2C_DEVICES:
        return f"NVLink-C2C (device {device:04x})"
    named = next((name for name in names if name and _C2C_NAME.search(name)), None)
    return f"NVLink-C2C ({named.strip()})" if named else None


def is_plain_pcie(vendor: int | None, device: int | None, *names: str | None) -> bool:
    """Is this a GPU without NVLink-C2C, whatever host it is in: a PCIe card, or a module that is known to have none?"""
    known = vendor == NVIDIA and (device in _H_PCIE_CARDS or (vendor, device) in GPU_NAMES)
    return known or any(name and _PCIE_NAME.search(name) and not _C2C_NAME.search(name) for name in names)


def fabric_evidence(vendor: int | None, device: int | None) -> str | None:
    """Why this GPU reaches RAM by AMD's Infinity Fabric, or None: MI250X, which is sold with such a host only.

    Frontier's user guide gives 36 GB/s each way, where its PCIe link would carry 28.8.
    """
    return f"Infinity Fabric (device {device:04x})" if vendor == AMD_GPU and device == _MI250X else None


def is_grace_host(vendor: int | None, device: int | None) -> bool:
    """Is this a root port of NVIDIA Grace?"""
    return vendor == NVIDIA and device in _GRACE_HOSTS


def is_power_host(vendor: int | None, device: int | None, name: str | None) -> bool:
    """Is this a root port of IBM POWER8 or POWER9, by ID or by name (also: is this the name of such a CPU)?"""
    return (vendor == IBM and device in _POWER_HOSTS) or bool(name and _POWER_NAME.search(name))


def has_nvlink_to_power(vendor: int | None, device: int | None, name: str | None) -> bool:
    """Is this GPU one that POWER servers attach by NVLink: P100 or V100, not as a PCIe card?"""
    if vendor not in (NVIDIA, None) or device in _PCIE_CARDS or re.search(r"\bPCI-?E\b", name or "", re.I):
        return False
    family = device is not None and (0x15F0 <= device <= 0x15FF or 0x1DB0 <= device <= 0x1DBF)
    return family or bool(name and _POWER_GPU_NAME.search(name))


def virtual_vendor(vendor: int | None) -> str | None:
    """The hypervisor that only its guests see on the bus; virtio also where a DPU shows it."""
    return _VIRTUAL_VENDORS.get(vendor) if vendor is not None else None
