"""The report in a real browser: sliders give the numbers of `--json`, no network, nothing overflows."""

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

from hinan.cli.main import app

pytestmark = pytest.mark.slow
WORDS = ["--gpus", "16384", "--params", "405B", "--step", "5s"]


@pytest.fixture(scope="module")
def browser() -> Iterator[object]:
    """A headless Chromium, driven through its own driver."""
    webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is not installed (extra: browser)")
    chromium, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not chromium or not driver:
        pytest.skip("chromium and chromedriver are not installed (apt-get install chromium chromium-driver)")
    options = webdriver.ChromeOptions()
    options.binary_location = chromium
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
    session = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    yield session
    session.quit()


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The report of one plan."""
    path = tmp_path_factory.mktemp("report") / "report.html"
    result = CliRunner().invoke(app, ["plan", *WORDS, "--html", str(path)])
    assert result.exit_code == 0, result.output
    return path


def numbers(browser) -> tuple[list[float], float]:  # type: ignore[no-untyped-def]
    """Intervals and ETTR that the page shows, unrounded."""
    script = """return [[...document.querySelectorAll('#tiers tbody tr')].map(r => Number(r.dataset.intervalS)),
                        Number(document.getElementById('k-ettr').dataset.value)]"""
    found = browser.execute_script(script)
    return found[0], found[1]


def planned(*words: str) -> tuple[list[float], float]:
    """The same from `--json`."""
    result = CliRunner().invoke(app, ["plan", *WORDS, *words, "--json"])
    answer = json.loads(result.output)
    return [tier["interval_s"] for tier in answer["tiers"]], answer["ettr"]["exact"]


@pytest.mark.parametrize("slider", [-0.7, -0.35, 0.0, 0.4, 0.9])
def test_the_mtti_slider_gives_the_numbers_of_json(browser, page: Path, slider: float) -> None:  # type: ignore[no-untyped-def]
    """Moving the MTTI slider gives intervals and ETTR of `hinan plan --mtti ... --json` within 1 %."""
    browser.get(page.as_uri())
    browser.execute_script(
        "const s = document.getElementById('s-mtti'); s.value = arguments[0]; s.dispatchEvent(new Event('input'))",
        slider,
    )
    mtti_s = browser.execute_script("return DATA.mtti_s * knobs().mtti")
    shown, ettr = numbers(browser)
    expected, expected_ettr = planned("--mtti", f"{mtti_s:.9f}s")
    assert shown == pytest.approx(expected, rel=0.01)
    assert ettr == pytest.approx(expected_ettr, rel=0.01)
    assert 1 - ettr == pytest.approx(1 - expected_ettr, rel=0.01)


def test_an_exact_form_that_is_refused_is_not_the_answer(browser, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    """As planned the page shows what was simulated, and says so; with a slider moved, that the exact form was refused."""
    words = ["plan", "--gpus", "16384", "--params", "405B", "--latency", "20d", "--mtti", "1h"]
    path = tmp_path / "report.html"
    assert CliRunner().invoke(app, [*words, "--html", str(path)]).exit_code == 0
    answer = json.loads(CliRunner().invoke(app, [*words, "--json"]).output)
    assert answer["ettr"]["exact"] is None
    browser.get(path.as_uri())
    shown, form = numbers(browser)[1], "return document.getElementById('k-form').textContent"
    assert shown == pytest.approx(answer["ettr"]["monte_carlo"], abs=1e-9)
    assert browser.execute_script(form) == "simulated; the exact form is refused"
    browser.execute_script(
        "const s = document.getElementById('s-mtti'); s.value = 0.3; s.dispatchEvent(new Event('input'))"
    )
    assert browser.execute_script(form) == "exact form, refused as planned"


def test_nothing_is_loaded_and_nothing_fails(browser, page: Path) -> None:  # type: ignore[no-untyped-def]
    """The page works without network: no request but its own file, no error in the console."""
    browser.get_log("performance")
    browser.get(page.as_uri())
    sent = [json.loads(entry["message"])["message"] for entry in browser.get_log("performance")]
    urls = [m["params"]["request"]["url"] for m in sent if m["method"] == "Network.requestWillBeSent"]
    assert [url for url in urls if not url.startswith(("file:", "data:"))] == []
    assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []


@pytest.mark.parametrize("width", [1280, 390])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_wide_and_phone_light_and_dark(browser, page: Path, width: int, scheme: str) -> None:  # type: ignore[no-untyped-def]
    """All curves are drawn and nothing sticks out sideways; a picture is kept where HINAN_SHOTS says."""
    browser.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": scheme}]})
    size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": width < 600}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    browser.get(page.as_uri())
    assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    assert browser.execute_script("return document.querySelectorAll('svg').length") == 3
    assert browser.execute_script("return document.querySelectorAll('svg .curve').length") == 2
    paper = browser.execute_script("return getComputedStyle(document.body).backgroundColor")
    assert (paper == "rgb(20, 23, 28)") == (scheme == "dark")
    if os.environ.get("HINAN_SHOTS"):
        size["height"] = browser.execute_script("return document.documentElement.scrollHeight")
        browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
        browser.save_screenshot(str(Path(os.environ["HINAN_SHOTS"]) / f"{scheme}-{width}.png"))
