"""The scenario that settings ask for: what is given or measured, and guesses for the rest, each with its origin.

Owns:      which setting becomes which field of the question, and what is taken where nothing is said.
Promises:  one text means one scenario; what is given wins over what was measured.
Never:     asks the machine it runs on: a plan for another cluster must not depend on this one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from hinan.plan.model.checks import Infeasible
from hinan.plan.model.failures import DAY_S, FailureTable, table
from hinan.plan.model.machines import machine
from hinan.plan.model.origin import GIVEN, Origin, default, guessed
from hinan.plan.model.rivals import check_rivals
from hinan.plan.model.scenario import BYTES_PER_PARAMETER, RESTARTS, Demands, Job, Restart, RestartParts, Scenario, Store
from hinan.plan.model.settings import LONGEST_S, read
from hinan.plan.observed.measured import MeasuredRun

WHOLE_COPY_GPUS = 1024
"""Where the state is not named, one copy of it is sharded over no more GPUs than this."""

# Which setting fills which field.
_NODE = {
    "gpus-per-node": "gpus_per_node",
    "hbm": "hbm_bytes",
    "d2h": "d2h_bytes_per_s",
    "dram": "dram_bytes_per_s",
    "nvme": "nvme_write_bytes_per_s",
    "nvme-read": "nvme_read_bytes_per_s",
    "nic": "nic_bytes_per_s",
    "gds": "gds_bytes_per_s",
    "usd-per-gpu-hour": "usd_per_gpu_hour",
}
_JOB = {
    "step": "step_s",
    "hidden": "hidden_ratio",
    "stall": "stall_s",
    "floor": "floor_s",
    "shard-gpus": "shard_gpus",
}
_STORE = {
    "drain": "drain_s",
    "store-bandwidth": "write_bytes_per_s",
    "store-read-bandwidth": "read_bytes_per_s",
    "interference": "interference_ratio",
}
_RESTART = {
    "restart": "total_s",
    "load": "load_s",
    "init-growth": "init_per_1k_nodes_s",
    "replay": "replay_s",
    "latency": "detection_latency_s",
    "verify": "verify_s",
    "repair": "repair_s",
    "nodes-return": "nodes_return_ratio",
}
_DEMANDS = {
    "interval": "interval_s",
    "max-redo": "max_redo_s",
    "max-stall": "max_stall_ratio",
    "max-rto": "max_rto_s",
    "ram": "ram_budget_bytes",
    "tiers": "tiers",
    "mode": "mode",
    "peers": "peer_copies",
}


def scenario_from(
    settings: Mapping[str, str], *, fitted: FailureTable | None = None, measured: MeasuredRun | None = None
) -> Scenario:
    """The question that the settings ask. `fitted` is a failure table fitted to a trace.

    What a run has `measured`, or is known of a machine's links, stands in for settings that are not given.

    Raises:
        Infeasible, ConfigError: see `read`; or values that cannot go together.
    """
    v = read(settings)
    check_rivals(v, fitted=fitted is not None)
    typed = {*v, "failures"} if fitted else {*v}
    figures = measured.beside(typed) if measured else {}
    v |= {name: figure.value for name, figure in figures.items()}
    seen = {name: Origin(figure.kind, figure.source) for name, figure in figures.items()}
    node = v.get("preset") or machine("dgx-h100")
    node = node.with_given(*_told(_NODE, v, seen))
    job = _job(v, node.hbm_bytes, seen)
    failures = fitted or v.get("failures") or table("llama3")
    if "rate" in v:
        failures = failures.scaled(v["rate"] / failures.total_per_node_day, why=", scaled to the rate given")
    by = "rate" if "rate" in v else "mtti"
    scenario = Scenario(job, node, failures, _store(v, seen), _restart(v, seen), _demands(v), failures_by=by)
    if measured:
        scenario = replace(scenario, measured=measured.summary(typed), notes=measured.notes(typed))
    if "mtti" in v:
        who = seen.get("mtti", GIVEN)
        # A measured MTTI is that of the run: in a job of another size every node fails as often as its nodes did.
        nodes = (
            -(-int(measured.figures["gpus"].value) // node.gpus_per_node) if measured and "mtti" in seen else scenario.nodes
        )
        rate = DAY_S / (nodes * v["mtti"])
        failures = failures.scaled(rate / failures.total_per_node_day, why=f", scaled to the MTTI {who.kind}")
        scenario = replace(scenario, failures=failures, mtti_origin=who)
    return _meant(scenario)


def of_size(scenario: Scenario, gpus: int) -> Scenario:
    """The question that the same settings ask about so many GPUs, if every node fails as often.

    Raises:
        Infeasible: as `scenario_from`.
    """
    return _meant(scenario.of_size(gpus))


def _meant(scenario: Scenario) -> Scenario:
    if scenario.mtti_s > LONGEST_S:
        raise Infeasible(
            [f"an interruption every {scenario.mtti_s / (365.25 * DAY_S):.3g} years: no such job was meant"],
            {"mtti": "365d", "rate": ""},
        )
    return scenario


def _job(v: dict[str, Any], hbm_bytes: float, seen: Mapping[str, Origin]) -> Job:
    gpus = v.get("gpus", 1024)
    no_gpus = guessed("no --gpus: a middling job")
    origins: dict[str, Origin] = {"gpus": seen.get("gpus", GIVEN) if "gpus" in v else no_gpus}
    whole_job = "shard-gpus" not in v and not {"state-bytes", "params"} & v.keys()
    grows_to: int | None = None
    if "state-bytes" in v:
        state, origins["state_bytes"] = v["state-bytes"], seen.get("state-bytes", GIVEN)
    elif "params" in v:
        state = v["params"] * BYTES_PER_PARAMETER
        how = "14 bytes per parameter: bf16 weight, fp32 master, two fp32 moments"
        origins["state_bytes"] = default(f"{v['params']:.6g} parameters given, {how}")
    else:
        grows_to = v.setdefault("shard-gpus", WHOLE_COPY_GPUS)
        if whole_job:
            v["shard-gpus"] = min(gpus, grows_to)
        state = v.get("keep", 0.5) * hbm_bytes * v["shard-gpus"]
        origins["state_bytes"] = (
            GIVEN
            if "keep" in v
            else guessed("half of the HBM of at most 1,024 GPUs is state; give --params or --state-bytes")
        )
    given, told = _told(_JOB, v, seen)
    origins |= told
    if whole_job:
        origins["shard_gpus"] = guessed("one copy over all GPUs, up to 1,024: beyond them, replicas")
    return Job(gpus, state, grows_to_gpus=grows_to, step_known="step" in v, origins=origins, **given)


def _told(
    names: Mapping[str, str], v: Mapping[str, Any], seen: Mapping[str, Origin]
) -> tuple[dict[str, Any], dict[str, Origin]]:
    """The fields whose settings have a value, and the origin of each: seen in a run, or given."""
    told = {field: name for name, field in names.items() if name in v}
    return {field: v[name] for field, name in told.items()}, {field: seen.get(name, GIVEN) for field, name in told.items()}


def _store(v: Mapping[str, Any], seen: Mapping[str, Origin]) -> Store:
    given, origins = _told(_STORE, v, seen)
    return Store(**given, origins=origins)


def _restart(v: Mapping[str, Any], seen: Mapping[str, Origin]) -> Restart:
    given, origins = _told(_RESTART, v, seen)
    parts = {f"{name}_s": v[name] for name in ("detect", "reschedule", "init") if name in v}
    if parts:
        given["parts"] = {failure: replace(base, **parts) for failure, base in RESTARTS.items()}
        origins["parts"] = _origin_of_parts(parts)
    return Restart(**given, origins=origins)


def _origin_of_parts(given: Mapping[str, float]) -> Origin:
    guesses = [each.name for each in fields(RestartParts) if each.name not in given]
    if not guesses:
        return GIVEN
    return guessed(f"{', '.join(guesses)}; given: {', '.join(given)}")


def _demands(v: Mapping[str, Any]) -> Demands:
    given, origins = _told(_DEMANDS, v, {})
    if "budget" in v:
        field, value = v["budget"]
        given[field], origins[field] = value, GIVEN
    return Demands(**given, origins=origins)
