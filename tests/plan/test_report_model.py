"""The page's port of exact form and search gives what the planner gives, digit for digit; run by node, not a browser."""

import json
import shutil
import subprocess
from importlib.resources import files

import pytest

from hinan.plan.answer import answer
from hinan.plan.nearest import solve_settings
from hinan.plan.webpage import MODEL, report

LLAMA = "gpus=16384 params=405B step=5s"


@pytest.mark.parametrize(
    "words",
    [LLAMA, f"{LLAMA} latency=1d", f"{LLAMA} interval=5min max-stall=1%",
     "gpus=18 params=3.011B preset=gb200 step=9s mtti=597.9s drain=6.39s max-redo=529s max-stall=0.177% hidden=0.749 "
     "interference=3.7%",
     pytest.param("gpus=1675 params=348B step=1.32s mtti=885.2s drain=3.79s max-stall=0.0269%", marks=pytest.mark.slow),
     pytest.param("gpus=16384 params=405B mtti=3000s", marks=pytest.mark.slow),
     pytest.param("gpus=1024 params=70B step=3s max-stall=0.05% stall=5s store-bandwidth=5GB/s", marks=pytest.mark.slow)],
)  # fmt: skip
def test_the_page_computes_what_was_planned(words: str) -> None:
    """With all sliders at 1: the same intervals, the same ETTR."""
    node = shutil.which("node")
    if not node:
        pytest.skip("node is not installed")
    asked = dict(word.split("=") for word in words.split())
    scenario, design = solve_settings(asked)
    page = report(answer(scenario, design), asked)
    data, _ = json.JSONDecoder().raw_decode(page, page.index('{"subtitle"'))
    script = "".join(files("hinan.plan").joinpath(part).read_text(encoding="utf-8") for part in MODEL) + (
        f"\nconst D = {json.dumps(data)}, knobs = {{ mtti: 1, stall: 1, drain: 1, restart: 1 }};"
        "const found = design(D.variants, knobs, D.verify, D.bounds);"
        "console.log(JSON.stringify([found.taus, found.ettr]));"
    )
    taus_s, ettr = json.loads(subprocess.run([node, "-"], input=script, text=True, capture_output=True, check=True).stdout)
    assert taus_s == pytest.approx(design.pattern.intervals_s(), rel=1e-9)
    assert ettr == pytest.approx(design.ettr, abs=1e-9)
