"""The command: schema, exit codes, usage errors, the verbs."""

import json
from pathlib import Path

import pytest
import wire_dumps as dumps
from wire_command import as_json, run

from hinan.core.errors import ConfigError

KEYS = {
    "gpu", "numa_node", "hops", "narrowest", "ceiling_bytes_per_s", "all_ranks_ceiling_bytes_per_s",
    "measured_bytes_per_s", "seconds", "labels", "findings",
}  # fmt: skip
HOP_KEYS = {"address", "kind", "cap_gt_s", "now_gt_s", "width", "mps", "shared_with"}
WORDS = {"ceiling", "share", "measured", "reported", "unknown"}


def test_schema(dump: Path) -> None:
    """The keys of the agreed schema and no others, figures with labels of five words."""
    answer = as_json("--from", str(dump), "--gpu", "0", "--state", "61.2GB")
    assert answer.keys() == KEYS
    assert answer["gpu"].keys() == {"address", "name"}
    assert answer["gpu"]["address"] == "43:00.0"
    assert answer["gpu"]["name"]
    assert all(hop.keys() == HOP_KEYS for hop in answer["hops"])
    assert set(answer["labels"].values()) <= WORDS
    assert answer["seconds"] == pytest.approx(61.2e9 / answer["ceiling_bytes_per_s"])
    assert answer["measured_bytes_per_s"] is None
    assert answer["labels"]["measured_bytes_per_s"] == "unknown"
    assert answer["hops"][2]["shared_with"] == ["44:00.0", "45:00.0"]


def test_unknown_is_null(tmp_path: Path) -> None:
    """A list of devices: path, node, ceiling and seconds are null, not 0."""
    path = tmp_path / "list"
    path.write_text("06:00.0 3D controller [0302]: NVIDIA Corporation GA102GL [A10] [10de:2236] (rev a1)\n")
    answer = as_json("--from", str(path), "--gpu", "0", "--state", "1GB")
    for key in ("numa_node", "narrowest", "ceiling_bytes_per_s", "all_ranks_ceiling_bytes_per_s", "seconds"):
        assert answer[key] is None
    hop = answer["hops"][0]
    assert hop["cap_gt_s"] is hop["now_gt_s"] is hop["width"] is hop["mps"] is None


def test_gpu_by_address(dump: Path) -> None:
    """--gpu takes an index or an address."""
    assert as_json("--from", str(dump), "--gpu", "44:00.0", "--legs")["gpu"]["index"] == 1


def test_all_gpus(dump: Path) -> None:
    """--all --json is a list of the same reports."""
    found = as_json("--from", str(dump), "--all")["gpus"]
    assert [g["gpu"]["address"] for g in found] == ["43:00.0", "44:00.0"]
    assert all(g.keys() == KEYS for g in found)


def test_no_gpu_is_told(tmp_path: Path) -> None:
    """Without a GPU: RAM, NVMe and NIC are explained, the JSON keeps its shape, exit code 0."""
    path = tmp_path / "tree"
    path.write_text(
        "".join(
            line for line in dumps.LSPCI_TV.splitlines(keepends=True) if "NVIDIA" not in line and "Instinct" not in line
        )
    )
    (tmp_path / "nodes").write_text(dumps.NUMACTL)
    found = run("--from", str(path), "--from", str(tmp_path / "nodes"))
    assert found.exit_code == 0
    for words in ("No GPU", "RAM  node 0", "RAM > root complex > 60:01.1", "NIC  64:00.0"):
        assert words in found.stdout
    answer = as_json("--from", str(path), "--gpu", "0")
    assert answer["gpu"] is None
    assert answer["hops"] == []


def test_this_machine() -> None:
    """`hinan wire` reads the machine it runs on."""
    assert run().exit_code == 0
    assert as_json().keys() == KEYS
    assert as_json("--legs").keys() > KEYS


