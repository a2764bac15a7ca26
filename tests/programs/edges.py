"""Trainers that go where loops seldom go: a structure that grows, misuse after the end, waits on all ranks."""

from __future__ import annotations

import gc
import linecache
import logging
import os
import signal
import sys
import sysconfig
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import FrameType
from typing import Any

import torch
import torch.distributed as dist
from safetensors import safe_open

import hinan
from hinan.core.errors import ConfigError, SavingError
from hinan.trainer import ending
from hinan.trainer.evacuating import overlap
from tests.harness.job import until
from tests.harness.threads import names_of_threads
from tests.programs.torture import start_held_agents

HINAN = os.path.dirname(hinan.__file__)
LIBRARY, PACKAGES = sysconfig.get_path("stdlib"), sysconfig.get_path("purelib")
LOGGING = os.path.dirname(logging.__file__)


def _begin(rank: int, world_size: int, init_file: str) -> None:
    logging.basicConfig(level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(name)s %(message)s", force=True)
    start_held_agents()
    if world_size > 1:
        os.environ |= {"WORLD_SIZE": str(world_size), "RANK": str(rank), "LOCAL_WORLD_SIZE": str(world_size)}
        dist.init_process_group("gloo", init_method=f"file://{init_file}", rank=rank, world_size=world_size)


def grows(target: str, out: str, rank: int, world_size: int, init_file: str) -> None:
    """The state holds one tensor that is longer after every third step; all of it is evacuated at every step."""
    _begin(rank, world_size, init_file)
    state: dict[str, Any] = {"rows": torch.zeros(1000)}
    evac = hinan.Evacuator(target, state, every=1, commit_every=1)
    step = evac.restore()
    while step < 12:
        if step % 3 == 2:
            state["rows"] = torch.cat([state["rows"], torch.full((1000,), float(step))])
        state["rows"] += 1
        step = evac.step()
        assert evac.last is not None
        evac.last.wait("committed", 20)
    evac.close()
    Path(out, "done").touch()


def misused(target: str, out: str, rank: int, world_size: int, init_file: str) -> None:
    """restore() twice, and step() and evacuate() after close(): each says what is wrong, and costs no time-out."""
    _begin(rank, world_size, init_file)
    evac = hinan.Evacuator(target, {"x": torch.zeros(8)}, every=1)
    evac.restore()
    refused = _refused(evac.restore)
    evac.step()
    evac.close()
    assert refused + _refused(evac.restore) + _refused(evac.step) + _refused(evac.evacuate) == 4
    evac.close()
    Path(out, "done").touch()


def one_after_another(target: str, out: str, rank: int, world_size: int, init_file: str) -> None:
    """One process makes several evacuators, one after the other, as in a notebook; the collector of cycles never runs."""
    _begin(rank, world_size, init_file)
    gc.disable()
    for run in range(3):
        state = {"x": torch.zeros(50_000)}
        evac = hinan.Evacuator(target, state, every=1, commit_every=1)
        evac.restore()
        for _ in range(3):
            evac.step()
        if run == 2:
            with suppress(RuntimeError), evac:
                raise RuntimeError
        evac.close()
    for thread in threading.enumerate():
        if thread.name.startswith("hinan"):
            thread.join(10)
            assert not thread.is_alive(), thread.name
    until(lambda: not names_of_threads("hinan"), 10)
    Path(out, "done").touch()


def closed_again(target: str, out: str, rank: int, world_size: int, init_file: str, how: str) -> None:
    """The first close() fails, because the target is away (gone), or is interrupted; the second one succeeds."""
    _begin(rank, world_size, init_file)
    evac = hinan.Evacuator(target, {"x": torch.zeros(8)}, every=1, commit_every=100, timeout_s=5)
    evac.restore()
    evac.step()
    away, ask = Path(f"{target}.away"), ending.ask_to_close
    if how == "gone":
        Path(target).rename(away)
    else:
        ending.ask_to_close = _interrupt  # type: ignore[assignment]
    with suppress(SavingError, KeyboardInterrupt):
        evac.close()
        raise AssertionError("closed")
    assert _refused(evac.step)
    ending.ask_to_close = ask
    if how == "gone":
        away.rename(target)
    evac.close()
    evac.close()
    Path(out, "done").touch()


def _interrupt(*_: object, **__: object) -> Any:
    raise KeyboardInterrupt


def _refused(call: Callable[[], object]) -> bool:
    try:
        call()
    except ConfigError:
        return True
    return False


def interrupted(
    target: str, out: str, rank: int, world_size: int, init_file: str, stride: int, start: int = 1, check: str = "off"
) -> None:
    """A signal's handler raises at one line after another of `evac.step()`. The loop gets what it raised, whatever that is,
    and asks for the same step again."""
    _begin(rank, world_size, init_file)
    model = torch.nn.Linear(200, 200)
    optimizer = torch.optim.AdamW(model.parameters())
    evac = hinan.Evacuator(target, {"model": model, "optim": optimizer}, every=1, commit_every=10, check=check)
    step = evac.restore()
    interrupts = _Interrupts()
    line, again = start, 0
    while again == 0 or interrupts.raised is not None:
        model(torch.ones(1, 200)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        before = step
        try:
            with interrupts.at(line):
                evac.step()
            assert interrupts.raised is None, (line, interrupts.where)
        except _Interrupts.KINDS as error:
            assert error is interrupts.raised, (line, interrupts.where)
        step = evac.finished_steps
        assert len(names_of_threads("hinan-copy")) <= 1, (line, interrupts.where)
        if interrupts.raised is not None and step > before:
            handle = evac.evacuate()
            again += 1
            assert (handle.step, handle.held) == (step, True), (line, interrupts.where)
            newest = next(f for f in evac._arena.scan() if f.sealed is not None and f.sealed.step == step)
            with safe_open(evac._arena.path(newest.name), "pt") as image:
                assert torch.equal(image.get_tensor("model.weight"), model.weight), (line, interrupts.where)
        line += stride
    evac.evacuate("committed", 30)
    evac.close()
    Path(out, "done").write_text(str(again))


def interrupted_at_the_gate(target: str, out: str, rank: int, world_size: int, init_file: str, check: str) -> None:
    """A signal's handler raises at one line of hinan's after another of `optimizer.step()`, which is called again: what
    is copied meanwhile is held, and is the state of the boundary before."""
    _begin(rank, world_size, init_file)
    model = torch.nn.Linear(200, 200)
    optimizer = torch.optim.AdamW(model.parameters())
    evac = hinan.Evacuator(target, {"model": model, "optim": optimizer}, every=1, commit_every=10, check=check)
    evac.restore()
    interrupts = _Interrupts(HINAN)
    line, again = 1, 0
    while again == 0 or interrupts.raised is not None:
        model(torch.ones(1, 200)).sum().backward()
        last, boundary = evac.last, model.weight.detach().clone()
        try:
            with interrupts.at(line):
                optimizer.step()
        except _Interrupts.KINDS as error:
            assert error is interrupts.raised, (line, interrupts.where)
            time.sleep(0.005)  # the landing thread goes on meanwhile
            optimizer.step()
        optimizer.zero_grad()
        if last is not None and last.flight is not None and last.flight.gates:
            assert last.flight.wait(10), (line, interrupts.where)
            assert last.held, (line, interrupts.where, last)
            newest = next(f for f in evac._arena.scan() if f.sealed is not None and f.sealed.step == last.step)
            with safe_open(evac._arena.path(newest.name), "pt") as image:
                assert torch.equal(image.get_tensor("model.weight"), boundary), (line, interrupts.where)
            again += interrupts.raised is not None
            line += 1
        evac.step()
    evac.close()
    Path(out, "done").write_text(str(again))


class _Interrupts:
    """Has a signal's handler raise in this thread at the n-th line that runs of hinan or of Python's library.

    Not in `logging`: what is raised below a handler of it, it prints.
    """

    KINDS = (KeyboardInterrupt, FileNotFoundError, TimeoutError)

    def __init__(self, within: str = "") -> None:
        """
        Args:
            within: only in files of this directory.
        """
        signal.signal(signal.SIGUSR1, self._raise)
        self._within, self._count = within, 0
        self.raised: BaseException | None = None
        self.where = ""

    @contextmanager
    def at(self, line: int) -> Iterator[None]:
        left, self.raised = line, None

        def trace(frame: FrameType, event: str, _: object) -> Any:
            nonlocal left
            path = frame.f_code.co_filename
            if not (path.startswith(self._within) and _is_interrupted(path)) or self.raised is not None:
                return None
            # Not where a `with` statement is left: Python lets no signal's handler in between body and `__exit__`.
            if event == "line" and not linecache.getline(path, frame.f_lineno).lstrip().startswith("with "):
                left -= 1
                if left == 0:
                    self.where = f"{path}:{frame.f_lineno}"
                    signal.raise_signal(signal.SIGUSR1)
            return trace

        sys.settrace(trace)
        try:
            yield
        finally:
            sys.settrace(None)

    def _raise(self, *_: object) -> None:
        self._count += 1
        self.raised = self.KINDS[self._count % 3]("the loop's own")
        raise self.raised


def _is_interrupted(path: str) -> bool:
    """hinan first: installed from its wheel it lies among the packages, and those below Python's library."""
    return path.startswith(HINAN) or (path.startswith(LIBRARY) and not path.startswith((LOGGING, PACKAGES)))


def interrupted_and_left(target: str, out: str, rank: int, world_size: int, init_file: str) -> None:
    """Ctrl-C before a copy begins, again and again; the loop goes on without asking for those steps."""
    _begin(rank, world_size, init_file)
    state = {"x": torch.zeros(1000)}
    evac = hinan.Evacuator(target, state, every=1, commit_every=4)
    step, split = evac.restore(), overlap.Overlap.split

    def interrupt(*arguments: Any) -> Any:
        if step % 2:
            raise KeyboardInterrupt
        return split(*arguments)

    overlap.Overlap.split = interrupt  # type: ignore[method-assign]
    while step < 16:
        state["x"] += 1
        step += 1
        with suppress(KeyboardInterrupt):
            evac.step()
            assert evac.evacuate().held
    evac.close()
    Path(out, "done").touch()


def forked(target: str, out: str, rank: int, world_size: int, init_file: str) -> None:
    """A forked child uses the evacuator that it inherited; the parent goes on."""
    _begin(rank, world_size, init_file)
    state = {"x": torch.zeros(1000)}
    evac = hinan.Evacuator(target, state, every=1, commit_every=1)
    evac.restore()
    for _ in range(3):
        state["x"] += 1
        evac.step()
        child = os.fork()
        if child == 0:
            assert evac.last is not None
            refused = _refused(evac.step) + _refused(evac.evacuate) + _refused(evac.last.wait)
            evac.close()
            os._exit(refused)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 3
        evac.evacuate("committed", 30)
    evac.close()
    Path(out, "done").touch()


def waits(target: str, out: str, rank: int, world_size: int, init_file: str, steps: int = 6) -> None:
    """Every rank waits for every step to be committed; one that was committed stays so."""
    _begin(rank, world_size, init_file)
    state = {"x": torch.zeros(1000)}
    evac = hinan.Evacuator(target, state, every=1, commit_every=1000)
    step = evac.restore()
    while step < steps:
        state["x"] += 1
        step = evac.step()
        evac.evacuate(wait="committed", timeout_s=30)
        assert _is_committed(target, step)
    early = evac.last
    assert early is not None
    for _ in range(6):
        state["x"] += 1
        evac.step()
    evac.close()
    Path(out, f"done-{rank}").touch()


def _is_committed(target: str, step: int) -> bool:
    return any(Path(target, "steps").glob(f"{step:010d}-*/COMMIT"))


def many(target: str, out: str, rank: int, world_size: int, init_file: str, steps: int = 400) -> None:
    """Evacuates at every step, commits often, and writes down descriptors, threads and resident bytes as it goes."""
    _begin(rank, world_size, init_file)
    state = {"x": torch.zeros(20_000)}
    evac = hinan.Evacuator(target, state, every=1, commit_every=4)
    step = evac.restore()
    with Path(out, "counts").open("a") as lines:
        while step < steps:
            state["x"] += 1
            step = evac.step()
            assert evac.last is not None
            if step % 8 == 0:
                evac.last.wait("held", 30)
            if step % 20 == 0:
                evac.evacuate(wait="committed", timeout_s=60)
                lines.write(f"{step} {_counts('self')}\n")
                lines.flush()
        evac.close()


def _counts(pid: str) -> str:
    threads = len(os.listdir(f"/proc/{pid}/task"))
    return f"{len(os.listdir(f'/proc/{pid}/fd'))} {threads}"
