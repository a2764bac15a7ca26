"""Text as people send it: colours, code fences, other encodings, decimal commas, a last line cut in the middle.

Owns:      turning bytes into clean lines, and numbers in any locale into floats.
Promises:  never raises on content. A last line without its newline is marked, so that a reader can refuse half a
           number.
"""

from __future__ import annotations

import re

MAX_BYTES = 64 << 20
_ANSI = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_()][A-Z0-9]?)")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
_BREAKS = re.compile(r"[\t\n\r\u2028\u2029]+")
_NEVER_SHOWN = re.compile(r"[\u200e\u200f\u202a-\u202e\u2066-\u2069\ufffe\uffff\ud800-\udfff]")
"""What turns a line round, and what neither UTF-8 nor XML can hold."""

_BOMS = ((b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"), (b"\xef\xbb\xbf", "utf-8-sig"))


def decode(data: bytes) -> str:
    """Text of `data`: byte-order marks are believed, otherwise UTF-8; bytes that are neither become U+FFFD."""
    for mark, encoding in _BOMS:
        if data.startswith(mark):
            return data.decode(encoding, errors="replace")
    return data.decode("utf-8", errors="replace")


def clean(text: str) -> str:
    """Without colours, control characters and carriage returns; no-break spaces become spaces."""
    plain = _ANSI.sub("", text).replace("\r\n", "\n").replace("\r", "\n").replace("\u00a0", " ").replace("\u202f", " ")
    return _CONTROL.sub("", plain)


def printable(text: str) -> str:
    """One line that a terminal and XML can take: without colours, control characters, line breaks, half characters."""
    return _NEVER_SHOWN.sub("", _BREAKS.sub(" ", clean(text))).strip()


def whole_lines(text: str) -> tuple[list[str], str | None]:
    """Lines that ended with a newline, and the last one if it did not: it may be cut in the middle of a number."""
    lines = text.split("\n")
    last = lines.pop()
    return lines, last if last.strip() else None


def number(text: str | None) -> float | None:
    """A float written with a point or a comma; None if it is not one, is negative or is not finite."""
    if text is None or not re.fullmatch(r"\s*[0-9]{1,15}(?:[.,][0-9]{1,15})?\s*", text):
        return None
    return float(text.replace(",", "."))


def count(text: str | None, digits: int = 9) -> int | None:
    """An int from decimal digits; None if it is not one, or has more of them than what is counted can have."""
    return int(text) if text is not None and re.fullmatch(rf"[0-9]{{1,{digits}}}", text) else None


def hex_number(text: str | None) -> int | None:
    """An int from hexadecimal digits with or without 0x; None if it is not one."""
    if text is None or not re.fullmatch(r"\s*(?:0x)?[0-9a-fA-F]{1,16}\s*", text):
        return None
    return int(text, 16)


def int_list(text: str) -> tuple[int, ...] | None:
    """CPU or node lists: "0,3-9,11" becomes (0, 3, ..., 9, 11); None if it is not a list, or longer than a machine."""
    found: list[int] = []
    for part in text.strip().split(","):
        match = re.fullmatch(r"\s*([0-9]{1,5})(?:-([0-9]{1,5}))?\s*", part)
        if match is None:
            return None
        first, last = int(match[1]), int(match[2] or match[1])
        if last < first:
            return None
        found.extend(range(first, last + 1))
    return tuple(dict.fromkeys(found))
