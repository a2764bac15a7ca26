"""The texts of a machine as they may be shown: what a reader took from JSON or XML can hold what no text file could.

Owns:      the one place through which every machine passes between its readers and everything else.
Promises:  no control character of any source reaches a terminal, a picture or a capture file.
"""

from __future__ import annotations

from typing import Any

import msgspec

from hinan.wire.facts.model import Machine
from hinan.wire.facts.text import printable


def plain(machine: Machine) -> Machine:
    """The same machine, each of its texts printable."""
    told = msgspec.to_builtins(machine, str_keys=True)
    shown = _shown(told)
    return machine if shown == told else msgspec.convert(shown, Machine, str_keys=True)


def _shown(value: Any) -> Any:
    if isinstance(value, str):
        return value if value.isascii() and value.isprintable() else printable(value)
    if isinstance(value, dict):
        return {_shown(key): _shown(each) for key, each in value.items()}
    return type(value)(map(_shown, value)) if isinstance(value, list | tuple) else value
