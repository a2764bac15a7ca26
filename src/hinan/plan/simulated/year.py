"""A year of one job, event by event: saves and drains, failures, spares, repairs, stragglers, evictions.

Owns:      the event loop and its books.
Promises:  same world, same policy, same year; every second of it is booked under exactly one heading, so the parts add
           up to the horizon. Runs a 100,000-GPU year in seconds, for between two events everything is arithmetic.
Relies on: `world.py` for what happens, `policy.py` for what was decided.
Never:     reads a clock or draws a number of its own.

Time on the track (work and saves, nested as in the planner) passes at the speed of the slowest node. A failure asks for
the newest usable copy among the tiers that survive it; a drain under way is lost with its host, not with its process.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from hinan.plan.model.collectives import step_with_slow_rank_s
from hinan.plan.model.failures import HOST_LOSS, FailureClass, Tier, survives
from hinan.plan.model.scenario import RestartParts
from hinan.plan.simulated.policy import Policy
from hinan.plan.simulated.world import Happening

WAITING = "waiting for a node"
_NODE_OUT = (FailureClass.GPU, FailureClass.MEMORY, FailureClass.NODE, FailureClass.RACK, FailureClass.SILENT)


@dataclass(frozen=True)
class Job:
    """What the year is spent on: a step's two parts, restarts per class, how often replicas are verified."""

    nodes: int
    compute_s: float
    allreduce_s: float
    parts: Mapping[FailureClass, RestartParts]
    init_extra_s: float
    verify_every_s: float
    """Silent corruption is seen by the next verification; 0: at once."""
    rack_nodes: int = 4
    verify_ratio: float = 0.0
    """Training time that verification takes, per training time."""
    total_restart_s: float | None = None
    replay_s: float = 0.0
    """What a loop does again after a restart, beside the steps lost."""

    def slow_down(self, factor: float) -> float:
        """Step time with one node slower by `factor`, over the step time without: all wait in the all-reduce."""
        slow_s = step_with_slow_rank_s(compute_s=self.compute_s, allreduce_s=self.allreduce_s, slow_factor=factor)
        return slow_s / (self.compute_s + self.allreduce_s)


@dataclass
class Books:
    """Where the year went [s]; `kept` is training that counts."""

    seconds: dict[str, float] = field(default_factory=dict)
    failures: dict[str, int] = field(default_factory=dict)
    restored_from: dict[str, int] = field(default_factory=dict)
    evictions: int = 0
    worst_redo_s: float = 0.0
    least_spares: int = 0

    def add(self, name: str, seconds: float) -> None:
        """Books time under a heading."""
        self.seconds[name] = self.seconds.get(name, 0.0) + seconds

    def ettr(self, horizon_s: float) -> float:
        """Share of the year that is training kept."""
        return self.seconds.get("kept", 0.0) / horizon_s


class Track:
    """Place on the failure-free timeline of a policy: nested saves, arithmetic in both directions."""

    def __init__(self, policy: Policy) -> None:
        every = [tier.every_s for tier in policy.tiers]
        self.work_s = every[0]
        self.multiples, below_s = [], every[0]
        for wanted_s in every[1:]:
            self.multiples.append(max(1, round(wanted_s / below_s)))
            below_s *= self.multiples[-1]
        first_stall_s, *stalls_s = policy.stalls_s
        self.walls_s = [every[0] + first_stall_s]
        for multiple, stall_s in zip(self.multiples, stalls_s, strict=True):
            self.walls_s.append(self.walls_s[-1] * multiple + stall_s)

    def last_save(self, place_s: float, level: int) -> float:
        """Newest finished save of `level` or slower at or before a place."""
        at_s, rest_s = 0.0, max(place_s, 0.0)
        for k in range(len(self.walls_s) - 1, level - 1, -1):
            blocks = math.floor(rest_s / self.walls_s[k] + 1e-12)
            if k < len(self.multiples):
                blocks = min(blocks, self.multiples[k])
            at_s += blocks * self.walls_s[k]
            rest_s -= blocks * self.walls_s[k]
        return at_s

    def work_at(self, place_s: float) -> float:
        """Training done up to a place."""
        work_s, rest_s = 0.0, place_s
        block_s = self.work_s * math.prod(self.multiples)
        for k in range(len(self.walls_s) - 1, -1, -1):
            blocks = math.floor(rest_s / self.walls_s[k] + 1e-12)
            if k < len(self.multiples):
                blocks = min(blocks, self.multiples[k])
            work_s += blocks * block_s
            rest_s -= blocks * self.walls_s[k]
            if k:
                block_s /= self.multiples[k - 1]
        return work_s + min(max(rest_s, 0.0), self.work_s)


