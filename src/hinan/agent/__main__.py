"""Entry point of the node agent: one per user, run and node, by a lock held for life (rule B4).

Started by trainers, by `hinan run` and by `hinan agent start`; never by hand. Its standard output is its log.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import logging
import os
import signal
import sys
import time
from pathlib import Path

from hinan.agent import abandoned
from hinan.agent.log import CappedLog
from hinan.agent.loop import Node
from hinan.agent.server import Server
from hinan.core.errors import HinanError
from hinan.formats.records import AgentRecord
from hinan.host.mounts import file_system
from hinan.host.process import this_process
from hinan.tiers.arena import AGENT, Arena
from hinan.tiers.target import Target

log = logging.getLogger("hinan.agent")

IDLE_S = 600.0
"""With no trainer left and everything drained, the agent ends after this long and frees the RAM."""


def main(argv: list[str] | None = None) -> int:
    """Run an agent until it has nothing to do; 0, also when another one holds the lock already."""
    parser = argparse.ArgumentParser(prog="python -m hinan.agent", description=__doc__)
    parser.add_argument("--target", type=Path, required=True)
    parser.add_argument("--arena", type=Path, required=True)
    parser.add_argument("--node", required=True)
    parser.add_argument("--attempt", type=int, default=0, help="whose trainer started this agent; 0: nobody's")
    parser.add_argument("--idle-s", type=float, default=float(os.environ.get("HINAN_AGENT_IDLE_S", IDLE_S)))
    options = parser.parse_args(argv)
    logging.basicConfig(level=logging.INFO, handlers=[CappedLog(options.arena)], force=True)
    Arena(options.arena).create()
    with abandoned.lock(options.arena) as free:
        if not free:
            return 0
        try:
            return asyncio.run(_live(options.target, Arena(options.arena), options.node, options))
        except HinanError as error:
            log.error("ended error=%s", error)
            return 1


async def _live(target_path: Path, arena: Arena, node_name: str, options: argparse.Namespace) -> int:
    target = Target(target_path)
    run_id = target.run().run_id
    arena.sweep()
    me = this_process()
    device = file_system(target_path)
    record = AgentRecord(node_name, run_id, me.pid, me.start_ticks, str(target_path), str(arena.root), device)
    arena.root.joinpath(AGENT).unlink(missing_ok=True)
    arena.publish(AGENT, record)
    with contextlib.suppress(OSError):
        target.publish_agent(record)
    node = Node(arena, target, run_id, node_name)
    server = Server(node)
    _install_signals(node)
    asyncio.get_running_loop().run_in_executor(None, abandoned.reclaim, arena.root)
    listening = await server.listen()
    log.info("agent.started pid=%d run=%s node=%s arena=%s", me.pid, run_id, node_name, arena.root)
    watcher = asyncio.create_task(_watch_idle(node, server, options.idle_s, options.attempt))
    try:
        await node.run()
    finally:
        watcher.cancel()
        listening.close()
    await node.finish()
    _part(node, arena)
    log.info("agent.ended reason=%s", node.stop_reason)
    sys.stdout.flush()
    os._exit(0)  # a thread may hang on a dead mount; nothing of ours is left to do


def _install_signals(node: Node) -> None:
    def stop(name: str) -> None:
        node.stop_reason = name
        node.look()

    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, stop, "SIGTERM")
    for number in (signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)  # a terminal's signals are for the training job, not for its RAM copy


async def _watch_idle(node: Node, server: Server, idle_s: float, attempt: int) -> None:
    """End when there is nothing left to keep: at once after a clean close, else after the idle time."""
    idle_since = time.monotonic()
    while True:
        await asyncio.sleep(min(0.5, idle_s / 4))
        if not node.is_idle:
            idle_since = time.monotonic()
            continue
        idle = time.monotonic() - idle_since
        if node.snapshot.gone:
            node.stop_reason = "the target is gone"
        elif server.connections == 0 and (node.ram_is_spare or _came_too_late(node, attempt)):
            node.stop_reason = "the run is closed"
        elif idle > idle_s:
            node.stop_reason = f"idle for {idle_s:g} s"
        node.look()


def _came_too_late(node: Node, attempt: int) -> bool:
    """Whether the attempt whose trainer started this agent has closed meanwhile, and left nothing here."""
    return node.snapshot.closed and node.snapshot.history.newest_claim == attempt and not node.slots


def _part(node: Node, arena: Arena) -> None:
    """Free the RAM if nobody needs it; otherwise it stays for the next attempt, with its owner record."""
    arena.root.joinpath("agent.sock").unlink(missing_ok=True)
    if node.trainers.alive or node.stop_reason in ("SIGTERM",) or (node.stop_reason or "").startswith("asked"):
        return
    # Why not at once when the target is gone: it may lie on a mount that is only away for now.
    if node.ram_is_spare or abandoned.why_needed(arena) is None:
        arena.wipe()


if __name__ == "__main__":
    sys.exit(main())
