"""XML that may be cut: everything up to the first error, as plain elements.

Owns:      the one place where XML is parsed.
Promises:  a cut file gives the elements that were whole (start tags), and a note. Entity declarations are refused, so a
           small file cannot become a large one.
"""

from __future__ import annotations

import re
from xml.etree.ElementTree import Element, ParseError, XMLPullParser

from hinan.core.errors import FormatError


def parse(text: str) -> tuple[Element | None, tuple[str, ...]]:
    """Root element and notes; (None, notes) when not one element was whole.

    Raises:
        FormatError: the file declares entities.
    """
    if "<!ENTITY" in text:
        raise FormatError("this XML declares entities; no topology file does, so it is not read")
    body = re.sub(r"^\s*<\?xml[^>]*\?>", "", text.lstrip())  # the text is decoded already
    parser: XMLPullParser[Element] = XMLPullParser(events=("start",))
    root: Element | None = None
    cut = False
    try:
        parser.feed(body)
        parser.close()
    except ParseError:
        cut = True
    try:
        events: list[tuple[str, Element]] = list(parser.read_events())  # type: ignore[arg-type]  # typeshed says Any pairs
        root = events[0][1] if events else None
    except ParseError:
        cut = True
    return root, ("the XML is cut or damaged: what stands before the error was read",) if cut else ()


def mask_bits(text: str | None) -> tuple[int, ...] | None:
    """Set bits of a CPU or node mask, "0x000000ff,,0xffff0000" or "ff,ffff0000"; None if it is not one."""
    if text is None or not re.fullmatch(r"(?:(?:0x)?[0-9a-fA-F]{0,8},)*(?:0x)?[0-9a-fA-F]{1,16}", text):
        return None
    value = 0
    for group in text.split(","):
        value = value << 32 | int(group or "0", 16)
    return tuple(bit for bit in range(value.bit_length()) if value >> bit & 1)
