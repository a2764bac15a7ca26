"""What is said when the interpreter ends without `close()`."""

from __future__ import annotations

import pytest

from hinan.core.errors import AgentError, Fenced, HinanError
from hinan.core.ids import StepId
from hinan.trainer.ending import end_without_close
from hinan.trainer.evacuating.handle import Handle


@pytest.mark.parametrize(
    ("error", "said", "not_said"),
    [
        (Fenced("attempt 2 of this run has started; attempt 1 must end"), "an orphan, which is not drained", "background"),
        (AgentError("step 5 was not committed within 10 s"), "drains it from RAM in the background", "orphan"),
    ],
    ids=["fenced", "slow"],
)
def test_what_becomes_of_the_newest_step(
    error: HinanError, said: str, not_said: str, caplog: pytest.LogCaptureFixture
) -> None:
    """An attempt that was overtaken leaves orphans: nobody drains them, and it must not say so."""

    def fails(step_id: StepId, moment: str, timeout_s: float) -> None:
        raise error

    end_without_close(Handle(StepId(1, 5), fails), 10.0)
    (record,) = caplog.records
    assert str(error) in record.message
    assert said in record.message
    assert not_said not in record.message
