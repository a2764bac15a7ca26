"""Slots on the NUMA node of the rank's device: the order of calls against a fake of two nodes, and what is told."""

from __future__ import annotations

import contextlib
import errno
import logging
import os
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from functools import partial
from pathlib import Path

import msgspec
import pytest

from hinan.agent.loop import Node
from hinan.agent.placer import Placed, Placer
from hinan.agent.server import Server, _Session
from hinan.agent.status import status
from hinan.cli.agent import _placement
from hinan.cli.arenas import nodes_of
from hinan.formats import messages as m
from hinan.formats.records import OwnerRecord
from hinan.host.numa import KernelMemory
from hinan.tiers.arena import Arena
from hinan.tiers.mapping import HUGE_BYTES
from hinan.wire.checks.case import Question
from hinan.wire.checks.check import check_machine
from hinan.wire.facts.model import Machine
from hinan.wire.machine import sample
from tests.harness.disks import Disks
from tests.harness.place import HEADER, Place, live

SIZE_BYTES = 1 << 20
ON_NODE_1 = "0000:52:00.0"  # GPU 4 of the sample machine


class TwoNodes:
    """Writes down what it is asked; its pages lie where they were asked for, unless that node is full."""

    def __init__(self, refuse: int = 0, full: frozenset[int] = frozenset()) -> None:
        self.refuse, self.full = refuse, full
        self.calls: list[tuple[str, object]] = []
        self.node = 0

    def prefer(self, fd: int, size_bytes: int, node: int) -> None:
        self.calls.append(("prefer", (node, size_bytes, os.fstat(fd).st_blocks)))
        if self.refuse:
            raise OSError(self.refuse, os.strerror(self.refuse))
        self.node = 0 if node in self.full else node

    @contextlib.contextmanager
    def near(self, cpus: Iterable[int]) -> Iterator[None]:
        self.calls.append(("near", tuple(cpus)))
        self.node = 1
        yield
        self.calls.append(("back", None))

    def node_of(self, fd: int, offset_bytes: int) -> int | None:
        assert offset_bytes < os.fstat(fd).st_size
        return self.node


def make(tmp_path: Path, memory: TwoNodes, device: str | None, read: object = sample.machine) -> tuple[Placed, Path]:
    placer = Placer(memory, read)  # type: ignore[arg-type]
    arena = Arena(tmp_path)
    name, _ = arena.new_slot(OwnerRecord(1, 1, 1, 3), SIZE_BYTES, around=partial(placer.around, 3, device))
    return placer.placed[3], arena.path(name)


def test_policy_then_pages_then_a_look(tmp_path: Path) -> None:
    """The node of GPU 4 is asked for while the file has no page; afterwards it has all, and they are found there."""
    memory = TwoNodes()
    placed, image = make(tmp_path, memory, ON_NODE_1)
    assert memory.calls == [("prefer", (1, SIZE_BYTES, 0))]
    assert (placed.node, placed.how, placed.lies_on, placed.problem) == (1, "mbind", (1,), None)
    assert image.stat().st_size == SIZE_BYTES
    assert image.stat().st_blocks * 512 >= SIZE_BYTES


def test_where_mbind_is_refused_the_nodes_cpus_make_the_pages(tmp_path: Path) -> None:
    """A container without CAP_SYS_NICE: the thread runs on the node's CPUs for that moment, and goes back."""
    memory = TwoNodes(refuse=errno.EPERM)
    placed, _ = make(tmp_path, memory, ON_NODE_1)
    assert memory.calls[1:] == [("near", tuple(range(56, 112))), ("back", None)]
    assert (placed.node, placed.how, placed.lies_on) == (1, "cpus", (1,))


def test_neither_costs_the_slot(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """mbind refused and the CPUs out of reach: the slot is made, the reason is told, once."""

    class Nothing(TwoNodes):
        def near(self, cpus: Iterable[int]) -> contextlib.AbstractContextManager[None]:
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL))

    placer, arena = Placer(Nothing(refuse=errno.ENOSYS), sample.machine), Arena(tmp_path)
    with caplog.at_level(logging.INFO, "hinan.agent"):
        for _ in range(3):
            arena.new_slot(OwnerRecord(1, 1, 1, 0), SIZE_BYTES, around=partial(placer.around, 0, ON_NODE_1))
    assert len(list(tmp_path.glob("*.img"))) == 3
    assert [record.levelname for record in caplog.records] == ["WARNING"]
    assert placer.placed[0].problem == "mbind: Function not implemented; running on its CPUs: Invalid argument"


