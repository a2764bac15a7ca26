"""Which committed steps may be deleted (rules F2, F3): the newest ones stay, and so does what the run resumed from."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from hinan.core.errors import ConfigError
from hinan.core.ids import StepId
from hinan.core.lineage import Lineage


@dataclass(frozen=True)
class Keep:
    """How many committed steps stay on the target.

    Args:
        last: the newest this many stay; at least 1, None keeps all.
        every: besides those, each step that is a multiple of this stays for good; None: no such steps.

    Raises:
        ConfigError: `last` or `every` below 1. (Some tools read 0 or -1 as "all" and then delete all.)

    While a new step is being written there is one more than `last` for a while: nothing is deleted before its successor
    is committed.
    """

    last: int | None = 3
    every: int | None = None

    def __post_init__(self) -> None:
        for name, value in (("last", self.last), ("every", self.every)):
            if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < 1):
                raise ConfigError(f"Keep({name}={value!r}): use a whole number of at least 1, or None for no limit")


def removable(
    committed: Iterable[StepId],
    line: Lineage,
    keep: Keep,
    *,
    resumed_from: StepId | None,
    w: StepId | None,
) -> tuple[StepId, ...]:
    """Committed steps that may be deleted, oldest first.

    Only steps on the lineage count towards `keep` and only they are deleted; orphans go by an explicit word alone.
    The step the run resumed from stays until a newer one is both held everywhere in RAM and committed here.
    """
    known = sorted(s for s in committed if s in line)
    if keep.last is None:
        return ()
    newest = known[-1] if known else None
    passed = (
        newest is not None and w is not None and resumed_from is not None and newest > resumed_from and w > resumed_from
    )
    pinned = set() if passed or resumed_from is None else {resumed_from}
    kept_for_good = {s for s in known if keep.every is not None and s.step % keep.every == 0}
    return tuple(s for s in known[: -keep.last] if s not in pinned and s not in kept_for_good)
