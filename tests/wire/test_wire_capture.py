"""Capture files: every machine comes back as it was, without its identities; what cannot be is refused with its place."""

import json

import pytest
import wire_dumps as dumps
from wire_machines import machine

from hinan.core.errors import FormatError, FormatFromFuture
from hinan.wire.facts.model import Machine
from hinan.wire.machine import capture, sample, sources


@pytest.mark.parametrize("raw", dumps.ALL_TEXTS)
def test_capture_keeps_everything(raw: str) -> None:
    """A captured machine read back is the machine, for every source."""
    machine = sources.read_texts([raw])
    again = sources.read_texts([capture.write(machine)])
    assert again == machine


def test_capture_of_the_sample() -> None:
    """So do windows, ranges and links of the sample."""
    assert capture.read(capture.write(sample.machine())) == sample.machine()


def test_capture_replaces_identities() -> None:
    """UUIDs, serials, MACs, IPs and the host's name do not leave the node; PCI addresses do."""
    secret = (
        "node7.example.org serial SN0012345 GPU-01234567-89ab-cdef-0123-456789abcdef 00:11:22:33:44:55 10.1.2.3 "
        "0x0123456789abcdef at 0000:41:00.0"
    )
    text = capture.write(Machine(notes=(secret,), nic_names={"node7-nic": "0000:41:00.0"}), host="node7.example.org")
    for word in ("node7", "SN0012345", "89ab", "00:11:22", "10.1.2.3", "0x0123"):
        assert word not in text
    assert "0000:41:00.0" in text


def test_capture_damage() -> None:
    """Cut, wrong types and newer versions are told apart; another JSON is not ours."""
    text = capture.write(sample.machine())
    with pytest.raises(FormatError, match="cut"):
        capture.read(text[:-100])
    with pytest.raises(FormatError, match="damaged"):
        capture.read(json.dumps({"hinan_wire": 1, "machine": {"functions": 3}}))
    with pytest.raises(FormatFromFuture):
        capture.read(json.dumps({"hinan_wire": 2, "machine": {}}))
    for version in (0, -1):
        with pytest.raises(FormatError, match="there is no format"):
            capture.read(json.dumps({"hinan_wire": version, "machine": {}}))
    assert capture.read("{}") is None


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        ("mps_bytes", -256, r">= 128.*mps_bytes"),
        ("mps_bytes", 384, "no power of two"),
        ("numa_node", -1, r">= 0.*numa_node"),
        ("link", {"now_gt_s": -1}, r">= 0.*now_gt_s"),
        ("link", {"cap_gt_s": float("inf")}, "damaged"),
        ("address", "0000:43:00.1", "stands under 0000:43:00.0"),
        ("parent", "somewhere", r"regex.*parent"),
        ("bars", [{"first": 2, "last": 1}], "range from 0x2 to 0x1"),
        ("buses", {"primary": 0, "secondary": 1, "subordinate": 256}, r"<= 255.*buses"),
    ],
)
def test_a_capture_with_what_cannot_be(field: str, value: object, words: str) -> None:
    """It is refused with its place, instead of becoming a figure."""
    document = json.loads(capture.write(machine(dumps.LSPCI_VVV)))
    document["machine"]["functions"]["0000:43:00.0"][field] = value
    with pytest.raises(FormatError, match=words):
        capture.read(json.dumps(document))


def test_what_readers_make_a_capture_can_hold() -> None:
    """Every text's machine comes back as it was; a payload that somebody typed is unknown."""
    for text in (*dumps.ALL_TEXTS, dumps.LSPCI_VVV.replace("MaxPayload 256", "MaxPayload 100000")):
        found = machine(text)
        assert capture.read(capture.write(found)) == found
