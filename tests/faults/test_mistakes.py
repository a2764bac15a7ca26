"""A mistake in the program at one restart costs that restart: nothing is held against the bytes, and mended it goes on."""

from __future__ import annotations

import errno

import pytest

from hinan.core.errors import DamageError, FormatError, StructureError
from hinan.trainer.restoring.restore import _is_of_the_bytes
from tests.faults.test_peers import told
from tests.harness.job import MakeJob

SAYS = {
    "ram": {
        "forgotten": "codec 'tests.coded', which is not registered: call hinan.register_codec",
        "older": "KeyError: 'step'",
    },
    "target": {"file": "FileNotFoundError", "ours": "FormatError: {'steps': 2} are of another version"},
}


def test_a_codec_that_fails_once_condemns_no_image(make_job: MakeJob) -> None:
    """One rank of two forgets its codec, or the codec raises whatever it may: both ranks are told at once, with the path
    and the way out; no live value has changed, nothing is remembered on the target; mended, it has the same step."""
    job = make_job(ranks=2)
    job.start_agent()
    for child in job.start(program="codecs:main"):
        child.ok(30)
    for source, mistakes in SAYS.items():
        for mistake, says in mistakes.items():
            for child in job.start(program="codecs:main", mistake=mistake):
                child.ok(30)
            assert [found["error"]["type"] for found in told(job)] == ["PeerError", "StructureError"]
            for found in told(job):
                text = found["error"]["text"]
                assert "inner.coded.[0] was saved with the codec" in text
                assert says in text and "what was saved stands" in text.lower()
                assert (found["steps"], found["w"]) == (0, [0.0] * 4)
                assert found["restore_s"] < 10
            assert job.target.failures() == set()
        for child in job.start(program="codecs:main"):
            child.ok(30)
        for found in told(job):
            assert (found["error"], found["step"], found["source"]) == (None, 2, source)
            assert (found["steps"], found["w"]) == (2, [2.0] * 4)
        job.end_agent()
        job.arena.wipe()
        job.start_agent()


@pytest.mark.parametrize(
    ("failure", "is_of_the_bytes"),
    [
        (DamageError("a digest"), True),
        (FormatError("no header"), True),
        (OSError(errno.EIO, "a sector"), True),
        (FileNotFoundError(errno.ENOENT, "gone"), True),
        (PermissionError(errno.EACCES, "another user's"), False),
        (OSError(errno.EMFILE, "descriptors"), False),
        (OSError(errno.ENOMEM, "memory"), False),
        (TimeoutError("a server"), False),
        (StructureError("the program"), False),
        (KeyError("x"), False),
    ],
)
def test_what_says_something_against_the_bytes(failure: Exception, is_of_the_bytes: bool) -> None:
    """An older step is taken for wrong bytes alone, and for those that the disk cannot give."""
    assert _is_of_the_bytes(failure) is is_of_the_bytes
