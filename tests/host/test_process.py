"""A process is pid and start time; its end is what its pidfd says."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys

from hinan.host.process import Process, kill, open_pidfd, process, this_process


def test_this_process_lives_and_another_start_time_does_not() -> None:
    """A recycled pid is another process."""
    me = this_process()
    assert me.is_alive
    assert not Process(me.pid, me.start_ticks + 1).is_alive
    assert open_pidfd(Process(me.pid, me.start_ticks + 1)) is None


def test_the_end_of_a_process_is_seen_also_as_a_zombie() -> None:
    """The pidfd becomes readable at the end, before anybody has waited for it; a zombie counts as ended."""
    child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
    who = process(child.pid)
    fd = open_pidfd(who)
    assert fd is not None
    assert kill(who, signal.SIGKILL)
    assert select.select([fd], [], [], 10)[0]
    os.close(fd)
    assert not who.is_alive
    assert not kill(who, signal.SIGKILL)
    child.wait()