def test_check_exit_codes(dump: Path, tmp_path: Path) -> None:
    """1 with findings, 0 without; options stand before or after the verb."""
    assert run("check", "--sample").exit_code == 0
    found = run("check", "--from", str(dump), "--state", "61.2GB")
    assert found.exit_code == 1
    assert "shared-uplink" in found.stdout
    assert "Fix:" in found.stdout
    assert run("--from", str(dump), "check").exit_code == 1
    answer = json.loads(run("check", "--from", str(dump), "--json").stdout)
    assert {f["code"] for f in answer["findings"]} == {"shared-uplink"}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--sample", "--gpu", "8"), "there is no GPU '8'"),
        (("--sample", "--state", "much"), "64MiB"),
        (("--from", "/nonexistent"), "cannot read"),
        (("explain",), "0x4012345000"),
        (("explain", "12:00.0", "--sample"), "0x4012345000"),
        (("explain", "0x1000", "--file", "/x"), "not both"),
        (("explain", "--arena", "--file", "/x"), "not both"),
        (("--sample", "--svg", "/nonexistent/x.svg"), "cannot write"),
        (("--sample", "--all", "--svg", "x.svg"), "leave --all out"),
        (("--sample", "--paths", "--html", "x.html"), "leave --paths out"),
        (("--sample", "--all", "--paths"), "different views"),
        (("--sample", "--all", "--legs"), "different views"),
    ],
)
def test_usage_errors(arguments: tuple[str, ...], words: str) -> None:
    """What was asked wrongly is said with the way out."""
    with pytest.raises(ConfigError, match=words.replace("(", r"\(")):
        run(*arguments)


def test_explain(dump: Path) -> None:
    """The claimants at each hop, the walk, the header bytes and the six ideas; labels on what is not read."""
    srat = dump.with_name("srat")
    srat.write_text(dumps.SRAT)
    found = run("explain", "0x4012345000", "--from", str(dump), "--from", str(srat), "--gpu", "0")
    assert found.exit_code == 0
    assert max(map(len, found.stdout.splitlines())) <= 100
    for words in (
        "42:00.0       up", "-> system memory", "60 00 00 40 43 00 00 ff 00 00 00 40 12 34 50 00", "illustration", "NAT",
        "24 of 280", "16 memory write TLPs",
    ):  # fmt: skip
        assert words in found.stdout
    peer = run("explain", "0x380000000000", "--from", str(dump), "--gpu", "0")
    assert "turn" in peer.stdout
    assert "BAR 1 of 44:00.0" in peer.stdout


def test_explain_another_sender(dump: Path) -> None:
    """A drive that writes to a GPU's BAR turns round inside the switch."""
    found = run("explain", "0x300000000000", "--from", str(dump), "--device", "45:00.0")
    assert "41:00.0       turn" in found.stdout
    assert "-> BAR 1 of 43:00.0" in found.stdout
    with pytest.raises(ConfigError, match="no device"):
        run("explain", "0x1000", "--from", str(dump), "--device", "99:00.0")


def test_explain_json() -> None:
    """Packets are their header bytes."""
    answer = as_json("explain", "0x7fed1234", "--sample", "--size", "4")
    assert answer["packets"] == ["40 00 00 01 12 00 00 0f 7f ed 12 34"]
    assert answer["labels"]["route"] == "reported"
    assert answer["labels"]["packets"] == answer["labels"]["address"] == "illustration"
    assert answer["route"]["destination"] == "system memory"


def test_a_check_says_how_many_gpus_it_looked_at(tmp_path: Path) -> None:
    """None, one, several."""
    path = tmp_path / "x"
    path.write_text(dumps.NUMACTL)
    assert run("check", "--from", str(path)).stdout.startswith(
        "no GPU is known, so no path was checked (read from: numactl"
    )
    path.write_text(dumps.LSPCI_TV.replace("[AMD/ATI] Instinct", "Bridge"))
    assert run("check", "--from", str(path)).stdout.startswith("nothing found on the path of 1 GPU (read from: lspci -tv)")
    assert run("check", "--sample").stdout.startswith("nothing found on the paths of 8 GPUs")


def test_dma_on_paper() -> None:
    """Descriptor in, packets and times out; the semaphore is the last packet; the rate is the ceiling of the link."""
    answer = as_json("dma", "0x4012345000", "--size", "1MiB", "--device", "19:00.0")
    assert answer["packets"] == 4096
    assert answer["bytes_per_s"] == pytest.approx(57.614e9, rel=1e-5)
    assert answer["rows"][0]["header"] == "60 00 00 40 19 00 00 ff 00 00 00 40 12 34 50 00"
    assert answer["rows"][0]["end_ns"] == pytest.approx(280 / 63.015385, rel=1e-6)
    shown = run("dma", "0x4012345000", "--size", "512", "--to-device", "--semaphore", "0x1000").stdout
    assert [line.split()[3] for line in shown.splitlines()[1:-1]] == ["MRd", "CplD", "CplD", "MWr"]
    assert max(map(len, shown.splitlines())) <= 100
    for wrong in (("--gt", "7"), ("--mps", "100"), ("--device", "x"), ("--size", "1GiB")):
        with pytest.raises(ConfigError):
            run("dma", "0x1000", *wrong)


