"""Where Python's threads stand, seen from another one. It keeps addresses of frames, and nothing that they hold."""

from __future__ import annotations

import gc
import sys
import threading
from collections.abc import Container
from types import FrameType
from typing import NamedTuple

_CALLED_BACK = frozenset({"__torch_dispatch__", "__torch_function__"})
"""Python that torch runs inside an operation, before it counts that."""

_OURS = "hinan.trainer."


class Stand(NamedTuple):
    """Where a frame is. Not the frame itself: its locals are the trainer's tensors. The place of one that lives is given to
    no other; one that has ended may have a successor there, which can only be taken for it, and waited for."""

    frame: int
    instruction: int


class Stack:
    """A thread's frames as they are now, the innermost first.

    Attributes:
        stand: the outermost call into C that may be an operation: below Python that torch has called back, else the top.
        is_ours: whether the thread was started by this package, or stands in it: it changes nothing of the trainer's.
    """

    def __init__(self, top: FrameType) -> None:
        self.stands: list[Stand] = []
        below_called_back, bottom = 0, top
        frame: FrameType | None = top
        while frame is not None:
            self.stands.append(Stand(id(frame), frame.f_lasti))
            if frame.f_code.co_name in _CALLED_BACK:
                below_called_back = len(self.stands)
            bottom, frame = frame, frame.f_back
        self.stand = self.stands[min(below_called_back, len(self.stands) - 1)]
        self.is_ours = _is_ours(bottom) or (_is_ours(top) and not below_called_back)


def _is_ours(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__", "")).startswith(_OURS)


def stacks_of(idents: Container[int] | None = None) -> dict[int, Stack]:
    """The stacks of some threads, or of all.

    Ordering: no collection meanwhile. Python 3.11 makes the objects of another thread's frames as they are asked for; if it
    collects garbage for that, lets that thread run, and it leaves the frame, it writes into memory that is somebody else's.
    """
    with _walking:  # or one walk would switch it on in the middle of another
        collects = sys.version_info < (3, 12) and gc.isenabled()
        try:
            if collects:
                gc.disable()
            return {ident: Stack(top) for ident, top in sys._current_frames().items() if idents is None or ident in idents}
        finally:
            if collects:
                gc.enable()


_walking = threading.Lock()
