"""Who this process is for hinan: its run, attempt, rank and place; what it says when it meets the agent."""

from __future__ import annotations

from dataclasses import dataclass

from hinan.core.retention import Keep
from hinan.formats.messages import Hello
from hinan.host.process import this_process
from hinan.trainer.attempt.liaison import Place


@dataclass(frozen=True)
class Identity:
    """One rank of one attempt. `ram_bytes`: the user's RAM budget for this node."""

    run_id: str
    attempt: int
    rank: int
    world_size: int
    local_ranks: int
    place: Place
    keep: Keep
    ram_bytes: int | None

    def hello(self, holding: list[str]) -> Hello:
        """The greeting; `holding`: slots that this process may write into."""
        me = this_process()
        return Hello(
            run_id=self.run_id,
            attempt=self.attempt,
            rank=self.rank,
            local_ranks=self.local_ranks,
            world_size=self.world_size,
            pid=me.pid,
            start_ticks=me.start_ticks,
            holding=holding,
            keep_last=self.keep.last,
            keep_every=self.keep.every,
            ram_bytes=self.ram_bytes,
        )
