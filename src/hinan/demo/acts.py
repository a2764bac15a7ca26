"""The acts: a run that is left alone, and runs that are killed in one way each and must end as if nothing had been.

Owns:      the order of things, the moments of the kills, and what must hold afterwards.
Promises:  a kill happens when a step stands in RAM that is newer than anything committed, and while a rank is within a
           step; both are facts on disk, not times. Nothing is left behind, however it ends.
"""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from hinan.demo.job import DemoError, Job
from hinan.demo.judge import Act, judge, unequal
from hinan.demo.place import deaf, interruptible, place
from hinan.demo.processes import end_all
from hinan.demo.proof import Bump, Record, bump, can_fail, compare, record
from hinan.demo.settings import Plan, cadence
from hinan.demo.trace import Kind, Moment, Trace

KILLS = ("rank", "all", "agent", "host", "none")
TITLES = {
    "reference": "a run that nobody disturbs: the reference",
    "rank": "one rank is SIGKILLed in mid-step; the launcher restarts all ranks",
    "all": "every process but the agent is SIGKILLed at once, and started again",
    "agent": "every process and the agent are SIGKILLed, and started again",
    "host": "the host is lost: every process, the agent and the RAM; started again",
    "none": "once more undisturbed: the program itself is repeatable",
}


@dataclass(frozen=True)
class Options:
    """What was asked for."""

    ranks: int = 2
    steps: int = 30
    device: str = "cpu"
    kills: tuple[str, ...] = ("rank", "all")
    forget: str = ""
    target: Path | None = None


@dataclass(frozen=True)
class Outcome:
    """All of a demo, as the report needs it."""

    options: Options
    every: int
    commit_every: int
    acts: tuple[Act, ...]
    can_fail: bool
    steps_s: tuple[float, ...]
    stalls_s: tuple[float, ...]
    save_s: tuple[float, ...]
    image_bytes: int
    ram_bytes: int
    evacuated_bytes: int
    drained_bytes: int
    drain_s: tuple[float, ...]

    @property
    def ok(self) -> bool:
        return self.can_fail and all(not act.why for act in self.acts)


class Stage:
    """Runs acts one after the other and keeps what the report needs of each."""

    def __init__(self, options: Options, root: Path, mark: str, show: Callable[[str, Trace, list[Moment]], None]) -> None:
        self.options, self._root, self._mark, self._show = options, root, mark, show
        self.every, self.commit_every = cadence(options.steps)
        self.peak_ram_bytes = 0
        self.moments: list[Moment] = []
        self.save_s: tuple[float, ...] = ()
        self._jobs: list[Job] = []

    def reference(self) -> Record:
        """The run without a failure."""
        return self._play("reference", "none", compare_save=True)[0]

    def act(self, kill: str, reference: Record) -> Act:
        """A run with one kill, judged against the reference."""
        run, job, killed = self._play(f"kill-{kill}", kill)
        comparison = compare(reference, run, ranks=self.options.ranks, steps=self.options.steps)
        if killed is None:
            return Act(kill, comparison, why=unequal(comparison))
        return judge(kill, job, killed, comparison, self._bump(reference, run, job))

    def close(self) -> None:
        """End every process and free everything that the acts have made."""
        left = end_all(self._mark)
        for job in self._jobs:
            job.close()
        if left:
            raise DemoError(f"processes would not die: {[who.pid for who in left]}")

    def _play(self, name: str, kill: str, *, compare_save: bool = False) -> tuple[Record, Job, Moment | None]:
        directory = self._root / name
        directory.mkdir()
        plan = Plan(
            str(directory / "target"), str(directory / "out"), self.options.ranks, self.options.steps, self.every,
            self.commit_every, self.options.device, self.options.forget if kill != "none" else "", compare_save,
        )  # fmt: skip
        title = TITLES["reference" if name == "reference" else kill]
        job = Job(directory, plan, self._mark, lambda trace, fresh: self._show(title, trace, fresh))
        self._jobs.append(job)
        job.launch()
        killed = None
        if kill != "none":
            wait_until_ripe(job)
            killed = job.kill(kill)
            if kill != "rank":
                job.launch()
        job.run_to_the_end()
        self._keep(job)
        if self.options.target is None:
            shutil.rmtree(plan.target)  # its part is done; three runs need not stand on the disk at once
        return record(job.trace.diary), job, killed

    def _keep(self, job: Job) -> None:
        self.peak_ram_bytes = max(self.peak_ram_bytes, job.peak_ram_bytes)
        self.moments += job.trace.moments
        for line in job.trace.diary:
            if line["event"] == "saved" and line["rank"] == 0:
                self.save_s = tuple(line["seconds"])
        job.close()

    def _bump(self, reference: Record, run: Record, job: Job) -> Bump | None:
        resumed = job.last("resumed", 0)
        if not self.options.forget or resumed is None:
            return None
        return bump(reference, run, ranks=self.options.ranks, steps=self.options.steps, after=resumed["step"])


def wait_until_ripe(job: Job) -> None:
    """Wait for the moment to kill: a commit stands, RAM holds a newer step, and the last rank is within a later step.

    Late between two evacuations, so that there are steps to redo.
    """
    victim = job.plan.ranks - 1

    def within() -> int:
        line = job.last("forward", victim)
        return 0 if line is None else int(line["step"])

    def ripe(steps_behind: int) -> bool:
        committed, proven = job.committed(), job.proven()
        newer = bool(committed and proven and proven[-1] > committed[-1])
        return newer and within() >= proven[-1].step + steps_behind

    job.wait(lambda: ripe(max(1, job.plan.every - 1)), "a step in RAM that is newer than the newest commit")
    begun = within()
    # Where steps are fast the next evacuation may be proven by the time of this look: then fewer steps are redone.
    job.wait(lambda: within() > begun and ripe(1), "a rank in mid-step")


def run_demo(options: Options, show: Callable[[str, Trace, list[Moment]], None]) -> Outcome:
    """All acts.

    Raises:
        ConfigError: the options cannot work.
        DemoError: a run could not be carried through.
    """
    with place(options.target) as root, interruptible():
        stage = Stage(options, root, secrets.token_hex(8), show)
        try:
            reference = stage.reference()
            acts = tuple(stage.act(kill, reference) for kill in options.kills)
        finally:
            with deaf():
                stage.close()
    held = [m for m in stage.moments if m.kind is Kind.HELD]
    return Outcome(
        options=options,
        every=stage.every,
        commit_every=stage.commit_every,
        acts=acts,
        can_fail=can_fail(reference, ranks=options.ranks, steps=options.steps),
        steps_s=tuple(m.span_s for m in stage.moments if m.kind is Kind.STEP),
        stalls_s=tuple(m.stall_s for m in held),
        save_s=stage.save_s,
        image_bytes=max((m.size_bytes for m in held), default=0),
        ram_bytes=stage.peak_ram_bytes,
        evacuated_bytes=sum(m.size_bytes for m in held),
        drained_bytes=sum(m.size_bytes for m in stage.moments if m.kind is Kind.PERSISTED),
        drain_s=_drain_seconds(stage.moments),
    )


def _drain_seconds(moments: list[Moment]) -> tuple[float, ...]:
    """From the opening of each round to its commit. Attempts are numbered per run, so runs are told apart by order."""
    opened: dict[tuple[int, int], float] = {}
    seconds = []
    for moment in moments:
        key = moment.attempt, moment.step
        if moment.kind is Kind.DRAINING:
            opened[key] = moment.at
        elif moment.kind is Kind.COMMITTED and key in opened:
            seconds.append(moment.at - opened.pop(key))
    return tuple(seconds)
