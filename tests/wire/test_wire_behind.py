"""One GPU that had less than the others while all copied: the cause that is named fits what the others had."""

from __future__ import annotations

import json

import msgspec
import pytest
from wire_machines import machine, report

from hinan.wire.checks.findings import Finding
from hinan.wire.facts.model import Machine
from hinan.wire.machine import capture, sample

WHOLE = "54.9"


def all_to_host(*cells: str) -> str:
    """A report of nvbandwidth's all_to_host_memcpy_ce on the sample machine, whose GPUs do 55.1 GB/s alone."""
    devices = [f"{index}: NVIDIA H100 SXM5 80GB (00000000:{n}2:00:00)" for index, n in enumerate("12345678")]
    alone = {"name": "device_to_host_memcpy_ce", "status": "Passed", "bandwidth_matrix": [["55.1"] * len(cells)]}
    case = {"name": "all_to_host_memcpy_ce", "status": "Passed", "bandwidth_matrix": [list(cells)]}
    return json.dumps({"nvbandwidth": {"GPU Device list": devices, "testcases": [alone, case]}})


def behind(slow: dict[int, str], *, virtual: bool = False) -> dict[int, Finding]:
    """GPU -> its `below-share`, where these GPUs were slow and the others were not. GPUs 0 to 3 are on node 0."""
    whole: Machine = sample.machine()
    if virtual:
        whole = msgspec.structs.replace(whole, virtual=("a test",))
    found = machine(capture.write(whole), all_to_host(*(slow.get(index, WHOLE) for index in range(8))))
    each = {gpu.index: report(found, gpu.index).findings for gpu in found.gpus}
    return {index: finding for index, of in each.items() for finding in of if finding.code == "below-share"}


@pytest.mark.parametrize("virtual", [False, True])
def test_one_that_fell_behind_is_slow_by_itself(virtual: bool) -> None:
    """Three GPUs of its node had their part: memory and socket link are not narrow, and no buffer need move."""
    found = behind({3: "20.0"}, virtual=virtual)
    assert found.keys() == {3}
    assert "GPUs 0 1 2 had their part in the same run" in found[3].effect
    assert "only this GPU takes" in found[3].effect
    assert not any(word in found[3].effect + found[3].fix for word in ("DRAM", "socket", "spread", "stagger"))


def test_two_that_fell_behind_may_share_what_is_slow() -> None:
    """A pair may hang on one thing that no file draws: each is named to the other."""
    found = behind({2: "20.0", 3: "20.0"})
    assert "or shares with GPU 3" in found[2].effect
    assert "or shares with GPU 2" in found[3].effect


@pytest.mark.parametrize("virtual", [False, True])
def test_a_node_of_which_all_fell_behind_is_narrow(virtual: bool) -> None:
    """The other node's GPUs say nothing of this one's memory, and that not all GPUs share it."""
    found = behind(dict.fromkeys(range(4), "20.0"), virtual=virtual)
    assert found.keys() == {0, 1, 2, 3}
    assert all(("several GPUs share" if virtual else "DRAM writes") in finding.effect for finding in found.values())
