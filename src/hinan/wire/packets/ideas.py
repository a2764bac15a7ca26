"""IP and PCIe side by side: the six ideas a network engineer already has, and what PCIe makes of them.

Owns:      the table that `hinan wire explain` prints and docs/wire.md shows.
Promises:  it says what PCIe does have (headers, credits, link-level replay), not only what it lacks.
"""

from __future__ import annotations

import textwrap

IDEAS = (
    (
        "destination",
        "an IP address names an interface; the payload says what it is for",
        "a physical (bus) address names the very byte that is to be written; there is no host and no port",
    ),
    (
        "unit",
        "a packet of up to the MTU, usually 1500 or 9000 bytes",
        "a TLP of up to the MPS, usually 256 bytes; never across a 4 KiB page",
    ),
    (
        "forwarding",
        "longest prefix in a routing table; the next hop may change",
        "the one port whose window holds the address (positive decode); what no window holds goes up to the root",
    ),
    (
        "NAT",
        "a router rewrites addresses by a table it keeps",
        "the IOMMU rewrites IOVA to physical by page tables, per sender (requester ID); in pass-through it does not",
    ),
    (
        "delivery",
        "best effort; TCP end to end counts, acknowledges and sends again",
        "lossless per link: credits before sending, LCRC, ACK/NAK and replay per link; a posted write gets no answer "
        "end to end, so the semaphore written after the data says \"done\"",
    ),
    (
        "protocol load",
        "Ethernet + IP + TCP: 78 of 1538 bytes on the wire at MTU 1500 (5.1 %)",
        "24 of 280 bytes at MPS 256 (8.6 %): 16 header, 8 framing, sequence number and LCRC",
    ),
)  # fmt: skip


def table(width: int = 100) -> list[str]:
    """The six rows as text of at most `width` columns."""
    first = 15
    each = (width - first - 4) // 2
    lines = [f"{'idea':<{first}}{'IP':<{each + 2}}PCIe", "-" * width]
    for idea, ip, pcie in IDEAS:
        left, right = textwrap.wrap(ip, each), textwrap.wrap(pcie, each)
        for row in range(max(len(left), len(right))):
            cells = (left[row] if row < len(left) else "", right[row] if row < len(right) else "")
            lines.append(f"{idea if row == 0 else '':<{first}}{cells[0]:<{each + 2}}{cells[1]}".rstrip())
    return lines
