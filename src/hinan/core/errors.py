"""What can go wrong, and what to do next.

    HinanError
    ├── ConfigError          a setting or argument cannot work; nothing was started
    │   ├── BudgetError      the RAM asked for does not fit; the sum and the ways out are in the message
    │   └── TargetError      the target is missing, foreign, read-only or full
    ├── CaptureError         something in the state cannot be kept; its path in the state is named
    │   └── StructureError   the live state and the saved one differ in names, shapes or dtypes
    ├── FormatError          bytes on a tier are not what they should be
    │   ├── FormatFromFuture written by a newer hinan; both versions are named
    │   └── DamageError      a digest or a length is wrong; file and tensor are named
    ├── SavingError          evacuations or commits failed in the background; training state is untouched
    │   └── ArenaFull        no slot was free; train on, the next evacuation may succeed
    ├── NothingToResume      the target is not empty, and nothing in it is usable; what each candidate lacks is listed
    ├── Fenced               a newer attempt of this run has taken over; this process must end
    ├── PeerError            another rank failed or did not answer; the rank is named
    └── AgentError           the node agent could not be started or did not answer in time

Every error carries `retryable` (may the same call succeed later without a change?) and `evidence`, a flat dictionary
that programs can read. The message is for people: it names the thing and the way out.
"""

from __future__ import annotations

from typing import ClassVar


class HinanError(Exception):
    """Base of everything hinan raises on purpose."""

    retryable: ClassVar[bool] = False

    def __init__(self, message: str, **evidence: object) -> None:
        super().__init__(message)
        self.evidence = evidence


class ConfigError(HinanError):
    """A setting or argument cannot work; nothing was started."""


class BudgetError(ConfigError):
    """The RAM asked for does not fit; the message holds the sum and the ways out."""


class TargetError(ConfigError):
    """The target is missing, foreign, read-only or full."""


class CaptureError(HinanError):
    """Something in the state cannot be kept; its path in the state is named."""


class StructureError(CaptureError):
    """The live state and the saved one differ in names, shapes or dtypes, or an object did not load what it had said."""


class FormatError(HinanError):
    """Bytes on a tier are not what they should be."""


class FormatFromFuture(FormatError):
    """Written by a newer hinan; both versions are named."""


class DamageError(FormatError):
    """A digest or a length is wrong; file and tensor are named."""


class SavingError(HinanError):
    """Evacuations or commits failed in the background; the training state is untouched."""

    retryable = True


class ArenaFull(SavingError):
    """No slot was free; train on, the next evacuation may succeed."""


class NothingToResume(HinanError):
    """The target is not empty and nothing in it is usable; the message lists what each candidate lacks."""


class Fenced(HinanError):
    """A newer attempt of this run has taken over; this process must end (exit code 93)."""


class PeerError(HinanError):
    """Another rank failed or did not answer; the rank is named."""


class AgentError(HinanError):
    """The node agent could not be started or did not answer in time."""

    retryable = True
