"""One test for each captured machine, with the right answer that came with it. Runs where the files are."""

import csv
from collections.abc import Callable
from pathlib import Path

import pytest
from wire_answers_outputs import OUTPUTS
from wire_answers_topologies import TOPOLOGIES
from wire_captured import shared_folder
from wire_machines import GB, near, reports

from hinan.wire.facts.link import write_ceiling_bytes_per_s
from hinan.wire.facts.model import Machine

Read = Callable[..., Machine]
ANSWERS = {**TOPOLOGIES, **OUTPUTS}


@pytest.mark.parametrize("name", sorted(ANSWERS))
def test_captured_machine(name: str, read: Read) -> None:
    """The right answer, found in a copy whose name says nothing."""
    ANSWERS[name](read(name))


def test_every_row_of_the_manifest_has_a_test() -> None:
    """No captured file is left out; the measured points have a test of their own."""
    folder = shared_folder()
    if folder is None:
        pytest.skip("the captured machines are not here (set HINAN_SHARED)")
    with (folder / "MANIFEST.tsv").open() as file:
        rows = {row["file"] for row in csv.DictReader(file, delimiter="\t")}
    assert rows == {*ANSWERS, "measured-points.tsv"}


LINKS = {"PCIe gen5 x16": 32.0, "PCIe gen4 x16": 16.0, "PCIe gen3 x16": 8.0}


def test_measured_points(captured: Path) -> None:
    """Every measured value lies below the predicted ceiling of its wire; the remote penalty is no constant."""
    with (captured / "measured-points.tsv").open() as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    compared = 0
    for row in rows:
        gt_s = next((speed for words, speed in LINKS.items() if row["wire"].startswith(words)), None)
        ceiling = write_ceiling_bytes_per_s(gt_s, 16, mps_bytes=256)
        for text in row["D2H_GBps"].replace("-", "/").split("/"):
            if ceiling is not None:
                compared += 1
                assert float(text) * GB <= ceiling
    assert compared >= 9
    ratios = {round(value / GB / ceiling, 3) for value, ceiling in ((55.12e9, 57.614), (26.3e9, 28.807), (13.1e9, 14.403))}
    assert ratios == {0.957, 0.913, 0.910}


def test_joined_asus_machine(read: Read) -> None:
    """Tree, devices, nodes, relations, transfers, gdscheck and gdsio of one server become one answer."""
    names = [n for n in ANSWERS if n.startswith("stelline-asus")]
    machine = read(*names)
    found = reports(machine, state_bytes=int(61.2e9))
    assert [h.address for h in found[0].hops] == ["01:00.0", "00:01.1"]
    for r in found:
        assert near(r.ceiling_bytes_per_s, 28.807)
        assert near(r.all_ranks_ceiling_bytes_per_s, 28.807)
        assert (r.measured_bytes_per_s or 0) / (r.ceiling_bytes_per_s or 1) == pytest.approx(0.913, abs=0.001)
        assert r.findings == ()
        assert r.gpu is not None
        assert any("GDS: measured" in note and note.endswith(f": {r.gpu.address}") for note in r.notes)
    assert machine == read(*reversed(names))
