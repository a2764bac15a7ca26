"""What carries a write to its address: the sender's own IOMMU mode, what it translates, and links that are no PCIe."""

import json
from pathlib import Path

import msgspec
import pytest
import wire_dumps as dumps
from test_wire_coherent import GRACE
from wire_machines import machine as machine_of
from wire_machines import report

from hinan.wire.facts.model import IomemRange, IommuMode, Machine, Role
from hinan.wire.machine import capture, sample, sources
from hinan.wire.show import picture
from hinan.wire.show.explain import Explanation, Told, explain
from hinan.wire.show.explain_words import lines

ADDRESS = 0x4012345000
GIVEN = Told(words="address given", label="illustration")
IDENTITY, DMA = "identity", "DMA-FQ"


def with_mode(machine: Machine, mode: IommuMode | None, *roles: Role) -> Machine:
    """The machine with every group of these roles (all, if none is named) in one mode, through a capture file."""
    changed = {
        a: msgspec.structs.replace(f, iommu_mode=mode if not roles or f.role in roles else f.iommu_mode)
        for a, f in machine.functions.items()
    }
    whole = machine.iommu_mode if roles and Role.GPU not in roles else mode
    told = capture.write(msgspec.structs.replace(machine, functions=changed, iommu_mode=whole))
    return sources.read_texts([told])


def explained(machine: Machine, device: str | None = None, address: int = ADDRESS) -> Explanation:
    """256 bytes written by GPU 0, or by the device."""
    return explain(machine, machine.gpus[0], address, size_bytes=256, told=GIVEN, device=device)


@pytest.fixture
def two_groups(tmp_path: Path) -> Path:
    """A /sys whose GPU 03:00.0 is in a group of one mode and whose drive 05:00.0 in one of another."""
    devices = tmp_path / "sys/bus/pci/devices"
    devices.mkdir(parents=True)
    for number, address, code, mode in ((1, "0000:03:00.0", "0x030200", IDENTITY), (7, "0000:05:00.0", "0x010802", DMA)):
        real = tmp_path / "sys/devices/pci0000:00" / address
        group = tmp_path / f"sys/kernel/iommu_groups/{number}"
        real.mkdir(parents=True)
        group.mkdir(parents=True)
        (group / "type").write_text(f"{mode}\n")
        for name, value in (("class", code), ("vendor", "0x10de"), ("device", "0x2330")):
            (real / name).write_text(f"{value}\n")
        (real / "iommu_group").symlink_to(group)
        (devices / address).symlink_to(real)
    return tmp_path


def test_the_senders_own_group_counts(two_groups: Path) -> None:
    """A GPU that is passed through says nothing of the drive beside it, which is translated."""
    machine = sources.read_live(two_groups)
    assert (explained(machine).iommu, explained(machine, "0000:05:00.0").iommu) == ("passthrough", "translated")
    shown = "\n".join(lines(explained(machine, "0000:05:00.0")))
    assert "another number: the IOMMU translates" in shown
    assert "4. IOMMU: translated" in shown
    assert "Here there is no walk" not in shown


def test_the_gpus_mode_is_not_that_of_a_drive_that_tells_none(two_groups: Path) -> None:
    """Without the type of its group the drive's mode is unknown, whatever the GPU's is; off is off for all."""
    (two_groups / "sys/kernel/iommu_groups/7/type").unlink()
    machine = sources.read_live(two_groups)
    found = explained(machine, "0000:05:00.0")
    assert (found.iommu, found.labels["iommu"]) == (None, "unknown")
    assert "4. IOMMU: on (groups exist), mode unknown" in "\n".join(lines(found))
    bare = msgspec.structs.replace(machine_of(dumps.LSPCI_VVV), iommu_mode=IommuMode.OFF)
    assert explained(bare, "0000:45:00.0").iommu == "off"


