"""Quantities with units: what is written is what is meant."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hinan.core.errors import ConfigError
from hinan.core.units import format_bytes, format_seconds, parse_bytes, parse_seconds


@pytest.mark.parametrize(
    ("text", "expected"),
    [("0", 0), ("1536", 1536), ("64MiB", 64 << 20), ("1.5 GB", 1_500_000_000), ("2tb", 2 * 10**12), ("3k", 3000)],
)
def test_bytes(text: str, expected: int) -> None:
    """Decimal and binary units are told apart, in any case."""
    assert parse_bytes(text) == expected


@pytest.mark.parametrize(("text", "expected"), [("30s", 30), ("5min", 300), ("1.5h", 5400), ("250ms", 0.25)])
def test_seconds(text: str, expected: float) -> None:
    """Durations carry their unit."""
    assert parse_seconds(text) == expected


@pytest.mark.parametrize("text", ["", "-1s", "5", "nan s", "1 parsec", "1e999s", "s", "1s2"])
def test_bad_seconds_name_the_text(text: str) -> None:
    """What cannot be read is refused with the text and an example."""
    with pytest.raises(ConfigError, match=r"30s|too large"):
        parse_seconds(text)


@given(st.integers(0, 1 << 60))
def test_format_bytes_stays_close(size_bytes: int) -> None:
    """What is shown, read back, is within the shown digits."""
    assert parse_bytes(format_bytes(size_bytes)) == pytest.approx(size_bytes, rel=0.06, abs=1)


def test_format_seconds() -> None:
    """Each magnitude has its unit."""
    assert [format_seconds(s) for s in (5e-5, 0.0123, 3.21, 125, 3780)] == [
        "50 µs",
        "12.3 ms",
        "3.2 s",
        "2 min 5 s",
        "63 min 0 s",
    ]


@pytest.mark.parametrize("text", ["61.2Gb", "61.2 Gb", "8Gib", "400Mb"])
def test_a_size_that_may_be_bits_is_refused(text: str) -> None:
    """To a network engineer Gb is gigabits: eight times less."""
    with pytest.raises(ConfigError, match=r"may mean bits.*[GM]i?B for bytes, or divide by 8"):
        parse_bytes(text)
    assert parse_bytes(text.lower()) == parse_bytes(text.replace("b", "B"))


def test_a_size_without_a_unit() -> None:
    """Whole bytes where a caller takes them; a fraction of a byte never."""
    assert parse_bytes("1e9") == 10**9
    for text, bare in (("61.2", True), ("61", False)):
        with pytest.raises(ConfigError, match=rf"no unit; write {text}GB"):
            parse_bytes(text, bare=bare)
