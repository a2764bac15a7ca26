"""What can be found wrong on a path: the record, and the words for it."""

from __future__ import annotations

import msgspec


class Finding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that slows or endangers an evacuation.

    effect_s: time it costs for the state that was asked about [s]; None when no state was given or nobody can say.
    """

    code: str
    gpu: int | None
    at: str | None
    evidence: str
    effect: str
    effect_s: float | None
    fix: str
