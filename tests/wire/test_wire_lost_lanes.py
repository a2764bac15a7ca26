"""Lanes that a drive or NIC has lost: the third leg is slow, `check` says so, and the figures have both ceilings."""

import msgspec
import pytest
from wire_machines import report

from hinan.wire.checks.case import Question
from hinan.wire.checks.check import check_machine
from hinan.wire.checks.findings import Finding
from hinan.wire.facts.model import Machine, Role
from hinan.wire.machine import sample
from hinan.wire.show.render import render

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
