"""`lspci -vvv` of made-up trees, one line per function: for cases in which only the tree and its links matter."""

from __future__ import annotations

_KINDS = {
    "root": ("PCI bridge [0604]: Example Root Port [8086:352a]", "Root Port (Slot+)"),
    "up": ("PCI bridge [0604]: Example Switch [1000:c030]", "Upstream Port"),
    "down": ("PCI bridge [0604]: Example Switch [1000:c030]", "Downstream Port (Slot+)"),
    "gpu": ("3D controller [0302]: NVIDIA Corporation GH100 [H100 SXM5 80GB] [10de:2330] (rev a1)", "Endpoint"),
}


def lspci(*rows: str) -> str:
    """Rows such as "00:01.0 root 01-09 32 16": address, kind, buses behind it, GT/s and lanes (0: not told)."""
    return "\n".join(map(_block, rows))


def _block(row: str) -> str:
    address, kind, *rest = row.split()
    buses = rest.pop(0).split("-") if kind != "gpu" else None
    speed, width = rest or ("32", "16")
    name, port = _KINDS[kind]
    lines = [f"{address} {name}", "\tNUMA node: 0"]
    if buses:
        lines.append(f"\tBus: primary={address[-7:-5]}, secondary={buses[0]}, subordinate={buses[1]}, sec-latency=0")
    lines += [f"\tCapabilities: [68] Express (v2) {port}, MSI 00", "\t\tDevCtl:\tCorrErr+"]
    lines.append("\t\t\tMaxPayload 256 bytes, MaxReadReq 512 bytes")
    if width != "0":
        lines.append(f"\t\tLnkCap:\tPort #0, Speed {speed}GT/s, Width x{width}, ASPM not supported")
    return "\n".join(lines) + "\n"


NESTED = (
    "00:01.0 root 01-09", "01:00.0 up 02-09", "02:00.0 down 03-03", "03:00.0 gpu", "02:01.0 down 04-09", "04:00.0 up 05-09",
    "05:00.0 down 06-06", "06:00.0 gpu", "05:01.0 down 07-07", "07:00.0 gpu",
)  # fmt: skip
"""Three GPUs below one uplink, two of them behind a switch of their own."""

TWO = ("00:01.0 root 01-04", "01:00.0 up 02-04", "02:00.0 down 03-03", "03:00.0 gpu", "02:01.0 down 04-04", "04:00.0 gpu")
"""Two GPUs below one switch."""
