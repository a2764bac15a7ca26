"""All at once: who is known to cross a link takes part of it, whether or not its own rate is known."""

import msgspec
import pytest
import wire_dumps as dumps
from wire_machines import GB, machine, near, report
from wire_machines import reports as reports_of

from hinan.wire.show.rates import rate_of
from hinan.wire.show.render import render

SHARED = """\
<system version="1"><cpu numaid="0"><pci busid="0000:10:01.0" class="0x060400" link_speed="8.0 GT/s PCIe" link_width="16">
<pci busid="0000:11:00.0" class="0x030200" link_speed="8.0 GT/s PCIe" link_width="16"><gpu dev="0"/></pci>
<pci busid="0000:12:00.0" class="0x030200" link_speed="8.0 GT/s PCIe" link_width="16"><gpu dev="1"/></pci>
</pci></cpu></system>
"""
NO_WIDTH = SHARED.replace('link_width="16"><gpu dev="0"', 'link_width="0"><gpu dev="0"')
NO_PORT = "\n\n".join(block for block in dumps.LSPCI_VVV.split("\n\n") if not block.startswith("42:00.0"))
DISPUTED = next(block for block in dumps.LSPCI_VVV.split("\n\n") if block.startswith("43:00.0")) + "\n"
DISPUTED = DISPUTED.replace("LnkCap:\tPort #0, Speed 16GT/s, Width x16", "LnkCap:\tPort #0, Speed 16GT/s, Width x8")


@pytest.mark.parametrize(
    ("texts", "half_gb"), [((NO_WIDTH,), 7.202), ((NO_PORT,), 14.404), ((dumps.LSPCI_VVV, DISPUTED), 14.404)]
)
def test_a_gpu_of_unknown_rate_takes_its_part(texts: tuple[str, ...], half_gb: float) -> None:
    """No width, no block of the port above, or two words on its link: its sibling gets half, the planner and check too."""
    unknown, known = reports_of(machine(*texts))
    assert unknown.all_ranks_ceiling_bytes_per_s is None
    assert near(known.all_ranks_ceiling_bytes_per_s, half_gb)
    assert known.ceiling_bytes_per_s == pytest.approx(2 * half_gb * GB, rel=1e-3)
    rate = rate_of(known)
    assert rate is not None
    assert near(rate.bytes_per_s, half_gb)
    (finding,) = [f for f in known.findings if f.code == "shared-uplink"]
    assert finding.evidence.startswith("2 GPUs evacuate through")


def test_a_gpu_off_the_bus_takes_nothing() -> None:
    """One of two has fallen off: the other one evacuates alone, shares with nobody, and no sentence speaks of two."""
    gone = dumps.LSPCI_VVV.replace("[Example A100] [10de:20b2] (rev a1)", "[Example A100] [10de:20b2] (rev ff)", 1)
    found = machine(gone)
    answer = report(found, 1)
    assert (answer.gpus, near(answer.all_ranks_ceiling_bytes_per_s, 28.807)) == (1, True)
    assert "43:00.0" not in {other for hop in answer.hops for other in hop.shared_with}
    rate = rate_of(answer)
    assert rate is not None
    assert not any("all 2 GPUs" in line for line in [rate.source, *render(answer, found)])


def test_a_gpu_on_another_link_takes_nothing() -> None:
    """One of two reaches RAM by a link of its own: the card beside it has the uplink to itself, and shares with nobody."""
    both = machine(dumps.LSPCI_VVV)
    assert near(report(both).all_ranks_ceiling_bytes_per_s, 14.404)
    function = msgspec.structs.replace(both.functions["0000:44:00.0"], coherent_link="NVLink between GPU and CPU (a test)")
    found = msgspec.structs.replace(both, functions={**both.functions, function.address: function})
    answer = report(found)
    assert near(answer.all_ranks_ceiling_bytes_per_s, 28.807)
    assert "44:00.0" not in {other for hop in answer.hops for other in hop.shared_with}
    assert not any(finding.code == "shared-uplink" for finding in answer.findings)
