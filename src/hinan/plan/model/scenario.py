"""The question: a job, its machine, its store, its failures, its restarts, and what the designer demands.

Owns:      the immutable values of a question and the origin of each number.
Promises:  checked on creation; `Scenario.origins()` names kind and source of every number that enters the answer.
Never:     computes an answer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace

from hinan.core.errors import ConfigError
from hinan.plan.model.checks import Infeasible, not_negative, positive, ratio
from hinan.plan.model.failures import FailureClass, FailureTable, Tier
from hinan.plan.model.interference import INTERFERENCE_ORIGIN, INTERFERENCE_RATIO
from hinan.plan.model.machines import Machine
from hinan.plan.model.origin import GIVEN, Kind, Origin, default, guessed

BYTES_PER_PARAMETER = 14
"""bf16 weight 2, fp32 master weight 4, two fp32 Adam moments 8 (no gradients)."""


@dataclass(frozen=True)
class Job:
    """What is trained, and how an evacuation of it behaves."""

    gpus: int
    state_bytes: float
    """Everything kept, once for the job."""
    shard_gpus: int | None = None
    """GPUs over which one copy of the state is sharded; None: all. Fewer means replicas, each node holds its share."""
    grows_to_gpus: int | None = None
    """The state is a share of every GPU's HBM, in one copy over up to so many GPUs; None: it is the same in any job."""
    step_s: float = 5.0
    """Training step."""
    step_known: bool = False
    """Whether `step_s` is known; if not, intervals are not rounded to it."""
    hideable_ratio: float = 0.8
    """Share of a step behind which copying can hide: forward and backward, not the optimizer."""
    hidden_ratio: float | None = None
    """phi, the share of the copy that hides; None: as much as fits into the hideable share of a step."""
    floor_s: float = 0.005
    """Stall that no bandwidth removes: launching the copies, the gate."""
    stall_s: float | None = None
    """Measured or given stall of the fastest tier: replaces the computed one."""
    origins: Mapping[str, Origin] = field(default_factory=dict)

    def __post_init__(self) -> None:
        positive(gpus=self.gpus, state_bytes=self.state_bytes, shard_gpus=self.sharded_over)
        ratio(hideable_ratio=self.hideable_ratio, hidden_ratio=self.hidden_ratio or 0.0)
        not_negative(floor_s=self.floor_s)
        positive(step_s=self.step_s)
        if self.stall_s is not None:
            positive(stall_s=self.stall_s)
        if self.sharded_over > self.gpus:
            raise Infeasible(
                [f"the state cannot be sharded over {self.sharded_over:,} of {self.gpus:,} GPUs"],
                {"shard-gpus": str(self.gpus)},
            )

    @property
    def sharded_over(self) -> int:
        """GPUs that hold one copy of the state between them."""
        return self.gpus if self.shard_gpus is None else self.shard_gpus

    @property
    def gpu_bytes(self) -> float:
        """State that one GPU evacuates."""
        return self.state_bytes / self.sharded_over

    def of_size(self, gpus: int) -> Job:
        """The same question about a job of another size. A state that is a share of the HBM grows with it as far as one
        copy reaches. One that was named is the same, sharded over all GPUs; replicas that were given, or that a run has,
        stay replicas."""
        if self.grows_to_gpus is not None:
            over = min(self.grows_to_gpus, gpus)
            return replace(self, gpus=gpus, shard_gpus=over, state_bytes=self.gpu_bytes * over)
        origin = self.origins.get("shard_gpus")
        replicated = origin is not None and origin.kind in (Kind.MEASURED, Kind.GIVEN)
        return replace(self, gpus=gpus, shard_gpus=min(self.sharded_over, gpus) if replicated else None)


@dataclass(frozen=True)
class Store:
    """The shared place of the run, and how draining to any slow tier disturbs training."""

    write_bytes_per_s: float = 100e9
    """Job-wide."""
    read_bytes_per_s: float = 200e9
    interference_ratio: float = INTERFERENCE_RATIO
    """Slow-down of a step while a drain runs."""
    drain_s: float | None = None
    """Measured or given drain time to the shared tier: replaces the computed one."""
    origins: Mapping[str, Origin] = field(default_factory=dict)

    def __post_init__(self) -> None:
        positive(write_bytes_per_s=self.write_bytes_per_s, read_bytes_per_s=self.read_bytes_per_s)
        ratio(interference_ratio=self.interference_ratio)
        if self.drain_s is not None:
            positive(drain_s=self.drain_s)


@dataclass(frozen=True)
class RestartParts:
    """Where the time between a failure and the first new step goes, for one class [s]."""

    detect_s: float
    reschedule_s: float
    init_s: float

    def __post_init__(self) -> None:
        not_negative(detect_s=self.detect_s, reschedule_s=self.reschedule_s, init_s=self.init_s)


