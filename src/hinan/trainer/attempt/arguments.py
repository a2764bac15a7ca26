"""The arguments of `Evacuator`, checked before anything is started; each refusal names argument, value and the way out."""

from __future__ import annotations

import os
from collections.abc import MutableMapping
from dataclasses import dataclass
from pathlib import Path

from hinan.core.cadence import Asked, parse_every
from hinan.core.errors import ConfigError
from hinan.core.retention import Keep
from hinan.core.units import parse_bytes
from hinan.host.mounts import IN_RAM, file_system_type

DEFAULT_TMPFS = Path("/dev/shm")  # noqa: S108 - the arena below it is for this user alone (0700)


@dataclass(frozen=True)
class Arguments:
    """What the user asked for, as values that work."""

    every: Asked
    commit_every: Asked
    ram_bytes: int | None
    tmpfs: Path
    keep: Keep
    timeout_s: float
    restore_timeout_s: float
    tolerate: int
    check_bits: bool

    @property
    def for_all(self) -> dict[str, str]:
        """What counts for the whole job, and not for one rank, as text: alike where the same is asked for."""
        return {
            "every": _in_words(self.every),
            "commit_every": _in_words(self.commit_every),
            "ram": "auto" if self.ram_bytes is None else f"{self.ram_bytes} bytes",
            "directory for slots": str(self.tmpfs),
            "keep": str(self.keep),
        }


def checked(
    *,
    state: object,
    every: object,
    commit_every: object,
    ram: object,
    keep: object,
    timeout_s: object,
    restore_timeout_s: object,
    tolerate: object,
    check: object,
) -> Arguments:
    """
    Raises:
        ConfigError: one of them is of the wrong kind or out of range, or this system lacks what hinan needs.
    """
    if not hasattr(os, "pidfd_open") or not Path("/proc/self/stat").exists():
        raise ConfigError("hinan needs Linux 5.3 or newer with /proc (pidfd, tmpfs); this system has not got them")
    if not isinstance(state, MutableMapping) or not all(isinstance(k, str) for k in state) or not state:
        raise ConfigError("state must be a dict with text keys, such as {'model': model, 'optim': optimizer}")
    if keep is not None and not isinstance(keep, Keep):
        raise ConfigError(f"keep={keep!r}: use hinan.Keep(last=3), Keep(last=None) for all, or Keep(last=3, every=1000)")
    timeouts = [_seconds("timeout_s", timeout_s), _seconds("restore_timeout_s", restore_timeout_s)]
    if isinstance(tolerate, bool) or not isinstance(tolerate, int) or tolerate < 0:
        raise ConfigError(f"tolerate={tolerate!r}: use a whole number of failed commits, 0 or more")
    if check not in ("off", "bits"):
        raise ConfigError(f'check={check!r}: use "off", or "bits" to compare every copy with its source at the gate')
    ram_bytes, tmpfs = _parse_ram(ram)
    return Arguments(
        every=parse_every(every, "every"),
        commit_every=parse_every(commit_every, "commit_every"),
        ram_bytes=ram_bytes,
        tmpfs=tmpfs,
        keep=keep or Keep(),
        timeout_s=timeouts[0],
        restore_timeout_s=timeouts[1],
        tolerate=tolerate,
        check_bits=check == "bits",
    )


def _in_words(asked: Asked) -> str:
    if asked.is_automatic:
        return "auto"
    return f"{asked.seconds:g} s" if asked.seconds is not None else f"{asked.steps} steps"


def _seconds(name: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < float("inf"):
        raise ConfigError(f"{name}={value!r}: use a number of seconds above 0")
    return value


def _parse_ram(ram: object) -> tuple[int | None, Path]:
    """(budget in bytes or None, tmpfs directory) of the argument `ram`."""
    if not isinstance(ram, str | os.PathLike):
        raise ConfigError(f'ram={ram!r}: use "auto", a budget per node ("200GiB") or a directory on a tmpfs')
    text = str(os.fspath(ram))
    if text == "auto":
        return None, DEFAULT_TMPFS
    if os.sep in text:
        if not Path(text).is_dir():
            raise ConfigError(f"ram={text!r} is not a directory; mount a tmpfs there, or name one that exists")
        kind = file_system_type(Path(text))
        if kind not in IN_RAM:
            raise ConfigError(f'ram={text!r} lies on {kind}, not in RAM; mount a tmpfs there, or use ram="auto"')
        return None, Path(text).absolute()
    return parse_bytes(text), DEFAULT_TMPFS
