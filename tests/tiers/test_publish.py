"""A fact appears once and whole, whoever races for its name and whatever call fails."""

from __future__ import annotations

import errno
import io
import os
from pathlib import Path
from typing import Any

import pytest

from hinan.tiers.publish import PART_SUFFIX, AlreadyPublished, publish, read_fact
from tests.harness.disks import names
from tests.harness.racing import together


def test_a_agree_3_of_racing_publishers_one_wins_and_all_see_it(tmp_path: Path) -> None:
    """A-AGREE-3: eight writers publish different facts under one name, fifty times: one wins, the others are told what
    stands, everybody reads the same, and no temporary file is left."""
    for round_ in range(50):
        path = tmp_path / f"fact-{round_}"
        found = together(8, lambda i, path=path: publish(path, f"mine {i}".encode(), power_safe=False))
        standing = read_fact(path)
        winners = [i for i, outcome in enumerate(found) if outcome is None]
        assert len(winners) == 1 and standing == f"mine {winners[0]}".encode()
        assert all(isinstance(o, AlreadyPublished) and o.standing == standing for o in found if o is not None)
    assert [n for n in names(tmp_path) if n.endswith(PART_SUFFIX)] == []


def test_racing_publishers_of_equal_facts_all_succeed(tmp_path: Path) -> None:
    """Equal bytes under the name mean that the fact stands, whoever put them there."""
    assert together(8, lambda i: publish(tmp_path / "fact", b"equal", power_safe=True)) == [None] * 8


@pytest.mark.parametrize("call", ["open", "write", "fsync", "link"])
def test_a_publish_that_fails_leaves_nothing(call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever call fails, the error comes through, no name stands and no temporary file is left."""

    def fail(*arguments: Any, **more: Any) -> None:
        raise OSError(errno.EIO, "planted")

    class Failing(io.FileIO):
        write = fail  # type: ignore[assignment]

    with monkeypatch.context() as patch:
        if call in ("open", "write"):
            patch.setattr(io, "FileIO", fail if call == "open" else Failing)
        else:
            patch.setattr(os, call, fail)
        with pytest.raises(OSError, match="planted"):
            publish(tmp_path / "fact", b"data", power_safe=True)
    assert names(tmp_path) == []


def test_a_publish_whose_link_succeeded_with_an_error_stands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store that did the work and reports an error all the same (a retried NFS call): reading back decides."""
    link = os.link

    def both(*arguments: Any, **more: Any) -> None:
        link(*arguments, **more)
        raise OSError(errno.EEXIST, "planted")

    with monkeypatch.context() as patch:
        patch.setattr(os, "link", both)
        publish(tmp_path / "fact", b"data", power_safe=True)
    assert names(tmp_path) == ["fact"]


def test_a_format_6_a_stale_handle_is_opened_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A-FORMAT-6: the first read of a fact meets ESTALE: it is read again; one that stays stale is an error."""
    (tmp_path / "fact").write_bytes(b"data")
    read, errors = Path.read_bytes, [OSError(errno.ESTALE, "stale")]

    def stale(self: Path) -> bytes:
        if errors:
            raise errors.pop()
        return read(self)

    monkeypatch.setattr(Path, "read_bytes", stale)
    assert read_fact(tmp_path / "fact") == b"data"
    errors += [OSError(errno.ESTALE, "stale")] * 3
    with pytest.raises(OSError, match="stale"):
        read_fact(tmp_path / "fact")
