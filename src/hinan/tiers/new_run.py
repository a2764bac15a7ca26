"""A directory becomes the target of a run: made if only it is missing, refused if it holds other things, tried out.

Owns:      the run's identity and the directories beside it. Many processes may do this at once; all get the same run.
Promises:  where it succeeds, a second put of one name is refused by the file system (rule F1).
"""

from __future__ import annotations

import contextlib
import os
import secrets
from pathlib import Path

from hinan.core.errors import TargetError
from hinan.formats import records
from hinan.host.signals import ours
from hinan.tiers.publish import PART_SUFFIX, AlreadyPublished, publish

RUN = "run.json"
DIRECTORIES = ("attempts", "agents", "steps", "failures")


def make_run(root: Path) -> None:
    """Make the directory if only it is missing, prove that it can be written, and publish a run if none stands there.

    Raises:
        TargetError: parent missing, not a directory, not writable, no atomic link, or a foreign directory.
    """
    if not root.parent.is_dir():
        raise TargetError(f"{root.parent} does not exist; create it, or correct the target", target=str(root))
    try:
        root.mkdir(exist_ok=True)
        _refuse_foreign(root)
        for name in DIRECTORIES:
            (root / name).mkdir(exist_ok=True)
        _try_out(root)
        fresh = records.RunRecord(run_id=secrets.token_hex(8), created=records.now_text())
        with contextlib.suppress(AlreadyPublished):
            publish(root / RUN, records.encode(fresh), power_safe=True)
    except ours(OSError) as error:
        raise TargetError(
            f"the target {root} cannot be used: {error.strerror or error}. "
            "It must be a directory this user can write to, with room on its disk.",
            target=str(root),
            errno=error.errno,
        ) from error


def _refuse_foreign(root: Path) -> None:
    ours = {RUN, *DIRECTORIES}
    present = {entry.name for entry in os.scandir(root)}
    if RUN not in present and (foreign := sorted(n for n in present - ours if not n.endswith(PART_SUFFIX))):
        raise TargetError(
            f"{root} holds other things ({', '.join(foreign[:3])}{' ...' if foreign[3:] else ''}) and no run; "
            "name an empty or new directory as the target",
            target=str(root),
        )


def _try_out(root: Path) -> None:
    """Prove that a second put of one name is refused here (rule F1)."""
    probe = root / f".probe-{secrets.token_hex(4)}{PART_SUFFIX}"
    try:
        publish(probe, b"1", power_safe=False)
        with contextlib.suppress(AlreadyPublished):
            publish(probe, b"2", power_safe=False)
            raise TargetError(f"{root}: its file system lets a second writer replace a fact", target=str(root))
    finally:
        probe.unlink(missing_ok=True)
