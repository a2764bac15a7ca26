"""Waiting for the agent: for a moment of an evacuation, and for the end of a run. Never in a step.

Each wait has a connection of its own, so that it disturbs nobody; an agent that dies meanwhile is started and asked again.
"""

from __future__ import annotations

import time

from hinan.core.errors import AgentError
from hinan.core.ids import StepId
from hinan.formats import messages as m
from hinan.tiers.arena import Arena
from hinan.trainer.attempt.identity import Identity
from hinan.trainer.attempt.liaison import AGENT_START_S, refusal

CLOSE_LOOK_S = 30.0
"""While close() waits for a commit it looks this often whether the agent still answers."""

HELLO_S = 5.0
MOST_DEATHS = 3
_LONGEST_ASK_S = 3600.0


def wait_for(identity: Identity, arena: Arena, step_id: StepId, moment: str, timeout_s: float) -> None:
    """Wait until a step is held everywhere, or committed.

    Raises:
        SavingError: it will not be; the reason is the message.
        AgentError: not in time; ranks that did not evacuate the step are named.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        left = max(0.01, min(deadline - time.monotonic(), _LONGEST_ASK_S))
        try:
            client = identity.place.connect(min(left, AGENT_START_S))
            try:
                answer = client.ask(m.Watch(step_id.attempt, step_id.step, moment), left)
            finally:
                client.close()
        except AgentError:
            if time.monotonic() >= deadline:
                why = _missing(identity, arena, step_id)
                raise AgentError(f"step {step_id.step} was not {moment} within {timeout_s:g} s{why}") from None
            continue
        if isinstance(answer, m.Refused):
            raise refusal(answer)
        return


def _missing(identity: Identity, arena: Arena, step_id: StepId) -> str:
    """Which ranks have not evacuated a step yet."""
    sealed = {f.rank for f in arena.scan() if f.sealed is not None and f.sealed.step_id == step_id}
    missing = sorted(set(range(identity.world_size)) - sealed) if sealed else []
    return f": rank {', '.join(map(str, missing))} did not evacuate it (call it on all ranks alike)" if missing else ""


def ask_to_close(identity: Identity, step: int, *, keep_ram: bool, timeout_s: float) -> m.Answer:
    """The agent's answer when the newest step is committed, or cannot be. As long as the agent works, this waits.

    Raises:
        AgentError: it does not answer a greeting in time (it is frozen), or dies again and again.
    """
    deaths = 0
    while True:
        client = identity.place.connect()
        began = time.monotonic()
        try:
            answer = client.ask(identity.hello([]), max(timeout_s, HELLO_S))
            if isinstance(answer, m.Refused):
                return answer
            return client.ask(m.Close(step, keep_ram), CLOSE_LOOK_S)
        except AgentError as error:
            if error.evidence.get("request") == "hello" and error.evidence.get("timed_out"):
                raise
            deaths += time.monotonic() - began < CLOSE_LOOK_S
            if deaths > MOST_DEATHS:
                raise
        finally:
            client.close()
