"""Lanes that a drive or NIC has lost: the third leg is slow, `check` says so, and the figures have both ceilings."""

from typing import get_args

import msgspec
import pytest
from wire_machines import report

from hinan.cli.wire_options import Loaded
from hinan.wire.checks.case import Question
from hinan.wire.checks.check import check_machine
from hinan.wire.checks.findings import Finding
from hinan.wire.facts.model import Machine, Role
from hinan.wire.machine import sample
from hinan.wire.show.render import render, render_legs

DRIVE, NIC = "0000:13:00.0", "0000:14:00.0"


def with_lanes(machine: Machine, lanes: int, *addresses: str, cap: int | None = None) -> Machine:
    """The machine with so many lanes in use at these functions; cap: what these tell that they have, 0 for nothing."""
    functions = dict(machine.functions)
    for address in addresses:
        link = functions[address].link
        has = link.cap_width if cap is None else cap or None
        functions[address] = msgspec.structs.replace(
            functions[address], link=msgspec.structs.replace(link, now_width=lanes, cap_width=has)
        )
    return msgspec.structs.replace(machine, functions=functions)


def found(machine: Machine) -> tuple[Finding, ...]:
    """What is found for a state of 61.2 GB."""
    return check_machine(machine, Question(state_bytes=61_200_000_000))


@pytest.mark.parametrize(("device", "word"), [(DRIVE, "drive 13:00.0"), (NIC, "NIC 14:00.0")])
def test_lost_lanes_of_the_third_leg(device: str, word: str) -> None:
    """Told once, for this machine, with what the way from RAM takes longer; the figures name both rates."""
    slow = with_lanes(sample.machine(), 1, device)
    (told,) = found(slow)
    assert (told.code, told.gpu, told.at) == ("width-below-capability", None, device.removeprefix("0000:"))
    assert word in told.evidence
    whole, lost = report(sample.machine(), state_bytes=61_200_000_000), report(slow, state_bytes=61_200_000_000)
    ways = [(leg, as_is) for leg, as_is in zip(whole.legs, lost.legs, strict=True) if word.endswith(leg.device)]
    for leg, as_is in ways:
        assert as_is.as_built_bytes_per_s == leg.ceiling_bytes_per_s
        assert as_is.runs_below_capability
        assert not leg.runs_below_capability
    assert told.effect_s is not None
    assert told.effect_s > 0
    shown = [line for line in render(lost, slow) if "by capability, if nothing were lost" in line]
    assert len(shown) == 2
    assert max(map(len, render(lost, slow))) <= 100


def test_what_carries_no_checkpoint_is_not_judged() -> None:
    """A management port, a card whose slot is not told, and a slot with fewer lanes than the card: nothing."""
    machine = sample.machine()
    port = machine.functions[DRIVE].parent
    assert port is not None
    for quiet in (
        with_lanes(machine, 2, DRIVE, port, cap=2),  # the slot and the card have two
        with_lanes(with_lanes(machine, 2, DRIVE), 2, port, cap=0),  # nobody tells what the slot has
        msgspec.structs.replace(machine, functions=dict(with_lanes(machine, 1, DRIVE).functions) | {
            a: msgspec.structs.replace(f, role=Role.OTHER) for a, f in with_lanes(machine, 1, DRIVE).functions.items()
            if a == DRIVE
        }),
    ):  # fmt: skip
        assert found(quiet) == ()


def test_a_link_of_the_gpu_is_told_as_the_gpus() -> None:
    """The uplink that GPU, drive and NIC share is one finding of the GPU, and none of the third leg."""
    (told,) = found(with_lanes(sample.machine(), 8, "0000:10:00.0"))
    assert (told.gpu, told.at) == (0, "10:00.0")


UPLINK, PORT = "0000:10:00.0", "0000:11:01.0"
STATE = 61_200_000_000


def on_nvlink(machine: Machine) -> Machine:
    """The machine whose GPUs reach RAM by a link of their own."""
    return msgspec.structs.replace(machine, coherent_link="NVLink between GPU and CPU (a test)")


def test_lanes_that_cost_nothing_are_said_to_cost_nothing() -> None:
    """Eight of sixteen lanes above a drive that has four: the leg is no slower, and the words say so."""
    (told,) = found(on_nvlink(with_drive_only(with_lanes(sample.machine(), 8, UPLINK))))
    assert told.at == "10:00.0"
    assert told.effect_s == 0.0
    assert "takes no longer by them" in told.effect
    assert "slots are free later" not in told.effect


def with_drive_only(machine: Machine) -> Machine:
    """The machine whose NICs are none."""
    functions = {
        a: msgspec.structs.replace(f, role=Role.OTHER) if f.role is Role.NIC else f for a, f in machine.functions.items()
    }
    return msgspec.structs.replace(machine, functions=functions)