def test_a_full_node_is_noticed(tmp_path: Path) -> None:
    """The kernel takes pages elsewhere without a word; the look finds them."""
    placed, _ = make(tmp_path, TwoNodes(full=frozenset({1})), ON_NODE_1)
    assert placed.lies_on == (0,)
    assert placed.problem == "pages lie on node 0: is node 1 full?"


def one_node() -> Machine:
    machine = sample.machine()
    return msgspec.structs.replace(machine, nodes=machine.nodes[:1])


def unreadable() -> Machine:
    raise OSError("no /sys here")


@pytest.mark.parametrize(
    ("device", "read", "why"),
    [
        (None, unreadable, "no single device"),
        (ON_NODE_1, one_node, "one NUMA node"),
        ("0000:99:00.0", sample.machine, "no GPU is known at 0000:99:00.0"),
        (ON_NODE_1, unreadable, "could not be read"),
    ],
)
def test_otherwise_nothing_is_done(tmp_path: Path, device: str | None, read: object, why: str) -> None:
    """CPU runs, machines with one node, unknown devices: the kernel is not asked, and the reason stands in the status."""
    memory = TwoNodes()
    placed, image = make(tmp_path, memory, device, read)
    assert memory.calls == []
    assert placed.node is None
    assert why in placed.why
    assert image.stat().st_size == SIZE_BYTES


def test_no_room_is_still_an_error(tmp_path: Path) -> None:
    """What `posix_fallocate` refuses passes through, and nothing is left or told."""
    placer = Placer(TwoNodes(), sample.machine)
    with pytest.raises(OSError, match=r"space|large|argument"):
        Arena(tmp_path).new_slot(OwnerRecord(1, 1, 1, 0), 1 << 62, around=partial(placer.around, 0, ON_NODE_1))
    assert list(tmp_path.iterdir()) == []
    assert placer.placed == {}


def test_the_device_comes_with_the_lease(tmp_path: Path) -> None:
    """A trainer says what writes its images; the status shows where the slot was made, in words too."""
    place = Place(tmp_path)
    place.attempt(1)

    async def scenario(node: Node, server: Server) -> None:
        node.tasks.placer._memory, node.tasks.placer._machine = TwoNodes(), sample.machine
        session = _Session(node, server)
        await session.answer(place.hello())
        assert isinstance(await session.answer(m.Lease(HEADER.image_bytes, [], ON_NODE_1)), m.Granted)
        (told,) = status(node)["placement"]
        assert (told["rank"], told["device"], told["node"], told["how"]) == (0, ON_NODE_1, 1, "mbind")
        assert _placement(told) == "slots of rank 0 (device 0000:52:00.0) are made on NUMA node 1: numa_node of the GPU"
        assert nodes_of([told]) == {ON_NODE_1: 1}

    live(place, scenario)


@pytest.mark.skipif(not Path("/sys/devices/system/node/node0").is_dir(), reason="this kernel knows no NUMA nodes")
def test_the_kernels_own_calls(disks: Disks) -> None:
    """For real, on node 0: the policy is set or, where it is refused, CPUs are; the pages lie there, huge or not."""
    placer, arena = Placer(KernelMemory(), sample.machine), Arena(disks.tmpfs("ram", 64 << 20))
    size_bytes = 2 * HUGE_BYTES + 4096
    plain = arena.new_slot(OwnerRecord(1, 1, 1, 0), size_bytes)
    placed = arena.new_slot(OwnerRecord(1, 1, 1, 0), size_bytes, around=partial(placer.around, 0, "0000:12:00.0"))
    assert placed[1] == plain[1]
    found = placer.placed[0]
    assert (found.node, found.problem) == (0, None)
    assert found.lies_on in ((0,), ())  # a seccomp filter may refuse the question


def test_the_check_looks_at_the_slots_that_are_there(tmp_path: Path) -> None:
    """A full node 1: what the agent found is a finding for that GPU alone. What was not looked at is no evidence."""
    stray, _ = make(tmp_path, TwoNodes(full=frozenset({1})), ON_NODE_1)
    unseen = {"device": "0000:62:00.0", "node": 1, "lies_on": []}
    buffers = nodes_of([asdict(stray), unseen, {"device": None, "node": None, "lies_on": []}])
    assert buffers == {ON_NODE_1: 0}
    (finding,) = check_machine(sample.machine(), Question(buffers=buffers))
    assert (finding.code, finding.at) == ("wrong-numa-node", "52:00.0")