class Year:
    """The state of one simulated year. `run` is the only way through."""

    def __init__(self, job: Job, policy: Policy, horizon_s: float) -> None:
        self.job, self.policy, self.horizon_s = job, policy, horizon_s
        self.track = Track(policy)
        self.tiers = [tier.tier for tier in policy.tiers]
        self.books = Books(least_spares=policy.spares)
        self.now_s = self.place_s = 0.0
        self.usable_s = [0.0] * len(self.tiers)  # newest usable copy per tier, as a place; all start with the first state
        self.pending: list[tuple[float, float] | None] = [None] * len(self.tiers)  # (place, done at) of an open drain
        self.spares = policy.spares
        self.repairs: list[float] = []  # times at which nodes come back
        self.slow: dict[int, tuple[float, float]] = {}  # node -> (factor, until)
        self.downs: list[tuple[str, float, float]] = []  # what the present standstill is booked under: name, from, to

    def run(self, world: Sequence[Happening]) -> Books:
        """Lives through the happenings; returns the books."""
        agenda: list[tuple[float, int, Happening]] = [(each.at_s, i, each) for i, each in enumerate(world)]
        heapq.heapify(agenda)
        while agenda:
            at_s, order, happening = heapq.heappop(agenda)
            if at_s >= self.horizon_s:
                break
            if happening.kind == "evict":
                self._evict(at_s, happening)
                continue
            if happening.kind == "straggler":
                self._slow_node(at_s, order, happening, agenda)
            elif happening.kind == "maintenance":
                self._planned_swap(at_s, happening, "maintenance")
            else:
                self._fail(at_s, happening)
        self._train_until(self.horizon_s)
        self.books.add("kept", self.track.work_at(self.place_s))
        self.books.add("stall", self.place_s - self.track.work_at(self.place_s))
        return self.books

    # -- time passing ---------------------------------------------------------------------------------------------

    def _train_until(self, until_s: float) -> None:
        """Trains up to a time, in stretches of constant speed; notes saves and finished drains on the way."""
        until_s = min(until_s, self.horizon_s)
        if self.now_s < until_s:
            self.downs.clear()
        while self.now_s < until_s:
            ends = [end for _, end in self.slow.values() if end > self.now_s]
            stop_s = min([until_s, *ends])
            self.slow = {node: (f, end) for node, (f, end) in self.slow.items() if end > self.now_s}
            worst = max((f for f, _ in self.slow.values()), default=1.0)
            speed = 1 / self.job.slow_down(worst)
            passed_s = stop_s - self.now_s
            self.books.add("stragglers", passed_s * (1 - speed))
            verified = speed / (1 + self.job.verify_ratio)
            self.books.add("verify", passed_s * (speed - verified))
            self._advance(passed_s, verified)

    def _advance(self, passed_s: float, speed: float) -> None:
        start_place_s, start_s = self.place_s, self.now_s
        self.place_s += passed_s * speed
        self.now_s += passed_s
        for level, tier in enumerate(self.policy.tiers):
            self._finish_drain(level)
            newest_s = self.track.last_save(self.place_s, level)
            if newest_s <= start_place_s:
                continue
            drained_s = self.track.last_save(self.place_s - tier.drain_s * speed, level)
            if drained_s > start_place_s:
                self.usable_s[level] = max(self.usable_s[level], drained_s)
            if newest_s > drained_s:
                self.pending[level] = (newest_s, start_s + (newest_s - start_place_s) / speed + tier.drain_s)

    def _finish_drain(self, level: int) -> None:
        waiting = self.pending[level]
        if waiting is not None and waiting[1] <= self.now_s:
            self.usable_s[level] = max(self.usable_s[level], waiting[0])
            self.pending[level] = None

    def _down(self, name: str, seconds: float) -> None:
        """Time without training."""
        seconds = max(0.0, min(seconds, self.horizon_s - self.now_s))
        self.downs.append((name, self.now_s, self.now_s + seconds))
        self.now_s += seconds
        self.books.add(name, seconds)

    def _break_off(self, at_s: float) -> None:
        """A failure in the middle of a restart: what was still to come of it is struck from the books."""
        while self.downs and self.downs[-1][2] > at_s and self.downs[-1][0] != WAITING:
            name, start_s, end_s = self.downs.pop()
            back_s = max(start_s, at_s)
            self.books.add(name, back_s - end_s)
            self.now_s = back_s
            if back_s > start_s:
                self.downs.append((name, start_s, back_s))

    # -- what happens -----------------------------------------------------------------------------------------------

    def _fail(self, at_s: float, happening: Happening) -> None:
        failure = FailureClass(happening.kind)
        if at_s < self.now_s:
            self._break_off(at_s)
        else:
            self._train_until(at_s)
        self.books.failures[failure] = self.books.failures.get(failure, 0) + 1
        for level in range(len(self.tiers)):
            self._finish_drain(level)
        level, place_s = self._newest(failure, happening)
        redo_s = self.track.work_at(self.place_s) - self.track.work_at(place_s)
        gone_s = self.place_s - place_s
        self.books.add("redo", redo_s)
        self.books.add("stall", gone_s - redo_s)
        self.books.worst_redo_s = max(self.books.worst_redo_s, redo_s)
        source = "start" if place_s == 0.0 else str(self.tiers[level])
        self.books.restored_from[source] = self.books.restored_from.get(source, 0) + 1
        self.place_s = place_s
        self._after_restore(failure, level, place_s)
        if failure in _NODE_OUT:
            count = self.job.rack_nodes if failure is FailureClass.RACK else 1
            self._replace(count, happening)
        self._restart(failure, self.policy.tiers[level].load_s)

    def _newest(self, failure: FailureClass, happening: Happening) -> tuple[int, float]:
        """Tier and place of the newest usable copy after a failure; the fastest tier among equals."""
        good = survives(failure, nodes_return=happening.returns)
        best, best_s = len(self.tiers) - 1, 0.0
        for level, tier in enumerate(self.tiers):
            if tier not in good:
                continue
            usable_s = self.usable_s[level]
            if failure is FailureClass.SILENT:
                usable_s = min(usable_s, self.track.last_save(self.place_s - self._unseen_s(happening), level))
            if usable_s > best_s:
                best, best_s = level, usable_s
        return best, min(best_s, self.place_s)

    def _unseen_s(self, happening: Happening) -> float:
        """How long ago the corruption struck that is seen now: anywhere in the cadence alike, and the same whatever the
        policy. The event's own time says where, for it falls anywhere in a cadence alike."""
        every_s = self.job.verify_every_s
        return happening.at_s % every_s if every_s > 0 else 0.0

    def _after_restore(self, failure: FailureClass, level: int, place_s: float) -> None:
        """Copies younger than the restored place are off the lineage; those lost with hosts are gone."""
        for k, tier in enumerate(self.tiers):
            self.usable_s[k] = min(self.usable_s[k], place_s)
            if k < level:
                self.usable_s[k] = place_s  # the copy restored from serves them until they have their own
            waiting = self.pending[k]
            if waiting is not None and (waiting[0] > place_s or (failure in HOST_LOSS and tier is not Tier.RAM)):
                self.pending[k] = None

    def _replace(self, count: int, happening: Happening) -> None:
        """Takes spares for lost nodes; without spares the job waits for the next repair."""
        self._collect_repairs()
        heapq.heappush(self.repairs, self.now_s + happening.repair_s)
        for _ in range(count - 1):  # a rack comes back as a whole, quickly: its nodes were not broken
            heapq.heappush(self.repairs, self.now_s + min(happening.repair_s, 3600.0))
        for _ in range(count):
            self._collect_repairs()
            if self.spares == 0 and self.repairs:
                self._down(WAITING, max(0.0, self.repairs[0] - self.now_s))
                self._collect_repairs(force=True)
            self.spares = max(0, self.spares - 1)
        self.books.least_spares = min(self.books.least_spares, self.spares)
        self.slow.pop(happening.node, None)

    def _collect_repairs(self, *, force: bool = False) -> None:
        while self.repairs and (self.repairs[0] <= self.now_s or force):
            heapq.heappop(self.repairs)
            self.spares += 1
            force = False

    def _restart(self, failure: FailureClass, load_s: float) -> None:
        if self.job.total_restart_s is not None:
            self._down("restart", self.job.total_restart_s)
            return
        parts = self.job.parts[failure]
        self._down("detect", parts.detect_s)
        self._down("reschedule", parts.reschedule_s)
        self._down("load", load_s)
        self._down("init", parts.init_s + self.job.init_extra_s)
        self._down("replay", self.job.replay_s)

    def _slow_node(self, at_s: float, order: int, happening: Happening, agenda: list[tuple[float, int, Happening]]) -> None:
        self._train_until(at_s)
        until_s = at_s + happening.lasts_s
        self.slow[happening.node] = (happening.factor, until_s)
        when_s = at_s + self.policy.evict_after_s
        if self.job.slow_down(happening.factor) > self.policy.evict_above and when_s < until_s:
            evict = Happening(when_s, "evict", happening.node, happening.repair_s, True)
            heapq.heappush(agenda, (when_s, order, evict))

    def _evict(self, at_s: float, happening: Happening) -> None:
        """Throws a slow node out, if it is still slow and a spare is there."""
        self._train_until(at_s)
        self._collect_repairs()
        if happening.node in self.slow and self.spares > 0:
            self._planned_swap(at_s, happening, "eviction")

    def _planned_swap(self, at_s: float, happening: Happening, name: str) -> None:
        """A swap with notice: evacuate, move, go on. Nothing is redone, the restart costs load and init."""
        self._train_until(at_s)
        self.books.evictions += 1
        self._replace(1, happening)
        seconds = self.policy.stalls_s[0] + self.policy.tiers[0].load_s
        node = self.job.parts[FailureClass.NODE]
        whole = self.job.total_restart_s
        seconds += node.init_s + self.job.init_extra_s + self.job.replay_s if whole is None else whole
        self._down(name, seconds)
