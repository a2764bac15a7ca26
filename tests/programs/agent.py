"""A node agent with a fault in it: the product's own, forked like a trainer, with hooks where the fault list wants them."""

from __future__ import annotations

import errno
import os
import signal
import time
from pathlib import Path
from typing import Any

import hinan.agent.__main__ as entry
import hinan.agent.drainer as drainer
import hinan.agent.loop as loop
import hinan.agent.tasks as tasks
import hinan.tiers.durable as durable
from hinan.core.commit import DrainEffect
from hinan.host.process import Process


def main(
    target: str,
    arena: str,
    node: str,
    idle_s: float = 30.0,
    piece_bytes: int = 0,
    first_wait_s: float = 0.0,
    unreachable_after_s: float = 0.0,
    heartbeat_s: float = 0.0,
    grace_s: float = 0.0,
    die: dict[str, Any] | None = None,
    hold: dict[str, Any] | None = None,
    fail: dict[str, Any] | None = None,
    crash: dict[str, Any] | None = None,
    hang_file: str = "",
    no_room_file: str = "",
) -> None:
    """Run an agent.

    Args:
        piece_bytes: write images in pieces of this size, so that small ones have a middle.
        first_wait_s, unreachable_after_s, heartbeat_s, grace_s: the agent's own waits, shortened.
        die: {step, do, rank, share}: SIGKILL itself at this place of the drain of this step, once its trainers are dead.
        hold: {do, file}: at this effect wait as long as the file exists; `<file>.reached` tells that it does.
        fail: {do, errno, file}: raise this error at this effect as often as the file has bytes, one fewer each time;
            with `always`, as long as the file exists.
        no_room_file: no digests find room in the tmpfs as long as this file exists.
        crash: {do, rank, how, file}: at this effect a bug: an exception nobody expects (raise), os._exit(17) (exit) or
            SIGKILL (kill), as often as the file has bytes.
        hang_file: reading the target hangs as long as this file exists.
    """
    if piece_bytes:
        durable.PIECE_BYTES = piece_bytes
    if first_wait_s:
        drainer.FIRST_WAIT_S = first_wait_s
    if unreachable_after_s:
        loop.UNREACHABLE_AFTER_S = unreachable_after_s
    if heartbeat_s:
        loop.HEARTBEAT_S = heartbeat_s
    if grace_s:
        loop.GRACE_S = grace_s
    if hang_file:
        whole = loop.take_snapshot

        def hanging(*arguments: Any) -> Any:
            wait_while(hang_file)
            return whole(*arguments)

        loop.take_snapshot = hanging

    if no_room_file:
        prove = tasks.prove

        def proving(*arguments: Any, **named: Any) -> Any:
            if os.path.exists(no_room_file):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return prove(*arguments, **named)

        tasks.prove = proving

    class Faulty(drainer.Drainer):
        def drain(self, what: drainer.Round) -> float:
            doomed = die is not None and what.step_id.step == die["step"]
            while doomed and any(Process(f.owner.pid, f.owner.start_ticks).is_alive for f in what.slots.values()):
                time.sleep(0.002)

            def observe(effect: DrainEffect, share: float) -> None:
                if die and doomed and effect.do.name == die["do"] and effect.rank == die.get("rank") \
                        and share >= die.get("share", 0.0):  # fmt: skip
                    os.kill(os.getpid(), signal.SIGKILL)
                if hold and effect.do.name == hold["do"] and share == 0.0 and os.path.exists(hold["file"]):
                    Path(hold["file"] + ".reached").write_text(str(what.step_id.step))
                    wait_while(hold["file"])
                if fail and effect.do.name == fail["do"] and share == 0.0 \
                        and effect.rank == fail.get("rank", effect.rank) \
                        and spend(Path(fail["file"]), fail):  # fmt: skip
                    raise OSError(fail["errno"], os.strerror(fail["errno"]))
                if crash and effect.do.name == crash["do"] and effect.rank == crash["rank"] and share == 0.0 \
                        and spend(Path(crash["file"]), crash):  # fmt: skip
                    fall(crash["how"])

            self.observe = observe
            return super().drain(what)

    tasks.Drainer = Faulty  # type: ignore[misc]
    entry.main(["--target", target, "--arena", arena, "--node", node, "--idle-s", str(idle_s)])


def wait_while(path: str) -> None:
    """Return when a file is gone."""
    while os.path.exists(path):
        time.sleep(0.002)


def fall(how: str) -> None:
    """End a drain, or this process, in a way that no code expects."""
    if how == "exit":
        os._exit(17)
    if how == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    raise RuntimeError("a bug in the writer")


def spend(path: Path, fail: dict[str, Any]) -> bool:
    """Whether a failure is left in the file; takes one."""
    if not path.exists():
        return False
    left = path.read_bytes()
    if not fail.get("always"):
        path.write_bytes(left[1:])
    return bool(left)
