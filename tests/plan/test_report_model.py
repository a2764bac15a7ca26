"""The page's port of exact form and search gives what the planner gives, digit for digit; run by node, not a browser."""

import json
import re
import shutil
import subprocess
from importlib.resources import files
from typing import Any

import pytest

from hinan.plan.decision.answer import answer
from hinan.plan.decision.nearest import solve_settings
from hinan.plan.model.checks import Infeasible
from hinan.plan.show.webpage import DRAIN_LENGTHS, MODEL, model, report

LINKS = {"nvme": 25.0, "nic": 40.0, "store-bandwidth": 100.0}
"""Links that drains take, slower than DRAM [GB/s]."""
LLAMA = "gpus=16384 params=405B step=5s"


@pytest.mark.parametrize(
    "words",
    [LLAMA, f"{LLAMA} latency=1d", f"{LLAMA} interval=5min max-stall=1%",
     "gpus=18 params=3.011B preset=gb200 step=9s mtti=597.9s drain=6.39s max-redo=529s max-stall=0.177% hidden=0.749 "
     "interference=3.7%",
     "gpus=158 preset=hgx-h200 step=185.07s keep=0.138 stall=0.064953s nvme=4.1018GB/s tiers=ram,peer,nvme,shared "
     "nodes-return=4.8122%",
     pytest.param("gpus=1675 params=348B step=1.32s mtti=885.2s drain=3.79s max-stall=0.0269%", marks=pytest.mark.slow),
     pytest.param("gpus=16384 params=405B mtti=3000s", marks=pytest.mark.slow),
     pytest.param("gpus=1024 params=70B step=3s max-stall=0.05% stall=5s store-bandwidth=5GB/s", marks=pytest.mark.slow)],
)  # fmt: skip
def test_the_page_computes_what_was_planned(words: str) -> None:
    """With all sliders at 1: the same intervals, the same ETTR."""
    _, design = solve_settings(words_of(words))
    ((taus_s, ettr, impossible),) = on_the_page(words, [{}])
    assert taus_s == pytest.approx(design.pattern.intervals_s(), rel=1e-9)
    assert ettr == pytest.approx(design.ettr, abs=1e-9)
    assert impossible is None


@pytest.mark.parametrize(
    ("words", "drain_s"),
    [("gpus=44 params=167.9B preset=hgx-h200 step=0.437s max-redo=307.4s tiers=ram,shared", 30),
     ("gpus=64 keep=0.5 ram=700GB step=5s tiers=ram,shared max-redo=20min mtti=1h", 100)],
)  # fmt: skip
def test_the_drain_slider_keeps_the_limits_of_the_plan(words: str, drain_s: float) -> None:
    """The drain is part of the redo, and of the wait for a slot: longer drains give what `--drain` gives, or nothing."""
    factors = [1, 1.41, 3, 5, 9]
    shown = on_the_page(f"{words} drain={drain_s}s", [{"drain": factor} for factor in factors])
    for factor, (taus_s, ettr, impossible) in zip(factors, shown, strict=True):
        try:
            _, design = solve_settings(words_of(f"{words} drain={drain_s * factor!r}s"))
        except Infeasible:
            assert impossible
            continue
        assert (taus_s, impossible) == (pytest.approx(design.pattern.intervals_s(), rel=1e-9), None)
        assert ettr == pytest.approx(design.ettr, abs=1e-9)


@pytest.mark.parametrize(
    "words",
    ["gpus=1024 keep=0.5 step=60s", "gpus=1024 keep=0.8 step=20s ram=2TB",
     pytest.param("gpus=4096 keep=0.4 step=13s ram=1.5TB", marks=pytest.mark.slow)],
)  # fmt: skip
def test_the_drain_slider_gives_a_longer_drain_its_slot(words: str) -> None:
    """As planned no drain wants a slot of its own; ten times as long it does, and it is there on the page too."""

    def asked(factor: float) -> str:
        slower = " ".join(f"{link}={rate / factor!r}GB/s" for link, rate in LINKS.items())
        return f"{words} load=10s nvme-read=50GB/s {slower}"

    factors = [1, 2, 4, 10]
    shown = on_the_page(asked(1), [{"drain": factor} for factor in factors])
    for factor, (taus_s, ettr, _) in zip(factors, shown, strict=True):
        _, design = solve_settings(words_of(asked(factor)))
        assert taus_s == pytest.approx(design.pattern.intervals_s(), rel=1e-9), factor
        assert ettr == pytest.approx(design.ettr, abs=1e-9)


def test_the_slider_moves_drains_as_far_as_slots_are_embedded() -> None:
    """The range of the slider is that of the drains for which the page has all ways to build it."""
    html = files("hinan.plan.show").joinpath("report.html").read_text(encoding="utf-8")
    found = re.search(r'id="s-drain" min="(\S+)" max="(\S+)"', html)
    assert found and tuple(10 ** float(end) for end in found.groups()) == DRAIN_LENGTHS


def test_the_model_is_in_the_page() -> None:
    """Word for word, beside what the page shows."""
    words = words_of("gpus=1024 params=70B step=5s tiers=ram,shared")
    scenario, design = solve_settings(words)
    page = report(answer(scenario, design))
    data, _ = json.JSONDecoder().raw_decode(page, page.index('{"subtitle"'))
    assert model(scenario).items() <= data.items()
    assert all(files("hinan.plan.show").joinpath(part).read_text(encoding="utf-8") in page for part in MODEL)


def test_sliders_refuse_what_the_plan_refuses() -> None:
    """Longer restarts than --max-rto allows, a loss above --budget, and drains that no host outlives."""
    words = "gpus=1024 params=70B step=5s tiers=ram,shared max-rto=1h budget=3% mtti=1d drain=30s"
    knobs = [{}, {"restart": 9}, {"mtti": 0.05}, {"drain": 1e5}]
    assert [impossible for *_, impossible in on_the_page(words, knobs)] == [
        None, "back later than allowed", "more lost than allowed", "hardly a drain would end"]  # fmt: skip


def words_of(words: str) -> dict[str, str]:
    """Settings from words."""
    return dict(word.split("=") for word in words.split())


def on_the_page(words: str, knobs: list[dict[str, float]]) -> list[Any]:
    """Intervals, ETTR and what is impossible, of one page with its sliders at each of these places (1 where not said)."""
    node = shutil.which("node")
    if not node:
        pytest.skip("node is not installed")
    scenario, _ = solve_settings(words_of(words))
    return run_page(node, model(scenario), knobs)


def run_page(node: str, data: dict[str, Any], knobs: list[dict[str, float]]) -> list[Any]:
    """What the page's own scripts say of what is embedded in it."""
    script = "".join(files("hinan.plan.show").joinpath(part).read_text(encoding="utf-8") for part in MODEL) + (
        f"\nconst D = {json.dumps(data)}, all = {json.dumps(knobs)}, one = {{ mtti: 1, stall: 1, drain: 1, restart: 1 }};"
        "const found = all.map(knobs => design(D.variants, { ...one, ...knobs }, D.verify, D.bounds, D.limits));"
        "console.log(JSON.stringify(found.map(d => [d.taus, d.ettr, d.impossible])));"
    )
    said = subprocess.run([node, "-"], input=script, text=True, capture_output=True, check=True).stdout
    return list(json.loads(said))
