"""Long work on host memory, shared by two threads: one does not use all that memory can give, more gain little."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import accumulate
from typing import TypeVar

T = TypeVar("T")
R = TypeVar("R")

WORTH_A_THREAD_BYTES = 32 << 20


def in_halves(items: Sequence[T], size: Callable[[T], int], work: Callable[[Sequence[T]], R]) -> list[R]:
    """What some work gives for a list: for all of it, or, if it is long, for each half of its bytes, in their order.

    Args:
        size: bytes of an item.
        work: the second half is another thread's. It must let the first one run meanwhile, as a memmove or a digest does,
            and leave streams of devices alone: each thread has its own.
    """
    sizes = list(accumulate(map(size, items)))
    if not sizes or sizes[-1] < WORTH_A_THREAD_BYTES:
        return [work(items)]
    middle = bisect_right(sizes, sizes[-1] // 2)
    with ThreadPoolExecutor(1, "hinan-half") as helper:
        other = helper.submit(work, items[middle:])
        return [work(items[:middle]), other.result()]