def test_a_translated_address_has_no_node() -> None:
    """What the page tables of the IOMMU say, no source tells: the way ends at them, and all before is an illustration."""
    found = explained(with_mode(sample.machine(), IommuMode.TRANSLATED))
    assert found.route is not None
    assert (found.route.destination, found.route.node) == ("unknown", None)
    assert found.labels["route"] == found.labels["packets"] == "illustration"
    shown = "\n".join(lines(found))
    assert "page tables decide" in shown
    assert "node 0" not in shown
    assert shown.count("as if this number were the DMA address") == 2  # the way and the packets
    assert max(map(len, shown.splitlines())) <= 100
    plain = explained(sample.machine())
    assert plain.route is not None
    assert (plain.route.node, plain.labels["route"]) == (0, "reported")


def test_below_the_root_nothing_translates() -> None:
    """A switch compares the number on the bus; interrupt messages are none; an IOMMU of unknown mode leaves a doubt."""
    translated, untold = (with_mode(sample.machine(), mode) for mode in (IommuMode.TRANSLATED, None))
    turned, interrupt = (explained(translated, address=address).route for address in (0x90000000, 0xFEE00000))
    assert turned is not None
    assert turned.destination == "BAR 0 of 13:00.0"
    assert interrupt is not None
    assert all(step.action != "walk" for step in interrupt.steps)
    doubtful = explained(untold).route
    assert doubtful is not None
    assert "unless the IOMMU translates" in doubtful.steps[-1].why


def coherent(machine: Machine, evidence: str, **changes: str) -> Machine:
    """The machine with GPUs that reach RAM by a link of their own."""
    body = json.loads(capture.write(machine))
    body["machine"] |= {"coherent_link": evidence, **changes}
    for function in body["machine"]["functions"].values():
        if function.get("role") == "gpu":
            function["coherent_link"] = evidence
    return sources.read_texts([json.dumps(body)])


def test_a_coherent_gpu_crosses_no_bridge() -> None:
    """Its copies go over NVLink: no port compares their address, no TLP carries them; a drive's still do."""
    machine = coherent(sample.machine(), "NVLink between GPU and CPU (a test)")
    found = explained(machine)
    shown = "\n".join(lines(found))
    assert (found.route, found.packets, found.coherent_link) == (None, (), "NVLink between GPU and CPU (a test)")
    assert shown.count("NVLink between GPU and CPU (a test)") == 1
    assert "memory write TLP" not in shown
    drive = explained(machine, "0000:13:00.0")
    assert drive.route is not None
    assert drive.packets


@pytest.mark.parametrize(
    "changes", [{"cpu_model": "POWER8NVL, altivec supported"}, {"cpu_arch": "ppc64le"}, {"cpu_arch": "arm64"}]
)
def test_the_walk_is_that_of_x86(changes: dict[str, str]) -> None:
    """Root and context entries are VT-d's: of a CPU that has other tables no walk is shown."""
    machine = coherent(sample.machine(), "NVLink between GPU and CPU (a test)", **changes)
    found = explained(machine, "0000:13:00.0")
    assert found.walks == ()
    assert "root[" not in "\n".join(lines(found))
    assert explained(sample.machine()).walks


def test_a_sender_that_is_a_gpu_is_that_gpu() -> None:
    """Named by --device or by --gpu, its copies go over the same link; a drive beside it has none."""
    machine = coherent(sample.machine(), "NVLink between GPU and CPU (a test)")
    for gpu in machine.gpus[:2]:
        found = explain(machine, machine.gpus[0], ADDRESS, size_bytes=256, told=GIVEN, device=gpu.address)
        assert (found.requester, found.coherent_link) == (gpu.address, "NVLink between GPU and CPU (a test)")
        assert (found.route, found.packets) == (None, ())


@pytest.mark.parametrize("gpu", ["GH100 [GH200 120GB / 480GB] [10de:2342]", "GH100 [H100 PCIe] [10de:2331]"])
def test_lspci_tells_a_grace_host_by_its_gpus_or_ports(gpu: str) -> None:
    """It names no CPU: NVLink-C2C or Grace's own root ports say that VT-d's tables are not there."""
    port, ours = GRACE, GRACE.replace("[10de:22b2]", "[8086:352a]")
    for text in (port, ours) if "GH200" in gpu else (port,):
        found = explained(machine_of(text.replace("GH100 [GH200 120GB / 480GB] [10de:2342]", gpu)))
        assert (found.walks, found.no_walk) == ((), "the CPU's tables are not those of x86")
    x86 = explained(machine_of(ours.replace("GH100 [GH200 120GB / 480GB] [10de:2342]", "GH100 [H100 PCIe] [10de:2331]")))
    assert x86.walks


