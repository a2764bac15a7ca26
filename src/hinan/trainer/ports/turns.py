"""How often the main thread has been between two instructions of Python when it was asked to say so.

What is left to the interpreter as a pending call is done there. What that does for us is one call into C, `sem_post`: in a
function of Python a signal's handler might raise, and nobody would hear of it.
"""

from __future__ import annotations

import ctypes

_libc = ctypes.CDLL(None)
_semaphore = ctypes.create_string_buffer(64)  # a sem_t, and never freed: a call may be pending until the interpreter ends
_libc.sem_init(_semaphore, 0, 0)
_sem_post = ctypes.cast(_libc.sem_post, ctypes.c_void_p)
_add_pending_call = ctypes.pythonapi.Py_AddPendingCall
_add_pending_call.argtypes, _add_pending_call.restype = (ctypes.c_void_p, ctypes.c_void_p), ctypes.c_int


def ask() -> None:
    """Have it say so. Should the queue be full, those in it are posts of ours as well, or the stack has to do."""
    _add_pending_call(_sem_post, _semaphore)


def turns() -> int:
    """How often it was so far."""
    value = ctypes.c_int()
    _libc.sem_getvalue(_semaphore, ctypes.byref(value))
    return value.value
