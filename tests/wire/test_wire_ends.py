"""A link is its two ends: what limits it may be one end's speed and the other's width, and what is lost counts."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import wire_dumps as dumps
from test_wire_parents import nccl
from typer.testing import CliRunner
from wire_machines import machine, near, report

from hinan.cli.main import app
from hinan.wire.checks.case import Question
from hinan.wire.checks.check import check_machine
from hinan.wire.checks.effects import redirect_ceilings
from hinan.wire.paths import legs
from hinan.wire.paths.shares import fair_shares
from hinan.wire.show.rates import rate_of

GPU, PORT, DRIVE = "43:00.0", "42:00.0", "45:00.0"
STATE = int(28.807e9)


def edited(text: str, block: str, *changes: tuple[str, str]) -> str:
    """A dump with edits inside the block of one function."""
    start = text.index(f"\n{block} ") + 1
    end = text.find("\n\n", start)
    body = text[start:end]
    for before, after in changes:
        assert before in body, before
        body = body.replace(before, after)
    return text[:start] + body + text[end:]


OLD_CARD = ("Speed 16GT/s, Width x16", "Speed 8GT/s, Width x16"), ("Speed 2.5GT/s (downgraded), Width x16 (ok)", "Speed 8GT/s (ok), Width x8 (downgraded)")  # fmt: skip  # noqa: E501
SHORT_SLOT = ("Speed 16GT/s, Width x16", "Speed 16GT/s, Width x8"), ("Speed 2.5GT/s (downgraded), Width x16 (ok)", "Speed 8GT/s (downgraded), Width x8 (ok)")  # fmt: skip  # noqa: E501
MIXED = edited(edited(dumps.LSPCI_VVV, GPU, *OLD_CARD), PORT, *SHORT_SLOT)
"""A gen 3 x16 card in a gen 4 x8 slot: the link is gen 3 x8, 7.2 GB/s, half of what either end can do alone."""

LOST = edited(
    edited(dumps.LSPCI_VVV, GPU, ("Width x16 (ok)", "Width x8 (downgraded)")),
    PORT, ("Width x16 (ok)", "Width x8 (downgraded)"),
)  # fmt: skip
"""Both ends have 16 lanes, and 8 are in use; the speed is that of an idle GPU."""


def test_speed_of_one_end_and_width_of_the_other() -> None:
    """In the ceiling, the hops, the shares, the legs and what the planner takes; nothing is wrong with such a link."""
    found = machine(MIXED)
    answer = report(found, state_bytes=STATE)
    assert near(answer.ceiling_bytes_per_s, 7.202)
    assert near(answer.as_built_bytes_per_s, 7.202)
    assert [near(hop.ceiling_bytes_per_s, 7.202) for hop in answer.hops[:2]] == [True, True]
    assert near(fair_shares(found, found.evacuating)["0000:43:00.0"], 7.202)
    assert near(fair_shares(found, found.evacuating)["0000:44:00.0"], 28.807 - 7.202)
    assert near(answer.legs[0].ceiling_bytes_per_s, 3.654)  # the drive's gen 3 x4 is slower still
    rate = rate_of(answer)
    assert rate is not None
    assert (near(rate.bytes_per_s, 7.202), rate.note) == (True, "")
    assert answer.findings == ()


def test_the_peer_leg_joins_ends_too() -> None:
    """Gen 3 x4 drive, port of x2: 20 bytes of overhead per completion, two lanes of gen 3."""
    text = edited(dumps.LSPCI_VVV, "42:02.0", ("Speed 16GT/s, Width x4", "Speed 16GT/s, Width x2"))
    expected = 8e9 * 2 / 8 * 128 / 130 * 256 / 276
    found = machine(text)
    assert legs.direct(found, "0000:43:00.0", "0000:45:00.0").ceiling_bytes_per_s == pytest.approx(expected)
    assert legs.from_ram(found, "0000:45:00.0").ceiling_bytes_per_s == pytest.approx(expected)
    assert redirect_ceilings(found, "0000:43:00.0", "0000:45:00.0")[1] == pytest.approx(expected)


def test_no_alarm_on_a_copy_that_fills_such_a_link() -> None:
    """6.8 of 7.2 GB/s is a whole link, not half of one."""
    measured = dumps.NVBANDWIDTH.replace("26.10", "6.80")
    assert [f.code for f in check_machine(machine(MIXED, measured), Question()) if f.gpu == 0] == []


def test_two_functions_of_a_device_share_its_link() -> None:
    """43:00.0 and 43:00.1 stand behind one port: together they get one link, however many links they tell."""
    twin = dumps.LSPCI_VVV.replace("\n44:00.0 3D", "\n43:00.1 3D")
    found = machine(twin)
    assert [near(share, 14.404) for share in fair_shares(found, ["0000:43:00.0", "0000:43:00.1"]).values()] == [True, True]
    no_port = edited(twin, PORT, ("LnkCap:\tPort #4, Speed 16GT/s, Width x16, ASPM L1", "LnkCap:\tPort #4"))
    uplink = edited(no_port, "41:00.0", ("Speed 16GT/s, Width x16", "Speed 32GT/s, Width x16"))
    wide = edited("\n" + uplink, "40:01.0", ("Speed 16GT/s, Width x16", "Speed 32GT/s, Width x16"))
    shares = fair_shares(machine(wide), ["0000:43:00.0", "0000:43:00.1"])
    assert [near(share, 14.404) for share in shares.values()] == [True, True]


def test_lost_lanes_count_in_every_figure(tmp_path: Path) -> None:
    """14.4 GB/s as it runs, in text, --json, --all and for the planner, each with the 28.8 GB/s of its capability."""
    path = tmp_path / "dump"
    path.write_text(LOST)
    found = machine(LOST)
    answer = report(found, state_bytes=STATE)
    assert near(answer.ceiling_bytes_per_s, 14.404)
    assert near(answer.as_built_bytes_per_s, 28.807)
    assert answer.seconds == pytest.approx(2.0, rel=1e-3)
    (finding,) = [f for f in answer.findings if f.code == "width-below-capability"]
    assert finding.effect_s == pytest.approx(1.0, rel=1e-3)
    run = CliRunner()
    shown = run.invoke(app, ["wire", "--from", str(path), "--gpu", "0", "--state", "28.807GB"]).stdout
    assert "to RAM      ceiling     14.4 GB/s     2.00 s" in shown
    assert "ceiling     28.8 GB/s     1.00 s  by capability, if nothing were lost" in shown
    plain = json.loads(run.invoke(app, ["wire", "--from", str(path), "--gpu", "0", "--json"]).stdout)
    assert (near(plain["ceiling_bytes_per_s"], 14.404), plain["hops"][0]["width"]) == (True, 8)
    rows = run.invoke(app, ["wire", "--from", str(path), "--all"]).stdout.splitlines()
    assert rows[1].split()[3:5] == ["14.4", "GB/s"]
    planned = run.invoke(app, ["plan", "--wire", str(path), "--json", "--gpu", "0"])
    document = json.loads(planned.stdout)
    assert near(document["inputs"]["machine.d2h_bytes_per_s"]["value"], 14.404)
    assert any("GPU 0 run below their capability of 28.8 GB/s" in each for each in document["warnings"])


def test_a_speed_counts_only_where_it_was_read_under_load() -> None:
    """2.5 GT/s of an idle GPU is no loss; the same reading under load is one, in figures as in findings."""
    found = machine(dumps.LSPCI_VVV)
    assert near(report(found).ceiling_bytes_per_s, 28.807)
    busy = report(found, under_load=True, state_bytes=STATE)
    slow = 2.5e9 * 16 / 8 * 0.8 * 256 / 280
    assert busy.ceiling_bytes_per_s == pytest.approx(slow)
    assert busy.all_ranks_ceiling_bytes_per_s == pytest.approx(slow)
    assert near(busy.as_built_bytes_per_s, 28.807)
    assert next(leg for leg in busy.legs if leg.name == "via RAM").ceiling_bytes_per_s == pytest.approx(3.654e9, rel=1e-3)
    (finding,) = [f for f in busy.findings if f.code == "speed-below-capability"]
    assert finding.effect_s == pytest.approx(STATE / slow - 1.0, rel=1e-3)


def test_under_load_says_nothing_of_drives() -> None:
    """The copy ran between GPU and RAM: a drive that rests at 2.5 GT/s is no slower for it."""
    resting = edited(dumps.LSPCI_VVV, DRIVE, ("LnkSta:\tSpeed 8GT/s (ok)", "LnkSta:\tSpeed 2.5GT/s (downgraded)"))
    text = edited(resting, "42:02.0", ("LnkSta:\tSpeed 8GT/s (downgraded)", "LnkSta:\tSpeed 2.5GT/s (downgraded)"))
    answer = report(machine(text), 1, under_load=True)
    assert [near(leg.ceiling_bytes_per_s, 3.654) for leg in answer.legs] == [True, True]


def test_lost_lanes_of_a_link_with_room_cost_nothing() -> None:
    """A gen 5 uplink of x8 of x16 is as fast as the gen 4 x16 of the GPU."""
    text = edited(dumps.LSPCI_VVV, "41:00.0", ("Speed 16GT/s, Width x16", "Speed 32GT/s, Width x16"), ("Speed 16GT/s (ok), Width x16 (ok)", "Speed 32GT/s (ok), Width x8 (downgraded)"))  # fmt: skip  # noqa: E501
    text = edited("\n" + text, "40:01.0", ("Speed 16GT/s, Width x16", "Speed 32GT/s, Width x16"), ("Speed 16GT/s (ok), Width x16 (ok)", "Speed 32GT/s (ok), Width x8 (downgraded)"))  # fmt: skip  # noqa: E501
    answer = report(machine(text), state_bytes=STATE)
    (finding,) = [f for f in answer.findings if f.code == "width-below-capability"]
    assert finding.effect_s == pytest.approx(0.0, abs=1e-9)
    assert near(answer.ceiling_bytes_per_s, 28.807)


def test_a_slot_that_is_not_told_may_be_narrow() -> None:
    """`lspci -d 10de:` of an x16 card at x8: lost lanes, or a slot of x8; nobody can tell, so nobody says reseat."""
    start = LOST.index("\n43:00.0 ")
    (finding,) = check_machine(machine(LOST[start : LOST.index("\n\n", start)] + "\n"), Question())
    assert finding.code == "width-below-capability"
    assert "or the slot has no more" in finding.effect
    (whole,) = [f for f in check_machine(machine(LOST), Question()) if f.code == finding.code]
    assert whole.effect.startswith("lanes are lost;")


def test_idle_is_judged_by_both_ends() -> None:
    """A gen 5 card at 16 GT/s in a gen 4 slot runs as fast as it can: no word of being idle."""
    text = edited(dumps.LSPCI_VVV, GPU, ("Speed 16GT/s, Width x16", "Speed 32GT/s, Width x16"), ("Speed 2.5GT/s", "Speed 16GT/s"))  # fmt: skip  # noqa: E501
    text = edited(text, PORT, ("Speed 2.5GT/s (downgraded)", "Speed 16GT/s (ok)"))
    assert not [note for note in report(machine(text)).notes if "idle" in note]
    assert any(note == "runs at 2.5 of 16 GT/s now, idle: 43:00.0" for note in report(machine(dumps.LSPCI_VVV)).notes)


def hwloc_of_switch(uplink: str, gpu: str) -> str:
    """lstopo of a switch and its two GPUs, with the bandwidths that their links have now [GB/s]."""

    def port(address: str, buses: str, rate: str, below: str) -> str:
        words = f'bridge_type="1-1" pci_busid="0000:{address}" pci_type="0604 [1000:c030]" bridge_pci="0000:[{buses}]"'
        return f'<object type="Bridge" {words} pci_link_speed="{rate}">{below}</object>'

    rows = "".join(
        port(f"21:0{n}.0", f"0{n}-0{n}", gpu, f'<object type="PCIDev" pci_busid="0000:0{n}:00.0" '
             f'pci_type="0302 [10de:2330]" pci_link_speed="{gpu}"/>')
        for n in (1, 2)
    )  # fmt: skip
    tree = port("1f:01.0", "20-22", uplink, port("20:00.0", "21-22", uplink, rows))
    return (
        '<topology version="2.0"><object type="Machine"><object type="Bridge" bridge_type="0-1" bridge_pci="0000:[1f-22]">'
        f"{tree}</object></object></topology>"
    )


@pytest.mark.parametrize(("uplink", "gpu"), [("31.507692", "63.015385"), ("63.015385", "31.507692"), ("63.0", "63.0")])
def test_what_hwloc_sees_below_the_capability_is_said(uplink: str, gpu: str) -> None:
    """8 of 16 lanes now, where NCCL tells 16: a finding on an uplink, a note at a GPU that may rest, none if whole."""
    found = machine(nccl("20 01 02"), hwloc_of_switch(uplink, gpu))
    answer = report(found, 1)
    suspects = [f for f in answer.findings if f.code == "link-suspect"]
    notes = [note for note in answer.notes if "carries 28.8 of 57.6 GB/s now" in note]
    assert (len(suspects), len(notes)) == (int(uplink.startswith("31")), int(gpu.startswith("31")))
    assert all("link carries 28.8 GB/s of 57.6" in f.evidence for f in suspects)
    loaded = report(found, 1, under_load=True)
    assert {f.code for f in loaded.findings} >= ({"speed-below-capability"} if suspects or notes else set())
    assert not any("now: idle" in note for note in loaded.notes)
