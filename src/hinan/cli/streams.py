"""Standard output and error for terminals that cannot show every letter.

Owns:      what µ, × and … become where the encoding has no room for them (LANG=C, PYTHONIOENCODING=ascii).
Promises:  a letter is never the reason why a verb ends with a traceback, and a unit stays readable.
"""

from __future__ import annotations

import codecs
import io
import sys

_PLAIN = {"µ": "u", "μ": "u", "×": "x", "…": "...", "·": "-"}
_NAME = "hinan-plain"


def plain(error: UnicodeError) -> tuple[str, int]:
    """The error handler: `str.encode(encoding, _NAME)` calls it for letters that the encoding has not.

    Raises:
        UnicodeError: the error itself, where it is not about encoding.
    """
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(_PLAIN.get(letter, "?") for letter in error.object[error.start : error.end]), error.end


def make_tolerant() -> None:
    """Let standard output and error replace what they cannot show."""
    codecs.register_error(_NAME, plain)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors=_NAME)
