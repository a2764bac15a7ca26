"""The public failure trace: what it says, and that a plan fitted on one half of it serves the other half."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner, Result

from hinan.cli.main import app
from hinan.core.errors import ConfigError
from hinan.plan.intervals.arrivals import Replay
from hinan.plan.intervals.formulas import exact_interval_s
from hinan.plan.intervals.montecarlo import Track, simulate
from hinan.plan.model.collectives import recovered_ratio, straggler_slowdown
from hinan.plan.model.failures import INFINITEHBD, INFINITEHBD_NODES_BY_FAULTS
from hinan.plan.observed.traces import Trace, faults_per_node, job_mtti_s, read_trace, table_of, weibull_shape

DAY_S = 86_400.0
_FOLDERS = [os.environ.get("HINAN_SHARED", ""), str(Path(__file__).parents[3] / "shared")]
_TRACES = next((Path(f) / "cases" / "traces" for f in _FOLDERS if f and (Path(f) / "cases" / "traces").is_dir()), None)
needs_traces = pytest.mark.skipif(
    _TRACES is None, reason="no traces: set HINAN_SHARED or put ../shared beside the checkout"
)


@pytest.fixture(scope="module")
def trace() -> Trace:
    """The InfiniteHBD trace."""
    assert _TRACES is not None
    return read_trace(_TRACES / "infinitehbd-fault-trace.json")


@needs_traces
def test_what_the_trace_says(trace: Trace) -> None:
    """Its 400 servers, 584 faults, 4.18 per 1000 node-days, Weibull shape 0.62, repair 0.85 to 81 days, 41 % on a tenth."""
    assert len(trace.faults) == 584
    assert (trace.nodes, trace.notes) == (400, ())
    assert trace.per_node_day == pytest.approx(4.184e-3, abs=5e-7)
    gaps_s = np.diff([fault.at_s for fault in trace.faults])
    assert int((gaps_s == 0).sum()) == 55
    assert gaps_s.mean() / 3600 == pytest.approx(14.2, abs=0.05)
    assert weibull_shape(list(gaps_s)) == pytest.approx(0.62, abs=0.005)
    repair_d = [(f.ended_s - f.at_s) / DAY_S for f in trace.faults if f.ended_s is not None]
    assert np.median(repair_d) == pytest.approx(0.85, abs=0.005)
    assert np.mean(repair_d) == pytest.approx(5.5, abs=0.05)
    assert np.quantile(repair_d, 0.99) == pytest.approx(81, abs=1)
    counts = sorted(faults_per_node(trace), reverse=True)
    assert sum(counts[:40]) / 584 == pytest.approx(0.41, abs=0.005)
    quiet = [fault for fault in trace.faults if not fault.by_test]
    assert len(quiet) / 400 / (trace.horizon_s / DAY_S) == pytest.approx(3.39e-3, abs=5e-6)
    assert job_mtti_s(counts, trace.horizon_s, job_nodes=128)[1] / DAY_S == pytest.approx(1.9, abs=0.05)


@needs_traces
def test_shipped_figures_are_the_traces(trace: Trace) -> None:
    """What the project ships is what the trace says, class by class and node by node."""
    fitted = table_of(trace)
    assert dict(fitted.per_node_day) == pytest.approx(dict(INFINITEHBD.per_node_day), rel=1e-6)
    counts = faults_per_node(trace)
    assert {k: counts.count(k) for k in set(counts)} == dict(INFINITEHBD_NODES_BY_FAULTS)


def replayed_ettr(trace: Trace, interval_s: float, stall_s: float, restart_s: float) -> float:
    """A job on all nodes of the trace, failures exactly as recorded, averaged over starting points."""
    times_s = np.array([fault.at_s for fault in trace.faults])
    lives = 24
    replay = Replay(times_s, np.zeros(times_s.size, dtype=np.int64), horizon_s=trace.horizon_s, lives=lives)
    track = Track(interval_s, (), (stall_s,), (0,), (restart_s,), (0.0,))
    return simulate(track, replay, lives=lives, wall_s=trace.horizon_s, seed=1).ettr


@needs_traces
@pytest.mark.parametrize("stall_s", [2.0, 30.0, 300.0])
@pytest.mark.parametrize("first_half", [True, False])
def test_fitted_on_one_half_serves_the_other(trace: Trace, stall_s: float, first_half: bool) -> None:
    """The interval recommended from one half is within 1 % ETTR of the best found by brute force on the other."""
    middle_s = trace.horizon_s / 2
    halves = [trace.between(0, middle_s), trace.between(middle_s, trace.horizon_s + 1)]
    fit_on, judged_on = halves if first_half else halves[::-1]
    recommended_s = exact_interval_s(stall_s=stall_s, mtti_s=table_of(fit_on).mtti_s(trace.nodes))
    grid = [recommended_s * 1.3**k for k in range(-10, 11)]
    best = max(replayed_ettr(judged_on, tau_s, stall_s, 600.0) for tau_s in grid)
    assert replayed_ettr(judged_on, recommended_s, stall_s, 600.0) > best - 0.01


@needs_traces
def test_straggler_figures() -> None:
    """S and M of the published what-if analysis follow from its times."""
    assert _TRACES is not None
    workers = json.loads((_TRACES / "bytedance-mw-ST.json").read_text(encoding="utf-8"))
    stage = json.loads((_TRACES / "bytedance-ms-ST.json").read_text(encoding="utf-8"))
    whole = {"original_s": workers["tori"], "ideal_s": workers["tideal"]}
    assert straggler_slowdown(**whole) == pytest.approx(1.1787, abs=5e-5)
    assert recovered_ratio(**whole, fixed_s=workers["trem"]) == pytest.approx(workers["Mw"])
    assert recovered_ratio(**whole, fixed_s=stage["trem"]) == pytest.approx(stage["Ms"])


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '[{"node_id": "a"}]', '[{"node_id": "a", "event_time": "x", "event_type": "fault_start"}]',
     '[{"node_id": "a", "event_time": -1, "event_type": "fault_start"}]',
     '[{"node_id": "a", "event_time": 1, "event_type": "lunch"}]',
     '[{"node_id": "a", "event_time": 1, "event_type": "fault_end"}]'],
)  # fmt: skip
def test_bad_traces_are_refused(tmp_path: Path, text: str) -> None:
    """What is not a trace is refused with what is wrong in it."""
    path = tmp_path / "trace.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError, match="trace"):
        read_trace(path)


def test_a_small_trace_is_fitted(tmp_path: Path) -> None:
    """Two faults of two nodes in ten days of a fleet of four: 0.05 per node-day."""
    events = [
        {"node_id": "a", "event_time": 2, "event_type": "fault_start", "fault_type": {"Class": "GPU", "Desc": "lost"}},
        {"node_id": "a", "event_time": 3, "event_type": "fault_end", "fault_type": {"Class": "GPU", "Desc": "lost"}},
        {"node_id": "b", "event_time": 10, "event_type": "fault_start", "fault_type": {"Class": "Fan"}},
    ]
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(events), encoding="utf-8")
    fitted = table_of(read_trace(path, nodes=4))
    assert fitted.total_per_node_day == pytest.approx(0.05)
    assert read_trace(path, nodes=4).faults[0].ended_s == 3 * DAY_S


def start(node: str, day: float) -> dict[str, object]:
    return {"node_id": node, "event_time": day, "event_type": "fault_start", "fault_type": {"Class": "GPU", "Desc": "lost"}}


def fitted_to(tmp_path: Path, events: list[dict[str, object]], *words: str) -> Result:
    """`hinan plan --trace` on these events."""
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(events), encoding="utf-8")
    return CliRunner().invoke(app, ["plan", "--params", "70B", "--trace", str(path), *words])


def test_times_that_are_no_days_are_refused_by_name(tmp_path: Path) -> None:
    """Seconds since 1970 instead of days: the event and its node are named, and no 300-digit MTTI is printed."""
    for day in (1e300, 1.7e9):
        result = fitted_to(tmp_path, [start("a", 1), start("b7", day)])
        assert isinstance(result.exception, ConfigError)
        assert "event 1 (node b7) is at day" in str(result.exception)
    refused = CliRunner().invoke(app, ["plan", "--rate", "1e-14"])
    assert (refused.exit_code, "no such job was meant" in refused.output) == (1, True)
    refused = CliRunner().invoke(app, ["plan", "--mtti", "1e300d"])
    assert "longer than a million years" in str(refused.exception)


def test_an_event_that_stands_twice_counts_once_and_is_named(tmp_path: Path) -> None:
    """The rate does not double; the answer says which event it was. Two faults at once on two nodes stay two."""
    events = [start(node, day) for node in "ab" for day in range(1, 16)]
    words = ("--json", "--trace-nodes", "2", "--trace-from", "0")
    once = json.loads(fitted_to(tmp_path, events, *words).output)
    twice = json.loads(fitted_to(tmp_path, [*events, *events], *words).output)
    assert twice["mtti_s"] == once["mtti_s"]
    assert not [text for text in once["warnings"] if "trace" in text]
    (warning,) = [text for text in twice["warnings"] if "trace" in text]
    assert warning == "trace: 30 events stand in it twice and count once (event 30, fault_start of node a on day 1)"


def test_few_faults_are_warned_of_with_their_interval(tmp_path: Path) -> None:
    """One event is an MTTI between a fifth of it and twenty times it (Poisson, 90 %: 0.0513 to 4.744 expected)."""
    answer = json.loads(fitted_to(tmp_path, [start("a", 30)], "--json").output)
    (warning,) = [text for text in answer["warnings"] if "few" in text]
    assert "one fault is few: the MTTI may be 0.21 to 19 times the one shown (90 % interval)" in warning


def test_a_fleet_nobody_gave_is_the_nodes_named_and_said(tmp_path: Path) -> None:
    """16 nodes, 84 faults, 30 days: one every 8.6 h on all of them, no fleet of 400; both words say otherwise."""
    events = [start(f"n{i % 16}", (i + 1) * 30 / 84) for i in range(84)]
    own = json.loads(fitted_to(tmp_path, events, "--gpus", "128", "--json").output)
    assert own["mtti_s"] == pytest.approx(30 * DAY_S / 84)
    (warning,) = [text for text in own["warnings"] if "trace" in text]
    assert warning == (
        "trace: fleet taken as the 16 nodes named in it, time taken as days 0 to 30; "
        "--trace-nodes and --trace-from say otherwise"
    )
    both = ("--trace-nodes", "32", "--trace-from", "0.2")
    given = json.loads(fitted_to(tmp_path, events, "--gpus", "128", *both, "--json").output)
    assert given["mtti_s"] == pytest.approx(2 * 29.8 * DAY_S / 84)
    assert not [text for text in given["warnings"] if "trace" in text]


def test_a_part_cut_out_of_a_trace_begins_with_it(tmp_path: Path) -> None:
    """A thousand quiet days before 84 faults in 30 are not of the trace; said, and --trace-from says otherwise."""
    events = [start(f"n{i % 16}", 1000 + i * 30 / 83) for i in range(84)]
    cut = json.loads(fitted_to(tmp_path, events, "--gpus", "128", "--trace-nodes", "16", "--json").output)
    assert cut["mtti_s"] == pytest.approx(30 * DAY_S / 84)
    (warning,) = [text for text in cut["warnings"] if "trace" in text]
    assert warning == "trace: time taken as days 1000 to 1030; --trace-from says otherwise"
    whole = fitted_to(tmp_path, events, "--gpus", "128", "--trace-nodes", "16", "--trace-from", "0", "--json")
    assert json.loads(whole.output)["mtti_s"] == pytest.approx(1030 * DAY_S / 84)


@pytest.mark.parametrize(
    ("days", "words", "said"),
    [
        ((0, 0), (), "spans no time"),
        ((7, 7), ("--trace-from", "7"), "spans no time"),
        ((1, 9), ("--trace-from", "2"), "is on day 1, before the first day given, 2"),
        ((1, 9), ("--trace-nodes", "1"), "2 nodes are named in it"),
        ((1, 9), ("--trace-nodes", "0"), "--trace-nodes"),
        ((1, 9), ("--trace-from", "nan"), "--trace-from"),
    ],
)
def test_a_fleet_and_days_that_cannot_be(tmp_path: Path, days: tuple[float, float], words: tuple[str], said: str) -> None:
    """No time, a later first day than the first event, fewer nodes than are named: refused with what is wrong."""
    result = fitted_to(tmp_path, [start("a", days[0]), start("b", days[1])], *words)
    assert isinstance(result.exception, ConfigError)
    assert said in str(result.exception)


def test_a_byte_order_mark_is_no_part_of_a_trace(tmp_path: Path) -> None:
    """As some editors write it."""
    path = tmp_path / "trace.json"
    path.write_text(json.dumps([start("a", 2), start("b", 9)]), encoding="utf-8-sig")
    assert len(read_trace(path).faults) == 2


def test_a_trace_and_a_table_are_two_answers(tmp_path: Path) -> None:
    """--trace beside --failures is refused by name."""
    refused = fitted_to(tmp_path, [start("a", 30)], "--failures", "rsc1")
    assert "--trace and --failures say the same thing" in refused.output


@pytest.mark.parametrize("shape", ["weibull:0.62", "bursts:0.3,200s", "lemons", "racks:4,60s", "replay"])
def test_shapes_by_name(tmp_path: Path, shape: str) -> None:
    """`--arrivals` with a trace: the plan is simulated under that shape, and keeps about what the exact form says."""
    events = [
        {"node_id": str(n), "event_time": 1 + 3 * n, "event_type": "fault_start", "fault_type": {"Class": kind}}
        for n, kind in enumerate(["GPU", "Fan", "Fan", "GPU"])
    ]
    path = tmp_path / "trace.json"
    path.write_text(json.dumps(events), encoding="utf-8")
    words = ["plan", "--gpus", "4096", "--params", "70B", "--arrivals", shape, "--json"]
    words += ["--trace", str(path)] if shape == "replay" else []
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    ettr = json.loads(result.output)["ettr"]
    assert ettr["monte_carlo"] == pytest.approx(ettr["exact"], abs=0.01)


@pytest.mark.parametrize(
    ("shape", "said"),
    [
        ("weibull:0.62,3", "weibull takes a shape, not '0.62,3'"),
        ("bursts:0.3", "bursts takes a chance and a length, not '0.3'"),
        ("exponential:3", "exponential takes no numbers"),
        ("bursts:x,200s", "'x' is no number (a chance was expected)"),
        ("racks:4.5,60s", "'4.5' is no whole number of nodes"),
        ("weibull:nan", "'nan' is no number"),
    ],
)
def test_a_shape_with_numbers_it_does_not_take(shape: str, said: str) -> None:
    """Said in the words of the shape, with all shapes."""
    result = CliRunner().invoke(app, ["plan", "--params", "70B", "--arrivals", shape])
    assert isinstance(result.exception, ConfigError)
    assert said in str(result.exception)
    assert "known: exponential, " in str(result.exception)


def test_an_unknown_shape_is_refused() -> None:
    """The known shapes are named."""
    result = CliRunner().invoke(app, ["plan", "--arrivals", "sunspots", "--json"])
    assert result.exit_code != 0
    assert "weibull" in result.output
