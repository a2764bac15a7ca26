"""Control characters that a text file cannot hold come through JSON: they reach no terminal, picture or capture."""

from __future__ import annotations

import json
from xml.etree import ElementTree

import pytest
import wire_dumps as dumps
from wire_machines import machine, report

from hinan.wire.facts.model import Machine
from hinan.wire.machine import capture, sample
from hinan.wire.readers.plain import plain
from hinan.wire.show import picture, render

BAD = "\\u001b[31mRed\\u0007\\u009b2J\\u202e\\ud800 GPU\\n\\u001b]0;title\\u0007"


def poisoned() -> dict[str, Machine]:
    """An nvbandwidth report, and a capture, whose GPU has such a name."""
    document = json.loads(capture.write(machine(dumps.LSPCI_VVV)))
    document["machine"]["functions"]["0000:43:00.0"]["name"] = "BAD"
    document["machine"]["product"] = "BAD"
    return {
        "nvbandwidth": machine(dumps.NVBANDWIDTH.replace("NVIDIA Example", BAD)),
        "capture": machine(json.dumps(document).replace("BAD", BAD)),
    }


@pytest.mark.parametrize("kind", ["nvbandwidth", "capture"])
def test_nothing_but_text_comes_through(kind: str) -> None:
    found = poisoned()[kind]
    answer = report(found)
    assert answer.gpu is not None
    assert answer.gpu.name == "Red2J GPU"
    shown = "\n".join([*render.render(answer, found), *render.render_all([answer])])
    assert all(character == "\n" or character.isprintable() for character in shown)
    ElementTree.fromstring(picture.svg(answer))
    assert "\\u001b" not in capture.write(found)
    assert "\\u009b" not in capture.write(found)


def test_a_picture_of_anything_is_xml() -> None:
    """Whoever made the report: what XML cannot hold is not drawn."""
    answer = report(sample.machine())
    assert answer.gpu is not None
    hop = type(answer.hops[0])(**{**{f: getattr(answer.hops[0], f) for f in answer.hops[0].__struct_fields__}, "name": "\x1b[1m\x00x\ufffe"})  # fmt: skip  # noqa: E501
    fields = {f: getattr(answer, f) for f in answer.__struct_fields__}
    ElementTree.fromstring(picture.svg(type(answer)(**{**fields, "hops": (hop, *answer.hops[1:])})))


def test_plain_text_stays_what_it_is() -> None:
    """The same object, so that reading costs no second machine."""
    found = sample.machine()
    assert plain(found) is found
