"""Loads by code of the user's, as a write: what fails in it is said with the place in the state where it belongs."""

from __future__ import annotations

from collections.abc import Callable

from hinan.core.errors import HinanError, StructureError
from hinan.host.signals import ours


def loads(path: str, live: object, load: Callable[[], object]) -> Callable[[], None]:
    """A write that lets a live object load itself.

    Args:
        load: calls its `load_state_dict`, or whatever it loads by.
    """

    def write() -> None:
        try:
            load()
        except HinanError:
            raise  # ours: there was no room for what it would have been given
        except ours(Exception) as error:
            raise StructureError(
                f"{path} is a {type(live).__qualname__} that does not load what it said of itself: {type(error).__name__}: "
                f"{error}. It must load its own state_dict(). The state is written in part: do not train on it.",
                path=path,
            ) from error

    return write
