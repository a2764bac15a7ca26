"""The ranks of the job as hinan talks to them: bytes over one gloo group of our own, with a time-out (rule M3).

Used at start, at restore and at nothing else; the trainer's own groups are never touched.
"""

from __future__ import annotations

import os
from datetime import timedelta

import msgspec
import torch
import torch.distributed as dist

from hinan.core.errors import ConfigError, PeerError

RESTORE_TIMEOUT_S = 300.0


class Ranks:
    """This process among the ranks. Collective to construct where there is more than one."""

    def __init__(self, timeout_s: float = RESTORE_TIMEOUT_S) -> None:
        """
        Args:
            timeout_s: how long ranks wait for each other, here and in each exchange.
        Raises:
            ConfigError: a launcher started several ranks, and there is no process group yet.
            PeerError: this rank could not join the group, or another one did not in time.
        """
        self._timeout = timedelta(seconds=timeout_s)
        launched = int(os.environ.get("WORLD_SIZE", "1"))
        if not (dist.is_available() and dist.is_initialized()):
            if launched > 1:
                raise ConfigError(
                    f"the launcher started {launched} ranks (WORLD_SIZE), but torch.distributed is not initialised: "
                    "call torch.distributed.init_process_group() before making the Evacuator"
                )
            self.rank, self.world_size, self._group = 0, 1, None
        else:
            self.rank, self.world_size = dist.get_rank(), dist.get_world_size()
            self._group = self._joined() if self.world_size > 1 else None

    def _joined(self) -> dist.ProcessGroup:
        try:
            group: dist.ProcessGroup = dist.new_group(backend="gloo", timeout=self._timeout)
        except (RuntimeError, ValueError) as error:
            raise PeerError(
                f"rank {self.rank} could not join hinan's own process group of {self.world_size} ranks: {error}. It is "
                "made over gloo: all ranks must construct the Evacuator, and reach each other over the interface that "
                "GLOO_SOCKET_IFNAME or the host name stands for.",
                rank=self.rank,
            ) from error
        return group

    @property
    def local_ranks(self) -> int:
        """Ranks on this node."""
        return int(os.environ.get("LOCAL_WORLD_SIZE", self.world_size))

    def all(self, value: object, what: str) -> list[object]:
        """Everybody's value (plain JSON types), in rank order.

        Raises:
            PeerError: some rank did not take part in time; its number and `what` are named.
        """
        if self._group is None:
            return [value]
        data = torch.frombuffer(bytearray(msgspec.json.encode(value)), dtype=torch.uint8)
        try:
            dist.monitored_barrier(self._group, self._timeout, wait_all_ranks=True)
            lengths = [torch.zeros(1, dtype=torch.int64, device="cpu") for _ in range(self.world_size)]
            dist.all_gather(lengths, torch.tensor([data.numel()], device="cpu"), group=self._group)
            padded = torch.zeros(int(max(int(n) for n in lengths)), dtype=torch.uint8, device="cpu")
            padded[: data.numel()] = data
            gathered = [torch.zeros_like(padded) for _ in range(self.world_size)]
            dist.all_gather(gathered, padded, group=self._group)
        except RuntimeError as error:
            raise PeerError(f"rank {self.rank}: not all ranks took part in {what!r}: {error}", what=what) from None
        return [
            msgspec.json.decode(bytes(text[: int(n)].numpy().tobytes())) for text, n in zip(gathered, lengths, strict=True)
        ]

    def from_first(self, value: object, what: str) -> object:
        """Rank 0's value on every rank."""
        return self.all(value if self.rank == 0 else None, what)[0]

    def agree(self, failure: Exception | None, what: str) -> None:
        """Let every rank know whether `what` worked everywhere.

        Raises:
            the own failure, or PeerError naming the ranks that failed and why.
        """
        texts = self.all(None if failure is None else str(failure), what)
        if failure is not None:
            raise failure
        if failed := [f"rank {rank}: {text}" for rank, text in enumerate(texts) if text is not None]:
            raise PeerError(f"{what} failed on {'; '.join(failed)}", what=what)
