"""Starting an attempt: one run, one target, one number, agreed by all ranks (rules A1, A2, A6)."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hinan.core.errors import ConfigError, HinanError, TargetError
from hinan.formats.records import ClaimRecord, now_text
from hinan.host.mounts import wait_until_seen
from hinan.host.node import node_name
from hinan.host.process import Process, this_process
from hinan.host.signals import ours
from hinan.tiers.arena import Arena
from hinan.tiers.new_run import RUN
from hinan.tiers.publish import AlreadyPublished
from hinan.tiers.target import Target
from hinan.trainer.attempt.ranks import Ranks

log = logging.getLogger("hinan")

DYING_S = 10.0
"""A launcher kills the old ranks before it starts new ones; one that is still ending gets this long."""

_LOOK_EVERY_S = 0.05
_LAUNCHER_VARIABLES = (
    "TORCHELASTIC_RUN_ID", "TORCHELASTIC_RESTART_COUNT", "TORCHELASTIC_MAX_RESTARTS", "SLURM_JOB_ID", "SLURM_RESTART_COUNT",
)  # fmt: skip


def warn_of_shared_store() -> None:
    """Name the torchrun setting without which restarts on one host are unreliable."""
    restarts = os.environ.get("TORCHELASTIC_MAX_RESTARTS", "0")
    if restarts != "0" and os.environ.get("TORCH_DISABLE_SHARE_RDZV_TCP_STORE") != "1":
        log.warning(
            "torchrun keeps one store over restarts, in which new ranks can meet the addresses of killed ones and hang: "
            "set TORCH_DISABLE_SHARE_RDZV_TCP_STORE=1, or start with `hinan run`, which does"
        )


def agree_on_arguments(mine: Mapping[str, str], ranks: Ranks) -> None:
    """Every rank was started with the same arguments, of those that count for the whole job.

    Raises:
        ConfigError: they were not; each value is printed with its ranks. No rank has touched anything then.
    """
    asked: list[Any] = ranks.all(dict(mine), "comparing arguments")
    lines = []
    for name in mine:
        who: dict[str, list[int]] = {}
        for rank, one in enumerate(asked):
            who.setdefault(one.get(name, "?"), []).append(rank)
        if len(who) > 1:
            said = "; ".join(f"{value} (rank {', '.join(map(str, of))})" for value, of in who.items())
            lines.append(f"  {name}: {said}")
    if lines:
        raise ConfigError("the ranks were started with different arguments:\n" + "\n".join(lines))


def agree_on_run(path: Path, ranks: Ranks) -> tuple[Target, str]:
    """The target and the run id that all ranks were started with.

    Raises:
        TargetError: the target cannot be used.
        ConfigError: ranks were started with different targets; every value is printed.
    """
    target = Target(path)
    run_id, failure = "", None
    if ranks.rank == 0:
        try:
            run_id = target.open_or_create().run_id
        except HinanError as error:
            failure = error
    ranks.agree(failure, "opening the target")
    ranks.from_first(run_id, "making the run")  # the run exists now, whoever looks
    wait_until_seen((path / RUN).exists, path)
    try:
        mine = target.run().run_id
    except HinanError:
        mine = ""
    seen = ranks.all([str(path), mine, node_name(), ranks.world_size], "comparing targets")
    runs = {str(item[1]) for item in seen if isinstance(item, list)}
    if len(runs) > 1 or "" in runs:
        lines = [
            f"  rank {i}: {v[0]} ({'run ' + v[1] if v[1] else 'no run there'})"
            for i, v in enumerate(seen)
            if isinstance(v, list)
        ]
        raise ConfigError("the ranks were started with different targets:\n" + "\n".join(lines))
    nodes = {str(item[2]) for item in seen if isinstance(item, list)}
    if len(nodes) > 1:
        raise ConfigError(f"ranks on several hosts ({', '.join(sorted(nodes))}) are not supported yet; use one host")
    return target, mine


def mint_attempt(target: Target, run_id: str, ranks: Ranks, arena: Arena, *, take_over: bool) -> int:
    """Claim the next attempt on rank 0 and tell every rank.

    Raises:
        TargetError: the previous attempt's trainers still run; their pid is named.
    """
    attempt, failure = 0, None
    if ranks.rank == 0:
        try:
            attempt = _claim(target, run_id, ranks.world_size, arena, take_over=take_over)
        except ours(HinanError, OSError) as error:
            failure = error
    ranks.agree(failure, "claiming an attempt")
    minted = ranks.from_first(attempt, "telling the attempt")
    assert isinstance(minted, int)
    return minted


def _claim(target: Target, run_id: str, world_size: int, arena: Arena, *, take_over: bool) -> int:
    me = this_process()
    launcher = {name: os.environ[name] for name in _LAUNCHER_VARIABLES if name in os.environ}
    attempt = 0
    while True:
        if not take_over:
            _wait_for_the_end(target, arena)  # asked before each try: somebody who was faster by a moment is alive
        attempt = max(attempt, target.history().newest_claim) + 1
        record = ClaimRecord(
            attempt=attempt,
            run_id=run_id,
            node=node_name(),
            pid=me.pid,
            start_ticks=me.start_ticks,
            world_size=world_size,
            created=now_text(),
            launcher=launcher,
        )
        try:
            target.publish_attempt(record)
        except AlreadyPublished:
            continue
        return attempt


def _wait_for_the_end(target: Target, arena: Arena) -> None:
    """Whoever made the newest claim on this node, and whoever may still write into its slots, must have ended."""
    claims = target.claims()
    newest = claims.get(max(claims, default=0))
    if newest is None or newest.node != node_name():
        return
    owners = [files.owner for files in arena.scan()] if arena.exists else []
    previous = {Process(newest.pid, newest.start_ticks), *(Process(o.pid, o.start_ticks) for o in owners)}
    previous.discard(this_process())
    deadline = time.monotonic() + DYING_S
    while alive := sorted(who.pid for who in previous if who.is_alive):
        if time.monotonic() > deadline:
            raise TargetError(
                f"attempt {newest.attempt} of the run at {target.root} is still running (pid {alive[0]} on "
                f"{newest.node}): end it first, use another target, or take the run over with take_over=True",
                pid=alive[0],
                attempt=newest.attempt,
            )
        time.sleep(_LOOK_EVERY_S)  # bounded by the deadline; a foreign process's end has no event for us
