"""The page in a real browser: what is drawn, where, in which colour; nothing overlaps, is cut, or is loaded."""

import io
import shutil
from collections.abc import Callable, Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import wire_dumps as dumps

from hinan.wire.checks.case import Question
from hinan.wire.facts.model import Machine
from hinan.wire.machine import sample, sources
from hinan.wire.show import picture
from hinan.wire.show.report import report_gpu

pytestmark = pytest.mark.slow
image = pytest.importorskip("PIL.Image", reason="pillow is in the browser extra")
webdriver = pytest.importorskip("selenium.webdriver", reason="selenium is in the browser extra")

HOT, BAR, DARK_PAGE = (0xD2, 0x54, 0x1F), (0x5B, 0x8D, 0xB8), (0x12, 0x1A, 0x23)
Open = Callable[..., Any]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """One Chromium for all tests; skips where there is none."""
    binary = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    driver_path = shutil.which("chromedriver")
    if binary is None or driver_path is None:
        pytest.skip("no Chromium and chromedriver on PATH")
    options = webdriver.ChromeOptions()
    options.binary_location = binary
    for argument in (
        "--headless=new",
        "--no-sandbox",
        "--disable-gpu",
        "--force-device-scale-factor=1",
        "--hide-scrollbars",
    ):
        options.add_argument(argument)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver_path))
    yield driver
    driver.quit()


@pytest.fixture
def show(browser: Any, tmp_path: Path) -> Open:
    """Opens the page of one GPU at a window size, in light or dark."""

    def _show(machine: Machine, gpu: int = 0, *, width: int = 1100, dark: bool = False) -> Any:
        path = tmp_path / "page.html"
        one = next(g for g in machine.gpus if g.index == gpu)
        path.write_text(picture.html(report_gpu(machine, one, Question(state_bytes=int(61.2e9)))))
        browser.execute_cdp_cmd(
            "Emulation.setEmulatedMedia",
            {"features": [{"name": "prefers-color-scheme", "value": "dark" if dark else "light"}]},
        )
        browser.execute_cdp_cmd(
            "Emulation.setDeviceMetricsOverride",
            {"width": width, "height": 1400, "deviceScaleFactor": 1, "mobile": False},
        )
        browser.get(path.as_uri())
        return browser

    return _show


def shot(browser: Any) -> Any:
    """The window's pixels."""
    return image.open(io.BytesIO(browser.get_screenshot_as_png())).convert("RGB")


def boxes(browser: Any, selector: str) -> list[dict[str, float]]:
    """Rectangles of elements, in pixels."""
    script = "return [...document.querySelectorAll(arguments[0])].map(e=>{const r=e.getBoundingClientRect();" \
             "return {x:r.x,y:r.y,w:r.width,h:r.height,t:e.textContent}})"  # fmt: skip
    return list(browser.execute_script(script, selector))


def middle(box: dict[str, float]) -> tuple[int, int]:
    return int(box["x"] + box["w"] / 2), int(box["y"] + box["h"] / 2)


def close(pixel: tuple[int, int, int], colour: tuple[int, int, int]) -> bool:
    return all(abs(a - b) <= 6 for a, b in zip(pixel, colour, strict=True))


def overlap(one: dict[str, float], other: dict[str, float]) -> bool:
    return (
        min(one["x"] + one["w"], other["x"] + other["w"]) - max(one["x"], other["x"]) > 1
        and min(one["y"] + one["h"], other["y"] + other["h"]) - max(one["y"], other["y"]) > 1
    )


@pytest.fixture
def slow_uplink() -> Machine:
    """A 16 GT/s GPU behind an 8 GT/s uplink."""
    return sources.read_texts([dumps.NCCL])


def test_the_narrow_hop_is_half_as_wide_and_hot(show: Open, slow_uplink: Machine) -> None:
    """Pixels: the uplink's bar is orange and half the width of the GPU's blue one."""
    browser = show(slow_uplink)
    (hot,), (blue,) = boxes(browser, ".bar.narrow"), boxes(browser, ".bar:not(.narrow)")
    assert hot["w"] / blue["w"] == pytest.approx(0.5, abs=0.02)
    pixels = shot(browser)
    assert close(pixels.getpixel(middle(hot)), HOT)
    assert close(pixels.getpixel(middle(blue)), BAR)


def test_hops_stand_in_order(show: Open) -> None:
    """GPU on top, RAM at the bottom, one box each, equally wide."""
    found = boxes(show(sample.machine()), "rect.box")
    assert len(found) == 5
    assert [b["y"] for b in found] == sorted(b["y"] for b in found)
    assert len({round(b["w"]) for b in found}) == 1
    names = [b["t"] for b in boxes(show(sample.machine()), "svg text.name")]
    assert names == ["12:00.0", "11:00.0", "10:00.0", "0f:01.0", "RAM, node 0"]


@pytest.mark.parametrize("width", [420, 800, 1100, 1900])
def test_no_text_overlaps_or_leaves_the_page(show: Open, width: int) -> None:
    """At phone, tablet and desktop width: no two texts of the picture touch, nothing scrolls sideways."""
    crowded = sources.read_texts([dumps.LSPCI_VVV])
    for machine in (sample.machine(), crowded):
        browser = show(machine, width=width)
        texts = boxes(browser, "svg text")
        assert len(texts) > 10
        for one, other in combinations(texts, 2):
            assert not overlap(one, other), (one, other)
        assert browser.execute_script("return document.documentElement.scrollWidth <= innerWidth")
        assert all(t["x"] >= 0 and t["x"] + t["w"] <= width for t in texts)


def test_dark_and_light(show: Open) -> None:
    """The page follows the reader's colour scheme."""
    assert close(shot(show(sample.machine(), dark=True)).getpixel((5, 5)), DARK_PAGE)
    assert close(shot(show(sample.machine())).getpixel((5, 5)), (255, 255, 255))


def test_unknown_links_are_dashed_not_guessed(show: Open) -> None:
    """A tree without speeds has no bar, only dashed lines, and the word unknown."""
    browser = show(sources.read_texts([dumps.LSPCI_TV]))
    assert boxes(browser, ".bar") == []
    assert len(boxes(browser, ".unknown")) == 1
    assert "unknown" in browser.find_element("tag name", "table").text


def test_findings_and_figures_are_on_the_page(show: Open) -> None:
    """Each figure with its label, each finding with its cost and fix."""
    browser = show(sources.read_texts([dumps.LSPCI_VVV]))
    rows = browser.find_element("tag name", "table").text.splitlines()
    assert rows[1] == "to RAM ceiling 28.8 GB/s 2.12 s"
    assert rows[3] == "all 2 GPUs at once, each share 14.4 GB/s 4.25 s"
    (finding,) = boxes(browser, ".finding")
    assert "2 GPUs evacuate through 40:01.0" in str(finding["t"])
    assert "+2.12 s" in str(finding["t"])


def test_nothing_is_loaded_and_nothing_complains(show: Open) -> None:
    """One file: no request leaves the page, the console is empty."""
    browser = show(sample.machine())
    assert browser.execute_script("return performance.getEntriesByType('resource').length") == 0
    assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []


def test_a_hostile_name_stays_text(show: Open) -> None:
    """Names come from files; a script in one is shown, not run."""
    machine = sources.read_texts([dumps.LSPCI_VVV.replace("Example A100", "<img src=x onerror=document.title=1>")])
    browser = show(machine)
    assert browser.title.startswith("GPU 0")
    assert boxes(browser, "img") == []
