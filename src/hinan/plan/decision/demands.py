"""Impossible questions: what cannot hold, and the nearest setting with which it would.

Owns:      the checks of whole scenarios, before the search (`limits.py` has those after it).
Promises:  raises Infeasible with settings in the command line's names; `nearest` feeds them back.
Never:     answers. A scenario that passes may still be a bad idea; the price of it is in the answer.
"""

from __future__ import annotations

from hinan.plan.decision.assumed import resting_on
from hinan.plan.decision.choice import best_design
from hinan.plan.decision.design import Design, no_copy, rate_per_s, verification
from hinan.plan.decision.design import answers as answering
from hinan.plan.decision.limits import DRAIN
from hinan.plan.decision.losses import nodes_out
from hinan.plan.decision.variants import Variant, ram_of, variants, waits_for_save
from hinan.plan.intervals.joint import whole_steps
from hinan.plan.model import costs
from hinan.plan.model.checks import Infeasible
from hinan.plan.model.failures import HOST_LOSS, FailureClass, Tier
from hinan.plan.model.origin import Kind
from hinan.plan.model.scenario import Scenario

_MARGIN = 1.02
STEP_TOLERANCE_RATIO = 0.01
"""A given interval this near to a whole number of steps means that number; others are refused."""
_SIZE = ("job.gpus", "job.state_bytes", "job.shard_gpus", "machine.hbm_bytes")
"""Inputs on which the refusals of sizes rest."""


def checked_design(scenario: Scenario) -> Design:
    """The best design that keeps every demand.

    Raises:
        Infeasible: what cannot hold, in sentences, and settings nearer to what can.
    """
    with resting_on(scenario, *_SIZE):
        check_fits_hbm(scenario)
    check_peers(scenario)
    check_tiers(scenario)
    with resting_on(scenario, "restart.verify_s"):
        check_verification(scenario)
    with resting_on(scenario, *_SIZE, "machine.ram_bytes"):
        check_ram(scenario)
    with resting_on(scenario, *DRAIN, "failures"):
        check_pace(scenario)
    check_repair(scenario)
    with resting_on(scenario, "job.step_s"):
        check_interval(scenario)
    with resting_on(scenario, *DRAIN):
        check_redo(scenario)
    return best_design(scenario)


