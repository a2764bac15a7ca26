"""Quantities as people write them: what a text means, and what is refused instead of guessed."""

import pytest

from hinan.core.errors import ConfigError
from hinan.core.units import format_seconds, parse_bytes_per_s, parse_seconds


@pytest.mark.parametrize(
    ("text", "bytes_per_s"),
    [
        ("55GB/s", 55e9),
        ("1.5 GiB/s", 1.5 * 2**30),
        ("12kB/s", 12e3),
        ("55Gb/s", 55e9 / 8),
        ("400Gbit/s", 50e9),
        ("400Gbps", 50e9),
        ("8Mib/s", 2**20),
        ("55e9B/s", 55e9),
    ],
)
def test_bits_and_bytes_are_told_apart(text: str, bytes_per_s: float) -> None:
    """A network of 400 Gb/s carries 50 GB/s."""
    assert parse_bytes_per_s(text) == pytest.approx(bytes_per_s)


@pytest.mark.parametrize("text", ["55GB", "55e9", "55gb/s", "55G/s", "55mb/s", "-1GB/s", "nanGB/s", "1e400GB/s", ""])
def test_a_rate_whose_unit_would_be_a_guess_is_refused(text: str) -> None:
    """Without "/s", without a B or b, or with a case that means neither: refused, with both ways to write it."""
    with pytest.raises(ConfigError, match=r"GB/s.*Gb/s|too large"):
        parse_bytes_per_s(text)


@pytest.mark.parametrize("text", ["678us", "678 \u00b5s", "678\u03bcs", format_seconds(678e-6)])
def test_what_the_tables_print_can_be_put_in(text: str) -> None:
    """Microseconds, with a u or with either of the two letters mu that keyboards have."""
    assert parse_seconds(text) == pytest.approx(678e-6)
