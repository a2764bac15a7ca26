"""The world that a schedule is played in: hosts with arenas and agents, the jobs that train, the target, the truth.

Owns:      who exists, who is alive, who reaches whom, the clock (a count of events) and the transcript.
Promises:  all chance comes from one seeded generator; collections are walked in the order in which they were made.
Never:     decides anything; `agents`, `restart` and `trainers` ask the rules.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from random import Random

from hinan.core.cadence import Cadence
from hinan.core.commit import DrainEffect
from hinan.core.decide import Candidate
from hinan.core.ids import StepId, slot_name
from hinan.core.lineage import History
from hinan.core.retention import Keep
from hinan.core.slot import Phase, Slot
from hinan.sim.rules import Rules
from hinan.sim.target import Target
from hinan.sim.truth import Truth
from hinan.sim.values import Inode, Sealed, SlotFiles


@dataclass
class Marks:
    """The newest step held everywhere and the newest committed one, as they truly are at one moment.

    Attributes:
        line: the newest attempt that had resumed, whose past is the lineage then.
    """

    w: StepId | None = None
    committed: StepId | None = None
    line: int = 0


@dataclass
class Part:
    """What one host still has to do in a round. It is pinned until the round is closed."""

    step_id: StepId
    slots: dict[int, str]
    effects: list[DrainEffect]
    opened_by: int
    refusals: int = 0


@dataclass
class Agent:
    """A node agent: everything here is memory and is gone when the process is killed.

    Attributes:
        round: step of the round it coordinates, with the number of ranks that make it complete.
        part: its share of the round in progress.
        since: event at which it was started.
        newest_claim: the highest claim it has read; trainers below it are refused (rule A4).
    """

    pid: int
    host: int
    served: int
    since: int
    newest_claim: int = 0
    round: tuple[StepId, int] | None = None
    part: Part | None = None
    failed: set[StepId] = field(default_factory=set)


@dataclass
class Host:
    """A machine. `connected` is False for a host that was given up and replaced while its processes live on."""

    number: int
    connected: bool = True
    slots: dict[str, SlotFiles] = field(default_factory=dict)
    lost: set[StepId] = field(default_factory=set)
    agent: Agent | None = None


class Doing(Enum):
    """What a trainer does when it is next given the processor."""

    JOIN = "join"
    WAIT = "wait"
    VERIFY = "verify"
    INSTALL = "install"
    TRAIN = "train"
    LEASE = "lease"
    FILL = "fill"
    SEAL = "seal"


@dataclass
class Trainer:
    """One rank's process. `eof`: its socket broke although it lives. `past` and `step` are its live state.

    Attributes:
        is_due: an evacuation is due, or was and is put off to the end of an accumulation (rule D4).
    """

    pid: int
    rank: int
    host: int
    job: Job
    alive: bool = True
    eof: bool = False
    doing: Doing = Doing.JOIN
    past: str = ""
    step: int = 0
    is_due: bool = False
    slot: str = ""
    inode: Inode | None = None
    filled: int = 0
    vote: bool | None = None
    reads: str = ""
    wanted: set[StepId] = field(default_factory=set)


class Stage(Enum):
    """How far the restart of a job has come; the same for all its ranks, told by rank 0."""

    CLAIM = "claim"
    LOOK = "look"
    VOTE = "vote"
    RUN = "run"


@dataclass
class Job:
    """One incarnation of the run.

    Attributes:
        attempt: 0 until the claim.
        ranked: the list that all ranks walk together; `entry` is where they are.
        given_up: the launcher's word, whether or not its processes live.
        seen: what truly was there when the views were gathered, for the checks alone.
    """

    take_over: bool
    fresh: bool
    slots_a_rank: int
    attempt: int = 0
    stage: Stage = Stage.CLAIM
    claimed_at: int = 0
    trainers: list[Trainer] = field(default_factory=list)
    ranked: tuple[Candidate, ...] = ()
    entry: int = 0
    given_up: bool = False
    parent: StepId | None = None
    seen: Marks = field(default_factory=Marks)

    @property
    def world_size(self) -> int:
        return len(self.trainers)

    @property
    def name(self) -> str:
        return f"attempt {self.attempt}" if self.attempt else "unnamed attempt"


@dataclass
class World:
    """Everything.

    Attributes:
        hosts: all there ever were, replaced ones too; `places` are the numbers of those that the next job runs on.
        refused_restarts: how often in a row a restart found nothing to resume from.
        excused: this event is damage or a turn of the lineage, so that W may go back.
        fault_in_between: chance of a kill between two effects that are one event otherwise.
        cut_after_commit: chance of a power loss or a killed agent right after a commit.
        wishes: chance that a rank asks for the commit of a step by name.
        patience: chance that a rank without a slot asks once more, rather than that its time-out is over.
        accumulations: steps between two at which a rank has no gradients waiting, by rank and then from the first again.
            Ranks that differ put their evacuations off to different steps.
    """

    rng: Random
    rules: Rules
    target: Target
    cadence: Cadence
    keep: Keep
    world_size: int
    hosts: list[Host] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    trainers: dict[int, Trainer] = field(default_factory=dict)
    jobs: list[Job] = field(default_factory=list)
    truth: Truth = field(default_factory=Truth)
    now: int = 0
    pids: int = 0
    refused_restarts: int = 0
    excused: bool = False
    fault_in_between: float = 0.0
    cut_after_commit: float = 0.0
    wishes: float = 0.0
    patience: float = 0.0
    accumulations: tuple[int, ...] = (1,)
    transcript: list[str] = field(default_factory=list)

    def say(self, who: str, what: str) -> None:
        self.transcript.append(f"{self.now:5d}  {who:<14} {what}")

    @property
    def job(self) -> Job:
        """The newest job."""
        return self.jobs[-1]

    def new_pid(self) -> int:
        self.pids += 1
        return self.pids

    def peers(self, host: Host) -> list[Host]:
        """The hosts that `host` can talk to, itself included."""
        return [self.hosts[n] for n in self.places] if host.connected else [host]

    def agents(self) -> list[Agent]:
        return [h.agent for h in self.hosts if h.agent is not None]

    def history(self, reader: int) -> History:
        return self.target.history(self.now, reader)

    def files(self, name: str) -> SlotFiles | None:
        """The slot of that name, or None if it is gone. Names carry the host: `h0/00001-000002`."""
        return self.hosts[int(name[1 : name.index("/")])].slots.get(name)

    def new_slot(self, host: Host, trainer: Trainer) -> None:
        """A slot for one process, under the lowest free number of its rank."""
        number = 0
        while (name := f"h{host.number}/{slot_name(trainer.rank, number)}") in host.slots:
            number += 1
        host.slots[name] = SlotFiles(name, trainer.rank, trainer.job.attempt, Inode(trainer.pid))

    def slots(self, host: Host) -> list[Slot]:
        """The slots of an arena as the core sees them, from the facts beside them."""
        return [self._slot(files) for files in host.slots.values()]

    def _slot(self, files: SlotFiles) -> Slot:
        rules, owner = self.rules, self.trainers[files.inode.writer]
        fact = rules.read_seal(rules.seal_known(files.sealed, files.told))
        gone = rules.writer_gone(not owner.alive, owner.eof)
        key = (fact, files.proven is None, files.filling, gone, len(files.readers))
        if files.shown is None or files.shown[0] != key:  # the same slot is looked at thousands of times a second
            files.shown = (key, self._show(files, owner, fact, gone))
        return files.shown[1]

    def _show(self, files: SlotFiles, owner: Trainer, fact: Sealed | None, gone: bool) -> Slot:
        phase = Phase.FILLING if files.filling else Phase.FREE
        if fact is not None:
            phase = Phase.SEALED if files.proven is None else Phase.PROVEN
        return Slot(
            name=files.name,
            rank=files.rank,
            owner_attempt=files.attempt,
            owner_alive=not gone,
            owner_pid=owner.pid,
            phase=phase,
            holds=fact.step_id if fact else None,
            world_size=fact.world_size if fact else 0,
            image_bytes=1,
            commit_at=fact.commit_at if fact else 0,
            readers=len(files.readers),
        )