RESTARTS: Mapping[FailureClass, RestartParts] = {
    FailureClass.PROCESS: RestartParts(5, 5, 40),
    FailureClass.SOFTWARE: RestartParts(30, 5, 40),
    FailureClass.GPU: RestartParts(15, 60, 40),
    FailureClass.MEMORY: RestartParts(15, 15, 40),
    FailureClass.NODE: RestartParts(30, 60, 40),
    FailureClass.RACK: RestartParts(30, 300, 40),
    FailureClass.JOB: RestartParts(30, 600, 40),
    FailureClass.SILENT: RestartParts(0, 60, 40),
}
"""Guesses to be replaced by measurements: detection by heartbeat or watchdog, a hot spare for a node, power coming
back for a rack. Load is computed from bytes and bandwidth unless given; redo follows from the interval."""


@dataclass(frozen=True)
class Restart:
    """Restarts per class; `total_s` replaces every sum, load included."""

    parts: Mapping[FailureClass, RestartParts] = field(default_factory=lambda: RESTARTS)
    init_per_1k_nodes_s: float = 10.0
    """Rendezvous and communicator set-up grow with the job."""
    load_s: float | None = None
    """Measured or given time to bring the state back into HBM, from any tier; None: bytes over bandwidth."""
    replay_s: float = 0.0
    """What the loop does again before its first new step, beside the steps lost: a data loader that skips to its place."""
    detection_latency_s: float | None = None
    """From silent corruption to its detection; None: as long as the verification cadence the planner chooses."""
    verify_s: float = 1.0
    """Training time one verification (replica digests) takes."""
    nodes_return_ratio: float = 0.9
    """Share of rack, power and whole-job failures after which the nodes come back with their NVMe."""
    repair_s: float = 5.5 * 86_400
    """A failed node is out for this long (spares)."""
    total_s: float | None = None
    origins: Mapping[str, Origin] = field(default_factory=dict)

    def __post_init__(self) -> None:
        not_negative(detection_latency_s=self.detection_latency_s or 0.0, init_per_1k_nodes_s=self.init_per_1k_nodes_s)
        not_negative(load_s=self.load_s or 0.0, replay_s=self.replay_s)
        positive(verify_s=self.verify_s, repair_s=self.repair_s)
        ratio(nodes_return_ratio=self.nodes_return_ratio)
        if self.total_s is not None:
            not_negative(total_s=self.total_s)


@dataclass(frozen=True)
class Demands:
    """Requirements: None means "no demand"."""

    max_redo_s: float | None = None
    """No single failure may cost more training than this. Silent corruption is not held to it: noticed late, it costs what
    was trained since, at any interval."""
    max_stall_ratio: float | None = None
    """All saving together may cost at most this share of training."""
    max_rto_s: float | None = None
    """From any failure to the first new step, in at most this time."""
    ram_budget_bytes: float | None = None
    """RAM of a node that evacuation may use."""
    interval_s: float | None = None
    """Judge this interval of the fastest tier instead of searching."""
    tiers: tuple[Tier, ...] | None = None
    """Use exactly these."""
    mode: str = "auto"
    """auto, ram, ring or gds."""
    peer_copies: int = 1
    max_loss_ratio: float | None = None
    """Everything lost to failures and saving may be at most this share of the GPU time."""
    max_usd_per_day: float | None = None
    """The same as money."""
    commit_within_s: float = 3600.0
    """A tier that answers no failure in the table is still written this often: tables forget disasters."""
    origins: Mapping[str, Origin] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for name in (
            "max_redo_s",
            "max_rto_s",
            "ram_budget_bytes",
            "interval_s",
            "max_stall_ratio",
            "max_loss_ratio",
            "max_usd_per_day",
        ):
            value = getattr(self, name)
            if value is not None:
                positive(**{name: value})
        if self.mode not in ("auto", "ram", "ring", "gds"):
            raise ConfigError(f"mode is auto, ram, ring or gds, not {self.mode!r}")
        if self.tiers is not None and not self.tiers:
            raise ConfigError("at least one tier is needed")
        not_negative(peer_copies=self.peer_copies)


