"""Quantities as people write them: `parse_bytes("200GiB")`, `parse_bytes_per_s("4Gb/s")`, `parse_seconds("30s")`, and back.

Sizes and times take any case; rates do not, because there it tells bits from bytes. A size in "Gb" is refused: it may be
bits.
"""

from __future__ import annotations

import math
import re

from hinan.core.errors import ConfigError

_BYTES = {"": 1, "b": 1} | {
    f"{prefix}{suffix}": base**power
    for power, prefix in enumerate("kmgtp", start=1)
    for suffix, base in (("", 1000), ("b", 1000), ("ib", 1024))
}
_SECONDS = {
    "us": 1e-6,
    "µs": 1e-6,
    "μs": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "sec": 1.0,
    "m": 60.0,
    "min": 60.0,
    "h": 3600.0,
    "d": 86400.0,
}
_BITS = re.compile(r"\s*([0-9.eE+-]+)\s*([KMGTP]i?)b\s*")
_RATE = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?)\s*(?:([kKMGTP])(i?))?(B|b|bit)(?:/s|ps)\s*")
_QUANTITY = re.compile(r"\s*([0-9]+(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?)\s*([A-Za-zµμ]*)\s*")


def _parse(text: str, units: dict[str, float], what: str, example: str) -> float:
    match = _QUANTITY.fullmatch(text)
    factor = units.get(match.group(2).lower()) if match else None
    if match is None or factor is None:
        raise ConfigError(f"{text!r} is not {what}; write it like {example!r}", value=text)
    value = float(match.group(1)) * factor
    if not math.isfinite(value):
        raise ConfigError(f"{text!r} is too large to be {what}", value=text)
    return value


def parse_bytes(text: str, *, bare: bool = True) -> int:
    """Bytes from "1536", "64MiB", "1.5 gb" (decimal and binary units, any case but "Gb", which is how bits are written).

    Args:
        bare: take a whole number without a unit as bytes.
    Raises:
        ConfigError: not a size; or one that may be meant in bits, or without its unit, and would be far off.
    """
    if bits := _BITS.fullmatch(text):
        number, prefix = bits[1], bits[2]
        raise ConfigError(
            f"{text!r} may mean bits, eight times less; write {number}{prefix}B for bytes, or divide by 8", value=text
        )
    match = _QUANTITY.fullmatch(text)
    if match and not match[2] and not (bare and float(match[1]).is_integer()):
        raise ConfigError(f"{text!r} has no unit; write {match[1]}GB, {match[1]}GiB or {match[1]}B", value=text)
    return int(_parse(text, dict(_BYTES), "a size", "64MiB"))


def parse_bytes_per_s(text: str) -> float:
    """Bytes per second from "55GB/s", "1.5 GiB/s", or bits as networks are sold: "400Gb/s", "400Gbit/s", "400Gbps".

    Case counts here: B is a byte, b a bit. A figure without "/s" is refused: its unit would be a guess, eight times off.

    Raises:
        ConfigError: not a rate.
    """
    match = _RATE.fullmatch(text)
    if match is None:
        ways = "bytes like '55GB/s' or bits like '440Gb/s'"
        raise ConfigError(f"{text!r} is not a rate in bytes or bits per second; write {ways} (case counts)", value=text)
    number, prefix, binary, unit = match.groups()
    base = (1024.0 if binary else 1000.0) ** ("kmgtp".index(prefix.lower()) + 1 if prefix else 0)
    value = float(number) * base / (1 if unit == "B" else 8)
    if not math.isfinite(value):
        raise ConfigError(f"{text!r} is too large to be a rate", value=text)
    return value


def parse_seconds(text: str) -> float:
    """Seconds from "30s", "5min", "1.5h", "250ms", "678us", "678 µs". A bare number is refused: its unit would be a guess.

    Raises:
        ConfigError: not a duration.
    """
    return _parse(text, _SECONDS, "a duration", "30s")


def format_bytes(size_bytes: float) -> str:
    """A size for people, in binary units: `format_bytes(1536)` is "1.5 KiB"."""
    value, unit = float(size_bytes), "B"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB", "PiB"):
        if abs(value) < 1024 or unit == "PiB":
            break
        value /= 1024
    return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"


def format_seconds(duration_s: float) -> str:
    """A duration for people: "250 µs", "1.2 ms", "3.4 s", "2 min 5 s", "1 h 3 min"."""
    if duration_s < 1e-3:
        return f"{duration_s * 1e6:.0f} µs"
    if duration_s < 1:
        return f"{duration_s * 1e3:.1f} ms"
    if duration_s < 120:
        return f"{duration_s:.1f} s"
    minutes, seconds = divmod(round(duration_s), 60)
    return f"{minutes} min {seconds} s" if minutes < 120 else f"{minutes // 60} h {minutes % 60} min"
