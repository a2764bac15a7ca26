"""A target and an arena of one run without any trainer, for tests that live inside an agent's process."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import msgspec

from hinan.agent.loop import Node
from hinan.agent.server import Server
from hinan.core.ids import StepId, image_file, manifest_file
from hinan.formats import messages as m
from hinan.formats import records as r
from hinan.formats.image import Entry, lay_out
from hinan.host.process import this_process
from hinan.tiers.arena import AGENT, SEALED, Arena
from hinan.tiers.target import Target

RAW, HEADER = lay_out([Entry("x", "F32", (1024,))], {})
DEAD = (1, 0)


class Place:
    """A target and an arena of one run, with images in them."""

    def __init__(self, root: Path) -> None:
        self.target = Target(root / "target")
        self.run_id = self.target.open_or_create().run_id
        self.arena = Arena(root / "tmpfs" / "hinan-0" / self.run_id / "here")
        self.arena.create()
        me = this_process()
        self.me = (me.pid, me.start_ticks)
        self.arena.publish(AGENT, r.AgentRecord("here", self.run_id, *DEAD, str(self.target.root), str(self.arena.root)))

    def node(self) -> Node:
        return Node(self.arena, self.target, self.run_id, "here")

    def attempt(self, n: int, parent: StepId | None = None, owner: tuple[int, int] | None = None) -> None:
        self.target.publish_attempt(r.ClaimRecord(n, self.run_id, "here", *(owner or self.me), 1, ""))
        self.target.publish_attempt(r.ResumeRecord(n, parent.attempt if parent else None, parent.step if parent else 0, ""))

    def sealed(self, step_id: StepId, rank: int = 0, owner: tuple[int, int] = DEAD, world_size: int = 1) -> str:
        slot, _ = self.arena.new_slot(r.OwnerRecord(*owner, step_id.attempt, rank), HEADER.image_bytes)
        self.fill(slot, step_id, rank, world_size)
        return slot

    def fill(self, slot: str, step_id: StepId, rank: int = 0, world_size: int = 1, header_sum: str = "") -> None:
        with self.arena.path(slot).open("r+b") as image:
            image.write(RAW)
        self.arena.publish(slot + SEALED, self.seal(step_id, rank, world_size, header_sum))

    def seal(self, step_id: StepId, rank: int = 0, world_size: int = 1, header_sum: str = "") -> r.SealedRecord:
        sum_ = header_sum or r.fact_sum(RAW)
        small = msgspec.Raw(b"{}")
        return r.SealedRecord(*step_id, rank, world_size, "here", HEADER.image_bytes, sum_, small, 0, "", 0.0)

    def commit(self, step_id: StepId) -> None:
        directory = self.target.make_directory(step_id)
        (directory / image_file(0)).write_bytes(RAW)
        proven = r.ProvenRecord(*step_id, 0, "", 1, [], late=False)
        (directory / manifest_file(0)).write_bytes(r.encode(r.ManifestRecord(self.seal(step_id), proven)))
        assert self.target.manifest(step_id, 0) is not None
        self.target.publish_commit(step_id, 1)

    def hello(self, attempt: int = 1, **more: object) -> m.Hello:
        return m.Hello(self.run_id, attempt, 0, 1, 1, *self.me, **more)  # type: ignore[arg-type]


def live(place: Place, scenario: Callable[[Node, Server], Awaitable[None]]) -> None:
    """Play a scenario against a living node."""

    async def main() -> None:
        node = place.node()
        server = Server(node)
        life = asyncio.create_task(node.run())
        try:
            async with asyncio.timeout(20):
                await scenario(node, server)
        finally:
            node.stop_reason = "the test is over"
            node.look()
            await life
            await node.finish()

    asyncio.run(main())
