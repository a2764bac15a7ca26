"""Facts: equal values give equal bytes; what is torn, changed, foreign or from the future is refused by name."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hinan.core.errors import FormatError, FormatFromFuture
from hinan.formats import records as r

SEALED = r.SealedRecord(3, 120, 1, 2, "node-a", 8192, "ab" * 16, msgspec.Raw(b'{"lr":0.1,"n":[1,2]}'), 100, "now", 0.25)
PROVEN = r.ProvenRecord(3, 120, 1, "ab" * 16, 8 << 20, [r.BoxRecord("w", [2, 3], [0, 0], ["cd" * 16])], late=True)
ALL = [
    r.RunRecord("abc", "2026"), r.ClaimRecord(1, "abc", "node", 5, 99, 8, "now", {"SLURM_JOB_ID": "7"}),
    r.ResumeRecord(2, 1, 60, "now", "ram"), r.ResumeRecord(1, None, 0, "now"), r.ClosedRecord(2, 99, "now"),
    r.AgentRecord("node", "abc", 5, 99, "/t", "/a", 7), r.OwnerRecord(5, 99, 1, 0), SEALED, PROVEN,
    r.ManifestRecord(SEALED, PROVEN), r.CommitRecord(3, 120, 2, ["aa", "bb"]), r.TombstoneRecord(3, 120, "old"),
    r.ReaderRecord(5, "node", "now"), r.FailureRecord(3, 120, "ram", 4, "flipped"), r.LostRecord(3, 120, 1, "full"),
    r.CadenceRecord(3, 0, 0, 10, 6, "asked", "asked"),
    r.CadenceRecord(3, 1, 90, 10, 6, "why", "why", 0.1, True, {"s": r.InputRecord(0.1, "measured", "x")}, {"redo": 0.1}),
    r.AckRecord(3, 1, 0), r.VerdictRecord(3, 1, True),
]  # fmt: skip


@pytest.mark.parametrize("record", ALL, ids=lambda record: type(record).__name__)
def test_a_record_comes_back_equal_and_its_bytes_are_stable(record: Any) -> None:
    """Every kind of record survives the way through bytes; writing it again gives the same bytes."""
    data = r.encode(record)
    back = r.decode(data, type(record), "fact")
    assert r.encode(back) == data == r.encode(record)
    if record not in (SEALED,) and not isinstance(record, r.ManifestRecord):
        assert back == record


@pytest.mark.parametrize("record", ALL, ids=lambda record: type(record).__name__)
def test_a_record_torn_at_any_byte_is_refused(record: Any) -> None:
    """No prefix of a record passes for it, but the one that lacks only the line's end, which says everything."""
    data = r.encode(record)
    for length in range(len(data) - 1):
        with pytest.raises(FormatError, match="fact is not a whole hinan record"):
            r.decode(data[:length], type(record), "fact")
    assert r.encode(r.decode(data[:-1], type(record), "fact")) == data


@settings(max_examples=400, deadline=None)
@given(record=st.sampled_from(ALL), at=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_a_record_with_a_flipped_bit_is_refused_or_equal(record: Any, at: float, bit: int) -> None:
    """One flipped bit anywhere: refused as a FormatError that names the file, or the record says what it said."""
    data = bytearray(r.encode(record))
    data[int(at * len(data))] ^= 1 << bit
    try:
        back = r.decode(bytes(data), type(record), "fact")
    except FormatError as error:
        assert "fact" in str(error)
    else:
        assert r.encode(back) == r.encode(record)


@pytest.mark.parametrize("record", ALL, ids=lambda record: type(record).__name__)
def test_a_format_1_a_record_from_the_future_is_refused_with_both_versions(record: Any) -> None:
    """A-FORMAT-1: a newer version is refused with both versions and the way out, whatever else has changed in it."""
    envelope = msgspec.json.decode(r.encode(record))
    for body in (envelope["body"], {"all": "new"}):
        newer = msgspec.json.encode(envelope | {"version": r.VERSION + 3, "body": body, "sum": "other"})
        with pytest.raises(
            FormatFromFuture, match=rf"fact has format version {r.VERSION + 3}, .* up to {r.VERSION}: install"
        ):
            r.decode(newer, type(record), "fact")


def test_unknown_fields_are_skipped() -> None:
    """A field that a later release adds within the version does not stop this one from reading."""
    body = msgspec.json.encode({"attempt": 2, "step": 9, "created": "now", "mood": "good"})
    data = msgspec.json.encode(
        {"hinan": "closed", "version": 1, "sum": r.fact_sum(body), "body": msgspec.Raw(body), "new": []}
    )
    assert r.decode(data, r.ClosedRecord, "fact") == r.ClosedRecord(2, 9, "now")


def test_another_kind_and_a_lacking_field_are_named() -> None:
    """A record of another kind is told by both kinds; a body that lacks a field by the field."""
    with pytest.raises(FormatError, match="fact is a 'run' record, not 'claim'"):
        r.decode(r.encode(ALL[0]), r.ClaimRecord, "fact")
    body = b'{"attempt":2}'
    data = msgspec.json.encode({"hinan": "closed", "version": 1, "sum": r.fact_sum(body), "body": msgspec.Raw(body)})
    with pytest.raises(FormatError, match=r"fact lacks what a closed record has.*step"):
        r.decode(data, r.ClosedRecord, "fact")


@pytest.mark.parametrize("data", [b"", b"\n", b"null", b"[]", b"{}", b"\xff\xfe", b"[" * 100_000, b'{"hinan":1}'])
def test_foreign_bytes_are_no_record(data: bytes) -> None:
    """A file that is something else is refused by name."""
    with pytest.raises(FormatError, match="fact is not a whole hinan record"):
        r.decode(data, r.RunRecord, "fact")