def test_each_faulty_link_names_its_own_loss() -> None:
    """One lane of the drive and eight of its uplink: only the one lane is what the leg takes longer."""
    machine = on_nvlink(with_drive_only(with_lanes(with_lanes(sample.machine(), 1, DRIVE), 8, UPLINK)))
    costs = {told.at: told.effect_s for told in found(machine)}
    whole = report(machine, state_bytes=STATE).legs[0]
    assert whole.seconds is not None
    assert whole.as_built_seconds is not None
    assert costs == {"13:00.0": pytest.approx(whole.seconds - whole.as_built_seconds), "10:00.0": 0.0}


def test_an_uplink_that_an_nvlink_gpu_does_not_need_is_its_devices() -> None:
    """Its copies do not cross it; its drive's and NIC's do, so it is told once, and the report has their rows."""
    machine = on_nvlink(with_lanes(sample.machine(), 1, UPLINK))
    (told,) = found(machine)
    assert (told.gpu, told.at) == (None, "10:00.0")
    assert "the drive 13:00.0 and the NIC 14:00.0" in told.evidence
    shown = "\n".join(render(report(machine), machine))
    assert "13:00.0 from RAM, narrowest: 10:00.0" in shown
    assert "14:00.0 from RAM, narrowest: 10:00.0" in shown
    assert "peer to peer" not in shown
    assert any(line.startswith("RAM to 13:00.0: ceiling 3.65 GB/s") for line in render_legs(report(machine)))


def test_the_hops_of_a_leg_show_what_is_lost() -> None:
    """The lanes in use stand beside those that there are, and the ceiling beside the one by capability."""
    shown = render_legs(report(with_lanes(sample.machine(), 1, DRIVE)))
    assert any("16 GT/s x1 of x4" in line and "<- narrowest" in line for line in shown)
    assert sum("by capability, if nothing were lost" in line for line in shown) == 2
    assert max(map(len, shown)) <= 100
    assert not any(" of x" in line or "by capability" in line for line in render_legs(report(sample.machine())))


def with_speed(machine: Machine, gt_s: float, address: str) -> Machine:
    """The machine with this present speed at a function."""
    function = machine.functions[address]
    link = msgspec.structs.replace(function.link, now_gt_s=gt_s)
    changed = {**machine.functions, address: msgspec.structs.replace(function, link=link)}
    return msgspec.structs.replace(machine, functions=changed)


def test_under_load_is_said_of_the_links_that_copies_cross() -> None:
    """A drive's link, and an uplink that NVLink GPUs do not cross, may have been at rest; the GPU's uplink was not."""
    for machine, address, counts in (
        (sample.machine(), DRIVE, False),
        (on_nvlink(sample.machine()), UPLINK, False),
        (sample.machine(), UPLINK, True),
    ):
        slow = report(with_speed(machine, 2.5, address), under_load=True)
        assert any(leg.runs_below_capability for leg in slow.legs) == counts
    loaded = get_args(Loaded)[1]
    assert "between GPUs and RAM" in loaded.help


def without_drive(machine: Machine, address: str) -> Machine:
    """The machine in which this drive is no leg of a checkpoint."""
    changed = msgspec.structs.replace(machine.functions[address], role=Role.OTHER)
    return msgspec.structs.replace(machine, functions={**machine.functions, address: changed})


def test_a_link_that_another_gpu_crosses_is_told_as_that_gpus() -> None:
    """GPU 1's nearest drive stands behind GPU 0's uplink: one link, one finding, with what it costs GPU 0."""
    machine = without_drive(sample.machine(), "0000:23:00.0")
    slow = with_lanes(machine, 4, UPLINK)
    assert any(leg.device == "13:00.0" for leg in report(slow, 1).legs)
    (told,) = found(slow)
    assert (told.gpu, told.at) == (0, "10:00.0")
    assert told.effect_s is not None
    assert told.effect_s > 0
    (of_its_own,) = report(slow, 1, state_bytes=STATE).findings  # alone, it says what its own drive's way has lost
    assert (of_its_own.gpu, of_its_own.at, of_its_own.effect_s) == (None, "10:00.0", 0.0)


def test_a_link_of_the_devices_of_several_gpus_is_told_once() -> None:
    """GPU 0's NIC and drive, and the drive again for GPU 1, whose own is gone: one finding names each device once."""
    machine = on_nvlink(without_drive(sample.machine(), "0000:23:00.0"))
    (told,) = found(with_lanes(machine, 1, UPLINK))
    assert told.evidence.endswith("from RAM to the drive 13:00.0 and the NIC 14:00.0")