def test_the_reason_without_a_walk_is_the_one_that_holds() -> None:
    """One of three, not all."""
    machine = sample.machine()
    wide = explained(machine, address=1 << 50)
    assert wide.no_walk == "the address is above 48 bits, which four levels do not hold"
    unread = explain(machine, machine.gpus[0], None, size_bytes=256, told=GIVEN)
    assert unread.no_walk == "the physical address is not known"
    for found in (wide, unread):
        head = next(line for line in lines(found) if line.startswith("4. IOMMU"))
        assert f"no walk: {found.no_walk}".startswith(head.partition("; ")[2])


def test_a_gpu_without_an_address_is_called_by_its_number() -> None:
    """topo -m alone: the GPU is known, its requester ID is not, and a number of zeros is not passed off as one."""
    shown = " ".join(" ".join(lines(explained(machine_of(dumps.TOPO)))).split())
    assert "on the way of GPU 0, whose address is not known" in shown
    assert "root[?] context[?]" in shown
    assert "requester unknown, written as 0000" in shown
    assert not any("root[?]" in line or "requester unknown" in line for line in lines(explained(sample.machine())))


def test_a_port_is_no_endpoint() -> None:
    """A port that writes (an interrupt, say) has an upstream side."""
    for device, words in (("0000:10:00.0", "upstream side"), ("0000:13:00.0", "an endpoint has one way out")):
        route = explained(sample.machine(), device).route
        assert route is not None
        assert words in route.steps[0].why


def test_an_iova_claims_no_range() -> None:
    """Where the IOMMU translates, /proc/iomem holds the number only if it is the physical one."""
    ranges = (IomemRange(0x100000000, 0x7FFFFFFFFF, "System RAM"),)
    plain = msgspec.structs.replace(sample.machine(), iomem=ranges)
    found = explained(with_mode(plain, IommuMode.TRANSLATED))
    assert (found.is_physical, found.labels["iomem"]) == (None, "illustration")
    assert any("claimant, if this is the physical address (illustration)" in line for line in lines(found))
    known = explained(plain)
    assert (known.is_physical, known.labels["iomem"]) == (True, "reported")
    assert not any("if this is the physical" in line for line in lines(known))


def test_the_picture_of_a_coherent_gpu_names_its_link() -> None:
    """One line from the GPU to RAM, no port between, and no bar that says how fast it is."""
    drawn = picture.svg(report(coherent(sample.machine(), "NVLink between GPU and CPU (a test)")))
    assert "NVLink between GPU and CPU (a test), no ceiling claimed" in drawn
    assert all(port not in drawn for port in ("0f:01.0", "10:00.0", "11:00.0"))
    assert (drawn.count('class="unknown"'), drawn.count('class="inside"'), drawn.count('class="bar')) == (1, 0, 0)


def without(machine: Machine, *missing: str) -> Machine:
    """The machine without the functions at these addresses, and no word on what was there."""
    left = {
        a: msgspec.structs.replace(f, parent=None, at_root=False) if f.parent in missing else f
        for a, f in machine.functions.items() if a not in missing
    }  # fmt: skip
    return msgspec.structs.replace(machine, functions=left)


@pytest.mark.parametrize("missing", ["0000:0f:01.0", "0000:10:00.0", "0000:11:00.0"])
def test_the_picture_breaks_where_the_way_is_not_told(missing: str) -> None:
    """A dashed line with words stands between the last hop that is told and RAM, on the picture as on the terminal."""
    broken, whole = (picture.svg(report(each)) for each in (without(sample.machine(), missing), sample.machine()))
    assert "? the way from here to the root complex is not told" in broken
    assert broken.count('class="unknown"') == 1
    assert "is not told" not in whole
