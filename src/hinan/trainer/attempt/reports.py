"""Failures in the background reach the user at the next call: logged, counted, and raised when there are too many."""

from __future__ import annotations

import logging

from hinan.core.errors import ArenaFull, SavingError
from hinan.trainer.attempt.liaison import Liaison

log = logging.getLogger("hinan")


def attend(liaison: Liaison, tolerate: int) -> None:
    """Report what the agent has told since the last look.

    Args:
        tolerate: failed commits in a row that are only reported.
    Raises:
        SavingError: there were more of them.
        BudgetError, Fenced: the agent has refused what was asked in the background.
    """
    news = liaison.take_news()
    for text in news:
        log.error("report %s", text)
    try:
        liaison.check()
    except ArenaFull as error:  # asked for again at the next evacuation
        log.error("report %s", error)
    if liaison.failed_in_a_row > tolerate:
        raise SavingError(
            f"{liaison.failed_in_a_row} commits in a row have failed; the last: {news[-1] if news else 'see the log'}. "
            "Training state is untouched; mend the target, or allow more with tolerate=.",
            failed_in_a_row=liaison.failed_in_a_row,
        )