def check_fits_hbm(scenario: Scenario) -> None:
    """The state has to be in HBM before it can be evacuated."""
    job, hbm_bytes = scenario.job, scenario.machine.hbm_bytes
    if job.gpu_bytes <= hbm_bytes:
        return
    gpus = int(-(-job.state_bytes // hbm_bytes))
    wider = {"gpus": str(max(gpus, job.gpus)), "shard-gpus": str(gpus)}
    raise Infeasible(
        [f"{job.gpu_bytes / 1e9:.4g} GB of state per GPU do not fit into {hbm_bytes / 1e9:.4g} GB of HBM"], wider
    )


def check_peers(scenario: Scenario) -> None:
    """Peer copies that are asked for need as many other nodes, whatever the tiers."""
    demands, others = scenario.demands, scenario.nodes - 1
    if "peer_copies" in demands.origins and demands.peer_copies > others:
        reason = costs.available_tiers(scenario, "ram")[Tier.PEER]
        raise Infeasible([f"--peers {demands.peer_copies}: {reason}"], {"peers": str(others) if others else ""})


def check_tiers(scenario: Scenario) -> None:
    """The tiers given must exist on this machine and leave a copy after every failure that happens."""
    tiers, mode = scenario.demands.tiers, scenario.demands.mode
    if tiers is None:
        return
    why = costs.available_tiers(scenario, "ram" if mode == "auto" else mode)
    missing = {tier: why[tier] for tier in tiers if why[tier] is not None}
    if missing:
        left = [tier for tier in tiers if tier not in missing and tier is not Tier.SHARED]
        reasons = [f"tier {tier} cannot be used here: {reason}" for tier, reason in missing.items()]
        raise Infeasible(reasons, {"tiers": ",".join([*left, Tier.SHARED])})
    lost = next((failure for failure, _, tier in answering(scenario, tiers) if tier is None), None)
    if lost is not None:
        with resting_on(scenario, "failures"):
            raise no_copy(lost, tiers)


def check_verification(scenario: Scenario) -> None:
    """A verification must be over before the next one."""
    every_s, share = verification(scenario)
    if every_s is None or share < 1:
        return
    verify_s = scenario.restart.verify_s
    if scenario.restart.detection_latency_s is None:
        silent_s = 1 / rate_per_s(scenario, FailureClass.SILENT)
        why, nearest = f"corruption strikes every {silent_s:.4g} s", {"verify": f"{silent_s / 4:.6g}s"}
    else:
        why, nearest = f"corruption is to be seen within {every_s:.4g} s", {"latency": f"{2 * verify_s:.6g}s"}
    raise Infeasible(
        [f"{why}, so replicas are verified every {every_s:.4g} s, and a verification takes {verify_s:.4g} s of training"],
        nearest,
    )


def check_ram(scenario: Scenario) -> None:
    """A RAM budget given by the designer must hold what the wanted mode needs."""
    demands, machine = scenario.demands, scenario.machine
    budget = machine.ram_bytes if demands.ram_budget_bytes is None else demands.ram_budget_bytes
    wants_ram = demands.mode == "ram" or (demands.mode == "auto" and demands.ram_budget_bytes is not None)
    if demands.tiers is not None and Tier.RAM not in demands.tiers:
        wants_ram = False
    if wants_ram and budget < scenario.node_bytes:
        nearest = {"ram": f"{_least_ram_bytes(scenario) / 1e9 * 1.0001:.6g}GB"}
        if machine.nvme_write_bytes_per_s > 0 and budget >= costs.RING_BYTES:
            nearest = {"mode": "ring"}
        elif machine.nvme_write_bytes_per_s > 0 and demands.mode == "auto":
            nearest["mode"] = "ring"  # the least that does is the ring's
        raise Infeasible(
            [
                f"one image of a node is {scenario.node_bytes / 1e9:.4g} GB, its RAM for evacuation "
                f"{budget / 1e9:.4g} GB: no whole image fits"
            ],
            nearest,
        )
    if demands.mode in ("ring", "gds") and machine.nvme_write_bytes_per_s == 0:
        raise Infeasible([f"{demands.mode} mode needs NVMe, {machine.name} has none"], {"mode": "ram"})
    if demands.mode == "gds" and machine.gds_bytes_per_s == 0:
        raise Infeasible([f"{machine.name} has no GPUDirect Storage"], {"mode": "ring"})
    fitting = [variant for variant in variants(scenario) if ram_of(scenario, variant).fits]
    if fitting:
        return
    raise Infeasible(
        [f"evacuation needs {_least_ram_bytes(scenario) / 1e9:.4g} GB of RAM per node, of {budget / 1e9:.4g} GB"],
        {"ram": f"{_least_ram_bytes(scenario) / 1e9 * 1.0001:.6g}GB"},
    )


def _least_ram_bytes(scenario: Scenario) -> float:
    options = [ram_of(scenario, variant).needed_bytes for variant in variants(scenario)]
    return min(options) if options else ram_of(scenario, Variant("ram", (Tier.RAM, Tier.SHARED))).needed_bytes


def check_pace(scenario: Scenario) -> None:
    """A drain to the shared store must end before the hosts that hold its bytes fail, or nothing is ever committed."""
    per_s = sum(rate_per_s(scenario, failure) for failure in HOST_LOSS)
    if per_s == 0 or waits_for_save(scenario):
        return
    drain_s, link = costs.drain(scenario, Tier.SHARED, "ram", peers=False)
    if drain_s < 1 / per_s:
        return
    aim_s = 0.8 / per_s
    needed = scenario.job.state_bytes / aim_s
    nearest = {"drain": f"{aim_s:.4g}s"}
    if scenario.store.drain_s is None and link == "storage bandwidth":
        nearest = {"store-bandwidth": f"{needed / 1e9 * _MARGIN:.6g}GB/s"}
    raise Infeasible(
        [
            f"draining to the store takes {drain_s:.4g} s, a host of the job is lost every {1 / per_s:.4g} s: "
            "hardly a drain would end"
        ],
        nearest,
    )


def check_repair(scenario: Scenario) -> None:
    """A repair time given must not keep more nodes out than there are."""
    given = scenario.restart.origins.get("repair_s")
    if given is None or given.kind is not Kind.GIVEN:
        return
    out = nodes_out(scenario)
    if out > scenario.nodes:
        repair_s = scenario.restart.repair_s
        raise Infeasible(
            [f"with repairs of {repair_s:.4g} s {out:.3g} nodes would be out at a time, the job has {scenario.nodes:,}"],
            {"repair": f"{repair_s * scenario.nodes / out * 0.5:.4g}s"},
        )


def check_interval(scenario: Scenario) -> None:
    """A given interval must be whole steps: saves happen between them. (Copy and drain: see `joint.py`.)"""
    given_s, step_s = scenario.demands.interval_s, scenario.job.step_s
    if given_s is None or not scenario.job.step_known:
        return
    nearest_s = whole_steps(given_s, step_s) * step_s
    if abs(nearest_s / given_s - 1) > STEP_TOLERANCE_RATIO:
        raise Infeasible(
            [
                f"an interval of {given_s:.4g} s is {given_s / step_s:.3g} steps of {step_s:.4g} s; "
                "saves happen between steps"
            ],
            {"interval": f"{nearest_s:.9g}s"},
        )


def check_redo(scenario: Scenario) -> None:
    """The redo limit against the fastest that each tier can save: twice its drain."""
    limit_s = scenario.demands.max_redo_s
    if limit_s is None:
        return
    least = min((_least_redo_s(scenario, variant) for variant in variants(scenario)), default=0.0)
    if limit_s < least * (1 - 1e-9):
        raise Infeasible(
            [
                f"redo of at most {limit_s:.4g} s: the slowest tier that some failure needs cannot do better than "
                f"{least:.4g} s (drain, and the interval that is no shorter)"
            ],
            {"max-redo": f"{least * _MARGIN + scenario.job.step_s * scenario.job.step_known:.6g}s"},
        )


def _least_redo_s(scenario: Scenario, variant: Variant) -> float:
    quantum_s = scenario.job.step_s if scenario.job.step_known else 0.0
    worst = 0.0
    for failure, _, tier in answering(scenario, variant.tiers):
        if tier is None or failure is FailureClass.SILENT:
            continue
        drain_s = costs.drain(scenario, tier, variant.mode, peers=variant.peers)[0]
        worst = max(worst, drain_s + max(drain_s, quantum_s, scenario.demands.interval_s or 0.0))
    return worst
