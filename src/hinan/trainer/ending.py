"""How a run ends in this process: on purpose, or because the interpreter ends without `close()`."""

from __future__ import annotations

import logging
import os
import sys

from hinan.core.errors import AgentError, Fenced, HinanError, SavingError
from hinan.formats import messages as m
from hinan.trainer.attempt.identity import Identity
from hinan.trainer.attempt.liaison import FENCED, refusal
from hinan.trainer.attempt.waiting import ask_to_close
from hinan.trainer.evacuating.handle import Handle

log = logging.getLogger("hinan")


def warn_of_unsaved_steps(last: Handle | None, step: int, put_off: int) -> None:
    """The loop ended after its last evacuation: what came since is not kept.

    Args:
        put_off: step at which an evacuation was due that waits for the end of an accumulation; 0 if none waits.
    """
    if last is None or last.step < step:
        log.warning(
            "close: the last evacuation was at step %s, the loop ended at %d%s; call evac.evacuate() before close() to "
            "keep the end", "-" if last is None else last.step, step,
            f" in an accumulation, for whose end what was due at step {put_off} was waiting" if put_off else "",
        )  # fmt: skip


def close_run(identity: Identity, last: Handle | None, step: int, *, keep_ram: bool, timeout_s: float) -> None:
    """Wait until the newest evacuated step is committed.

    Raises:
        SavingError: it could not be; it stays in RAM.
        Fenced: a newer attempt has taken over.
    """
    try:
        answer = ask_to_close(identity, step, keep_ram=keep_ram, timeout_s=timeout_s)
    except AgentError as silent:
        newest = "nothing" if last is None else f"step {last.step}" + (", which was lost" if last.lost is not None else "")
        raise SavingError(
            f"the run could not be closed: {silent}. Last evacuated was {newest}; what RAM holds stays there, and the next "
            "attempt or a new agent commits it (`hinan agent start`; `hinan decide` shows it)"
        ) from silent
    if isinstance(answer, m.Refused):
        raise refusal(answer) if answer.kind == FENCED else SavingError(f"the run was closed, but {answer.reason}")


def end_without_close(last: Handle | None, timeout_s: float) -> None:
    """The interpreter ends: wait a moment for the newest step, and say what becomes of it."""
    if last is None:
        return
    try:
        last.wait("committed", timeout_s)
    except SavingError as error:
        if last.lost is not None:
            return  # said when it happened; the steps before it are the agent's
        # A run must not end "green" while its last step cannot be committed, and a status can only be set so.
        sys.stderr.write(f"hinan: ended without close(), and {error}. It stays in RAM, and the next attempt finds it.\n")
        logging.shutdown()
        sys.stdout.flush()
        os._exit(1)
    except Fenced as error:
        log.warning(
            "ended without close(): %s. What this attempt has made since the step which that one resumed from is on no "
            "lineage any more: an orphan, which is not drained", error,
        )  # fmt: skip
    except HinanError as error:
        log.warning("ended without close(): %s; the agent drains it from RAM in the background", error)
