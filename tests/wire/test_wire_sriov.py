"""SR-IOV: a VF's owner is arithmetic, its DevCtl is reserved, its GPU is no second GPU, and its BARs are claimed."""

import pytest
import wire_dumps as dumps

from hinan.wire.checks.case import Question
from hinan.wire.facts.model import Machine, Role
from hinan.wire.machine import sources
from hinan.wire.paths.decode import route_write
from hinan.wire.paths.hotpath import paths_of
from hinan.wire.paths.peer import same_switch
from hinan.wire.show.report import report_gpu

CAPABILITY = """\
\tCapabilities: [180 v1] Single Root I/O Virtualization (SR-IOV)
\t\tIOVCap:\tMigration- 10BitTagReq+ Interrupt Message Number: 000
\t\tIOVCtl:\tEnable{on} Migration- Interrupt- MSE+ ARIHierarchy+
\t\tInitial VFs: 16, Total VFs: 16, Number of VFs: {count}, Function Dependency Link: 00
\t\tVF offset: {offset}, stride: {stride}, Device ID: 20b2
\t\tSupported Page Size: 000007ff, System Page Size: 00000001
\t\tRegion 0: Memory at 0000390000000000 (64-bit, prefetchable)
\t\tVF Migration: offset: 00000000, BIR: 0
"""
VF = """
{address} 3D controller [0302]: NVIDIA Corporation GA100 [Example A100] [10de:20b2] (rev a1)
\tIOMMU group: 40
\tCapabilities: [78] Express (v2) Endpoint, MSI 00
\t\tDevCtl:\tCorrErr+
\t\t\tMaxPayload 128 bytes, MaxReadReq 128 bytes
\t\tLnkCap:\tPort #0, Speed 16GT/s, Width x16, ASPM not supported
\t\tLnkSta:\tSpeed unknown, Width x0
"""


def machine(
    *, on: str = "+", count: int = 2, offset: int = 4, stride: int = 1, vfs: tuple[str, ...] = ("44:00.4", "44:00.5")
) -> Machine:
    """dumps.LSPCI_VVV whose second GPU, 44:00.0, has SR-IOV, and these VFs."""
    before, after = dumps.LSPCI_VVV.split("\n45:00.0", 1)
    told = CAPABILITY.format(on=on, count=count, offset=offset, stride=stride)
    return sources.read_texts([f"{before}{told}\n45:00.0{after}" + "".join(VF.format(address=vf) for vf in vfs)])


def test_the_physical_function_is_computed() -> None:
    """VF n is at offset + (n - 1) x stride from it, across bus numbers; what lies elsewhere is no VF of it."""
    found = machine(vfs=("44:00.4", "44:00.5", "44:00.6"))
    owners = [found.functions[f"0000:44:00.{n}"].physical_function for n in (4, 5, 6)]
    assert owners == ["0000:44:00.0", "0000:44:00.0", None]
    far = machine(offset=0x100 - 2, stride=3, vfs=("44:1f.6", "45:00.1"))
    assert [far.functions[a].physical_function for a in ("0000:44:1f.6", "0000:45:00.1")] == ["0000:44:00.0"] * 2
    rows = paths_of(found, found.gpus[0]).virtual_functions
    assert rows[0] == "VF 44:00.4 -> PF 44:00.0 -> IOMMU group 40: isolates 3 functions together"


@pytest.mark.parametrize("off", [{"on": "-"}, {"count": 0}])
def test_what_is_switched_off_owns_nothing(off: dict[str, object]) -> None:
    """Without Enable, or with no VFs, a function at that address is one of its own."""
    found = machine(**off)  # type: ignore[arg-type]
    assert found.functions["0000:44:00.4"].physical_function is None
    assert route_write(found, "0000:43:00.0", 0x390000000000).destination == "nowhere"


def test_a_vf_is_no_gpu_that_evacuates() -> None:
    """Two GPUs share the uplink, not four; a VF's 128 bytes of payload are not in use anywhere."""
    found = machine()
    assert [gpu.address for gpu in found.gpus] == ["0000:43:00.0", "0000:44:00.0"]
    finding = next(f for f in report_gpu(found, found.gpus[1], Question()).findings if f.code == "shared-uplink")
    assert finding.evidence.startswith("2 GPUs")
    vf = found.functions["0000:44:00.4"]
    assert (vf.mps_bytes, vf.mrrs_bytes) == (256, 512)
    (drive,) = [f for f in found.functions.values() if f.role is Role.NVME]
    below = {f.address for f in same_switch(found, drive.address, (Role.GPU,))}
    assert below == {"0000:43:00.0", "0000:44:00.0"}


def test_a_vf_bar_is_claimed() -> None:
    """Where it begins it is known; how long it is, lspci does not say: then nothing is called lost."""
    found = machine()
    route = route_write(found, "0000:43:00.0", 0x390000000000)
    assert route.destination == "VF BAR 0 of 44:00.0"
    assert [s.action for s in route.steps] == ["up", "up", "turn", "down", "claim"]
    assert route_write(found, "0000:43:00.0", 0x390000001FFF).destination == "VF BAR 0 of 44:00.0"  # a page each
    beyond = route_write(found, "0000:43:00.0", 0x390000002000)
    assert beyond.destination == "unknown"
    assert "44:00.0" in beyond.steps[-1].why
    assert route_write(found, "0000:43:00.0", 0x38FF00000000).destination == "nowhere"


def test_a_vf_without_its_owner_has_no_payload() -> None:
    """A VM sees the VF alone: the fields of its DevCtl are reserved, and 128 bytes are not reported."""
    alone = VF.format(address="00:05.0").replace("GA100 [Example A100]", "GA100 [Example A100] Virtual Function")
    found = sources.read_texts([alone])
    (vf,) = found.functions.values()
    assert (vf.mps_bytes, vf.mps_cap_bytes, vf.mrrs_bytes) == (None, None, None)
    answer = report_gpu(found, found.gpus[0], Question())
    assert (answer.mps_bytes, answer.assumed_mps_bytes, answer.labels["mps"]) == (None, 256, "unknown")
    nic = alone.replace("3D controller [0302]", "Ethernet controller [0200]").replace("[10de:20b2]", "[15b3:101e]")
    unnamed = nic.replace(" Virtual Function", "")
    assert [f.mps_bytes for f in sources.read_texts([unnamed]).functions.values()] == [None]
    plain = sources.read_texts([VF.format(address="00:05.0")])
    assert [f.mps_bytes for f in plain.functions.values()] == [128]
