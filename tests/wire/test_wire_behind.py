"""One GPU that had less than the others while all copied: the cause that is named fits what the others had."""

from __future__ import annotations

import json

import msgspec
import pytest
from wire_machines import machine, report

from hinan.wire.checks.findings import Finding
from hinan.wire.facts.model import Machine
from hinan.wire.machine import capture, sample
from hinan.wire.paths.path import path_up

WHOLE = "54.9"


def all_to_host(*cells: str, alone: dict[int, str] | None = None) -> str:
    """A report of nvbandwidth's all_to_host_memcpy_ce on the sample machine; GPUs do 55.1 GB/s alone, or as given."""
    devices = [f"{index}: NVIDIA H100 SXM5 80GB (00000000:{n}2:00:00)" for index, n in enumerate("12345678")]
    each = [(alone or {}).get(index, "55.1") for index in range(len(cells))]
    by_itself = {"name": "device_to_host_memcpy_ce", "status": "Passed", "bandwidth_matrix": [each]}
    case = {"name": "all_to_host_memcpy_ce", "status": "Passed", "bandwidth_matrix": [list(cells)]}
    return json.dumps({"nvbandwidth": {"GPU Device list": devices, "testcases": [by_itself, case]}})


def behind(
    slow: dict[int, str], *, alone: dict[int, str] | None = None, virtual: bool = False, untold: tuple[int, ...] = ()
) -> dict[int, Finding]:
    """GPU -> its `below-share`, where these GPUs were slow and the others were not. GPUs 0 to 3 are on node 0.

    alone: what GPUs do that do less than the others also alone. untold: GPUs of which no source tells the node.
    """
    whole: Machine = sample.machine()
    if virtual:
        whole = msgspec.structs.replace(whole, virtual=("a test",))
    whole = without_node(whole, *untold)
    found = machine(capture.write(whole), all_to_host(*(slow.get(index, WHOLE) for index in range(8)), alone=alone))
    each = {gpu.index: report(found, gpu.index).findings for gpu in found.gpus}
    return {index: finding for index, of in each.items() for finding in of if finding.code == "below-share"}


def without_node(whole: Machine, *untold: int) -> Machine:
    """The machine in which no hop of these GPUs' paths tells a node."""
    hops = {hop.address for gpu in whole.gpus if gpu.index in untold for hop in path_up(whole, gpu.address or "").hops}
    functions = {
        a: msgspec.structs.replace(f, numa_node=None, numa_affinity=()) if a in hops else f
        for a, f in whole.functions.items()
    }
    gpus = tuple(
        msgspec.structs.replace(g, numa_node=None, numa_affinity=()) if g.index in untold else g for g in whole.gpus
    )
    return msgspec.structs.replace(whole, functions=functions, gpus=gpus)


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


def test_one_that_needed_less_refutes_nothing() -> None:
    """A node's memory that is narrow leaves a GPU that is slow by itself all that it can take, and the others less."""
    found = behind({0: "19.0", 1: "30.0", 2: "30.0", 3: "30.0"}, alone={0: "20.0"})
    assert found.keys() == {1, 2, 3}
    assert all("DRAM writes" in finding.effect for finding in found.values())
    assert not any("had its part" in finding.effect for finding in found.values())


@pytest.mark.parametrize("untold", [(3,), (0, 1, 2), tuple(range(8))])
def test_the_same_memory_is_a_known_node(untold: tuple[int, ...]) -> None:
    """Where nobody tells the node of a GPU, nobody knows whose memory it shares: neither cause is named."""
    found = behind({3: "20.0"}, untold=untold)
    assert found.keys() == {3}
    assert "cannot be told: no source tells which of them write to the same memory" in found[3].effect
    assert "had their part" not in found[3].effect


@pytest.mark.parametrize(("slow", "level"), [("48.8", "49.2"), ("48.96", "48.98"), ("46.0", "49.0")])
def test_one_that_had_hardly_more_refutes_nothing(slow: str, level: str) -> None:
    """Just above and just below the limit is no difference: what all four share is the likelier cause, on either side."""
    found = behind({0: level, 1: level, 2: level, 3: slow}, alone=dict.fromkeys(range(8), "60.0"))
    assert found.keys() == {3}
    assert "GPUs 0 1 2 had hardly more in the same run: what the GPUs of a node share" in found[3].effect
    assert "spread the buffers" in found[3].fix
    assert not any(word in found[3].effect + found[3].fix for word in ("only this GPU takes", "AER", "throttled"))


def test_one_of_two_that_are_level_is_named_to_the_other() -> None:
    """Two had clearly more, so memory is not narrow; the third was as slow as this one, and may hang on the same thing."""
    found = behind({2: "49.2", 3: "48.8"}, alone=dict.fromkeys(range(8), "60.0"))
    assert found.keys() == {3}
    assert "GPUs 0 1 had their part in the same run, into the same memory" in found[3].effect
    assert "or shares with GPU 2" in found[3].effect
    assert "only this GPU takes" in behind({3: "48.8"}, alone=dict.fromkeys(range(8), "60.0"))[3].effect
