"""The terminal and the page show the same figures, and the same words for the IOMMU."""

from __future__ import annotations

import re

import wire_dumps as dumps
from test_wire_ends import LOST
from test_wire_shares import SHARED
from wire_machines import machine, report

from hinan.wire.facts.model import Machine
from hinan.wire.show.answer import Report
from hinan.wire.show.figures import figures_of
from hinan.wire.show.picture import html, svg
from hinan.wire.show.render import gigabytes, render, seconds

POWER = dumps.HWLOC.replace(
    "</topology>",
    '<distances2hetero nbobjs="2" kind="9" name="NVLinkBandwidth"><indexes length="20">OSDev:20 Package:2</indexes>'
    '<u64values length="20">0 40000 40000 0</u64values></distances2hetero></topology>',
)


def answers() -> list[tuple[Machine, Report]]:
    """Lanes that are lost, a link that a source reports, and an ordinary server."""
    found = [machine(LOST), machine(POWER), machine(dumps.LSPCI_VVV, dumps.NVBANDWIDTH)]
    return [(each, report(each, state_bytes=10**10)) for each in found]


def test_the_page_has_every_figure_of_the_terminal() -> None:
    """Rate, label and seconds of each row."""
    for found, answer in answers():
        shown, page = render(answer, found), html(answer)
        table = re.findall("<tr><td>(.*?)</td><td>(.*?)</td><td class=n>(.*?)</td><td class=n>(.*?)</td></tr>", page)
        assert len(table) == len(figures_of(answer))
        for figure, row in zip(figures_of(answer), table, strict=True):
            assert row[2:] == (gigabytes(figure.bytes_per_s), seconds(figure.duration_s) or "unknown")
            assert any(line.startswith(f"{figure.name:<12}{figure.label:<9} {row[2]:>11}") for line in shown)


def test_what_was_lost_and_what_is_reported() -> None:
    """By capability with its seconds, and the bandwidth that POWER's firmware tells."""
    (_, lost), (_, power), _ = answers()
    assert "by capability, if nothing were lost</td><td>ceiling</td><td class=n>28.8 GB/s</td><td class=n>0.35 s" in html(
        lost
    )
    assert "to RAM, reported</td><td>reported</td><td class=n>40.0 GB/s" in html(power)


def test_the_iommu_has_the_same_words() -> None:
    """Groups exist and no source tells the mode: it is on."""
    found = machine(dumps.LSPCI_VVV)
    answer = report(found)
    assert "  | IOMMU: on (groups exist), mode unknown" in render(answer, found)
    assert "IOMMU on (groups exist), mode unknown" in svg(answer)
    assert "IOMMU on (groups exist), mode unknown" in html(answer)


def test_one_gpu_is_not_all_of_them() -> None:
    """Neither the terminal nor the page has a row for all GPUs of one."""
    one = machine(
        SHARED.replace('class="0x030200" link_speed="8.0 GT/s PCIe" link_width="16"><gpu dev="1"/>', 'class="0x020000">')
    )
    assert len(one.gpus) == 1
    assert not any("1 GPUs" in text for text in (html(report(one)), *render(report(one), one)))