@pytest.mark.parametrize("address", ["0x4012340002", "0x4012340ffe"])
def test_a_semaphore_is_one_word(address: str) -> None:
    """Half a word in each of two packets says "done" twice: refused."""
    with pytest.raises(ConfigError, match="no aligned word"):
        run("dma", "0x4012345000", "--semaphore", address)


def test_legs_hop_by_hop(dump: Path) -> None:
    """GPU to drive: inside the switch, and via RAM; each hop with link, MPS, sharers and node; the narrow one named."""
    answer = as_json("--from", str(dump), "--gpu", "0", "--state", "39.38GB", "--legs")
    near, far = answer["legs"][:2]
    assert [h["address"] for h in near["hops"]] == ["43:00.0", "42:00.0", "41:00.0", "42:02.0", "45:00.0"]
    assert [h["address"] for h in far["hops"]] == [
        "43:00.0", "42:00.0", "41:00.0", "40:01.0", "40:01.0", "41:00.0", "42:02.0", "45:00.0"
    ]  # fmt: skip
    assert (near["distance"], near["narrowest"], far["narrowest"]) == (4, "45:00.0", "45:00.0")
    assert near["ceiling_bytes_per_s"] == pytest.approx(8e9 * 4 / 8 * 128 / 130 * 256 / 276)
    assert near["seconds"] == pytest.approx(39.38e9 / near["ceiling_bytes_per_s"])
    shown = run("--from", str(dump), "--legs").stdout
    assert "45:00.0       nvme             8 GT/s x4              MPS 256  node 1     <- narrowest" in shown
    assert max(map(len, shown.splitlines())) <= 100


def test_help_says_what_the_others_are_for() -> None:
    """`wire check --help` names verify, preflight and drill."""
    text = run("check", "--help").stdout
    for verb in ("verify", "preflight", "drill"):
        assert verb in text


@pytest.mark.parametrize("state", ["61.2", "61", "61.2Gb"])
def test_a_state_whose_unit_is_a_guess_is_refused(state: str) -> None:
    """No seconds from a number without a unit, or with one that may be bits."""
    with pytest.raises(ConfigError, match=r"no unit|may mean bits"):
        run("--sample", "--state", state)


def test_an_address_that_can_be_read_in_two_ways_is_refused() -> None:
    """4096 is 0x1000 or 0x4096; digits with a to f, or with 0x, are clear."""
    with pytest.raises(ConfigError, match=r"write 0x4096 if it is hexadecimal, 0x1000 if it is decimal"):
        run("--sample", "explain", "4096")
    with pytest.raises(ConfigError, match="two ways"):
        run("dma", "4012345000")
    assert run("--sample", "explain", "0x4096").exit_code == 0
    assert run("dma", "4012345f80").exit_code == 0


@pytest.mark.parametrize("verb", [(), ("check",)])
def test_a_node_that_is_not_there(verb: tuple[str, ...]) -> None:
    """The buffer cannot lie on a node that the machine does not have; where no source tells nodes, it may."""
    with pytest.raises(ConfigError, match="no NUMA node 77; there are 0, 1"):
        run(*verb, "--sample", "--buffer-node", "77")


def test_a_node_of_a_machine_without_nodes(dump: Path) -> None:
    """lspci lists no nodes: any may be there."""
    assert run("--from", str(dump), "--buffer-node", "3").exit_code == 0


@pytest.mark.parametrize("view", [("--gpu", "0"), ("--all",), ("check",)])
def test_a_contradiction_is_told_in_every_view(dump: Path, tmp_path: Path, view: tuple[str, ...]) -> None:
    """Also where a table or "nothing found" would look as if all were well."""
    other = tmp_path / "other"
    other.write_text(dumps.LSPCI_VVV.replace("Width x16, ASPM", "Width x8, ASPM"))
    found = run(*view, "--from", str(dump), "--from", str(other))
    assert "i sources contradict each other: link width x16 or x8" in found.stdout


def test_wire_and_explain_say_the_same_of_the_iommu(dump: Path) -> None:
    """Groups in lspci: an IOMMU is on, in a mode that nobody tells. And one byte is a byte."""
    words = "on (groups exist), mode unknown"
    assert f"IOMMU: {words}" in run("--from", str(dump), "--gpu", "0").stdout
    shown = run("explain", "0x4012345000", "--from", str(dump), "--gpu", "0", "--size", "1").stdout
    assert f"IOMMU: {words}" in shown
    assert "5. 1 byte is 1 memory write TLP" in shown