@dataclass(frozen=True)
class Scenario:
    """The whole question."""

    job: Job
    machine: Machine
    failures: FailureTable
    store: Store = field(default_factory=Store)
    restart: Restart = field(default_factory=Restart)
    demands: Demands = field(default_factory=Demands)
    mtti_origin: Origin | None = None
    """Who said how often the job is interrupted; None: it follows from the table."""
    failures_by: str = "mtti"
    """The setting in which the designer says how often nodes fail, mtti or rate: corrections are made in it."""
    measured: str = ""
    """What a run stood in for, and which run; empty without one."""
    notes: tuple[str, ...] = ()
    """What the reader of the answer must know about the inputs."""

    def of_size(self, gpus: int) -> Scenario:
        """The same question about a job of another size, every node of which fails as often."""
        return replace(self, job=self.job.of_size(gpus))

    @property
    def nodes(self) -> int:
        """Nodes of the job, the last one perhaps half empty."""
        return -(-self.job.gpus // self.machine.gpus_per_node)

    @property
    def size(self) -> str:
        """GPUs and nodes in words."""
        gpus, nodes = self.job.gpus, self.nodes
        return f"{gpus:,} GPU{'s' * (gpus != 1)} on {nodes:,} node{'s' * (nodes != 1)}"

    @property
    def gpus_on_node(self) -> int:
        """GPUs that the job uses on a node."""
        return min(self.job.gpus, self.machine.gpus_per_node)

    @property
    def node_bytes(self) -> float:
        """One image of a node: what its GPUs evacuate."""
        return self.job.gpu_bytes * self.gpus_on_node

    @property
    def mtti_s(self) -> float:
        """Mean time to interruption of the job."""
        return self.failures.mtti_s(self.nodes)

    def shown(self, name: str) -> Shown:
        """Value of an input named as in `origins`: a number with the name's unit, a word, or seconds by class and part.

        Of the failure table it is the sum [failures per node-day].
        """
        part, _, field_name = name.partition(".")
        if name == "restart.parts":
            return {str(failure): asdict(parts) for failure, parts in self.restart.parts.items()}
        value = getattr(getattr(self, part), field_name) if field_name else self.failures.total_per_node_day
        if isinstance(value, tuple):
            return ",".join(value)
        assert isinstance(value, int | float | str), name
        return value

    def origins(self) -> dict[str, Origin]:
        """Origin of every number that enters: "machine.d2h_bytes_per_s" -> measured, from where.

        What a given figure replaces does not enter: a stall given leaves no floor, a restart no bandwidth to load with.
        """
        found: dict[str, Origin] = {}
        replaced = {each for name, others in _REPLACES.items() if self._has(name) for each in others}
        for part, value, known in (
            ("machine", self.machine, {}),
            ("job", self.job, _JOB),
            ("store", self.store, _STORE),
            ("restart", self.restart, _RESTART),
            ("demands", self.demands, _DEMANDS),
        ):
            own = {**known, **value.origins}
            for each in fields(value):
                name = f"{part}.{each.name}"
                if each.name not in _NO_NUMBERS and self._has(name) and name not in replaced:
                    found[name] = own.get(each.name, GIVEN)
        return {**found, "failures": self.mtti_origin or default(self.failures.source)}

    def _has(self, name: str) -> bool:
        part, _, field_name = name.partition(".")
        return getattr(getattr(self, part), field_name) is not None


Shown = float | str | dict[str, dict[str, float]]

_NO_NUMBERS = ("name", "origins", "step_known", "grows_to_gpus")
_LOADS = ("store.read_bytes_per_s", "machine.nvme_read_bytes_per_s")
"""Bandwidths that nothing but loading the state takes."""
_REPLACES = {
    "job.stall_s": ("job.hideable_ratio", "job.hidden_ratio", "job.floor_s"),
    "job.hidden_ratio": ("job.hideable_ratio",),
    "demands.ram_budget_bytes": ("machine.ram_bytes",),
    "store.drain_s": ("store.write_bytes_per_s",),
    "restart.load_s": _LOADS,
    "restart.total_s": ("restart.parts", "restart.init_per_1k_nodes_s", "restart.load_s", "restart.replay_s", *_LOADS),
}
_JOB = {
    "step_s": guessed("a common length; give --step and intervals come in whole steps"),
    "hideable_ratio": guessed("forward and backward are most of a step; the optimizer may not start before the copy ends"),
    "floor_s": guessed("launch of the copies and the gate; `hinan preflight` can measure it"),
}
_STORE = {
    "write_bytes_per_s": guessed("a parallel file system shared with others; measure with the job's own writers"),
    "read_bytes_per_s": guessed("twice the write bandwidth"),
    "interference_ratio": INTERFERENCE_ORIGIN,
}
_RESTART = {
    "parts": guessed("usual launchers; your launcher's log has the truth: give --detect, --reschedule and --init"),
    "init_per_1k_nodes_s": guessed("communicator set-up grows with the job"),
    "replay_s": guessed("the loader's place is in the state, nothing is skipped through"),
    "verify_s": guessed("digests of what is in RAM, compared between replicas"),
    "nodes_return_ratio": guessed("after most power cuts the same hosts come back"),
    "repair_s": default("InfiniteHBD trace: mean repair 5.5 days, median 0.85"),
}
_DEMANDS = {
    "mode": default("the one of ram, ring and gds that keeps most; ram where it is as good"),
    "peer_copies": default("one partner, where a tier of peers is used"),
    "commit_within_s": guessed("failure tables forget disasters"),
}
