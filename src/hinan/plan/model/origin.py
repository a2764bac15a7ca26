"""Where a number comes from: measured, given by the designer, a sourced default, or a guess that says so; of links also
what they can do at most (ceiling), or what the machine says of itself (reported).

Owns:      the value `Origin` and the way it is printed.
Never:     holds the number itself; numbers stay plain floats with their unit in the name.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Kind(StrEnum):
    """How far a number can be trusted."""

    MEASURED = "measured"
    GIVEN = "given"
    CEILING = "ceiling"
    REPORTED = "reported"
    DEFAULT = "default"
    GUESSED = "guessed"


@dataclass(frozen=True)
class Origin:
    """Kind and source of one input."""

    kind: Kind
    source: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.source}"


GIVEN = Origin(Kind.GIVEN, "command line")


def default(source: str) -> Origin:
    """A published or documented number."""
    return Origin(Kind.DEFAULT, source)


def guessed(source: str) -> Origin:
    """No source: say why this value, and replace it by a measurement."""
    return Origin(Kind.GUESSED, source)


def measured(source: str) -> Origin:
    """Measured by someone on such a machine; where it was published."""
    return Origin(Kind.MEASURED, source)
