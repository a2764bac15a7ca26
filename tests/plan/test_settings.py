"""The designer's words: each is read by its unit, none wins silently over another, and a refusal names them."""

import json
import re
from typing import Any

import pytest
from plan_command import LLAMA, ask
from typer.testing import CliRunner

from hinan.cli.main import app, main
from hinan.core.errors import ConfigError
from hinan.plan.model.settings import SETTINGS, Unreadable, read


def test_a_link_sold_in_bits_is_priced_in_bytes() -> None:
    """400 Gb/s of network are 50 GB/s, in --nic and in a formula; a rate without its /s is refused by name."""
    assert ask(*LLAMA, "--nic", "400Gb/s")["inputs"]["machine.nic_bytes_per_s"]["value"] == 50e9
    refused = CliRunner().invoke(app, ["plan", *LLAMA, "--d2h", "55GB"])
    assert "--d2h: '55GB' is not a rate" in str(refused.exception)
    ring = ["plan", "--formula", "ring", "--given", "ranks=2", "--given", "size_bytes=1GB", "--given", "bytes_per_s=8Gb/s"]
    assert CliRunner().invoke(app, ring).output == "time_s 1\n"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("plan --gpus 1024 --params 70B --step 5s --interval 10 --max-redo 30s",
         ["--interval: '10' is not a duration; write it like '30s' (an example: --interval 5min)"]),
        ("plan --max-rto 10", ["--max-rto: '10' is not a duration"]),
        ("plan --scale --max-rto 10", ["--max-rto: '10' is not a duration"]),
        ("plan --stall 3 --interval 2s --step 1s", ["--stall: '3' is not a duration"]),
        ("plan --gpus abc --params 10T --mode x",
         ["--gpus: 'abc' is not a count", "(an example: --gpus 1024)", "--mode: 'x': mode is"]),
        ("plan --peers 20 --tiers ram,shared", ["--peers: '20': peer copies are"]),
        ("plan --failures nowhere.json", ["--failures: failure table nowhere.json"]),
        ("simulate --gpus 0 --set mtti=5", ["--gpus: '0' is not a count", "(an example: --set mtti=3h)"]),
    ],
)  # fmt: skip
def test_words_that_cannot_be_read_are_told_alone(
    words: str, said: list[str], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """All of them at once, as mistakes in typing (exit code 2); no refusal of a question that nobody asked."""
    monkeypatch.setattr("sys.argv", ["hinan", *words.split()])
    with pytest.raises(SystemExit) as ended:
        main()
    told = capsys.readouterr()
    assert ended.value.code == 2
    assert all(each in told.err for each in said)
    assert "impossible" not in told.out + told.err
    assert "nearest" not in told.out + told.err
    assert "10T" not in told.err


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        ("gpus", "-8", "above zero"), ("gpus", "7.5", "whole"), ("mtti", "nan", "duration"), ("mtti", "0s", "above zero"),
        ("mtti", "5 fortnights", "duration"), ("max-stall", "-1%", "share"), ("max-stall", "120%", "share"),
        ("ram", "2XB", "size"), ("tiers", "tape", "tiers are"), ("preset", "abacus", "no preset"),
        ("store-bandwidth", "0", "rate"), ("params", "inf", "count"), ("hbm", "80", "no unit; write 80GB"),
        ("ram", "200", "no unit; write 200GB"), ("usd-per-gpu-hour", "1_000", "price"), ("rate", "٣", "rate"),
        ("budget", "1_000USD", "share or price"), ("budget", "1_0%", "share"), ("keep", "٠.5", "share"),
        ("hidden", "0_1", "share"), ("usd-per-gpu-hour", "４", "price"),
    ],
)  # fmt: skip
def test_no_word_is_read_as_something_else(name: str, text: str, said: str) -> None:
    """The reason is that of its unit."""
    with pytest.raises(Unreadable, match=f"^--{name}: .*{said}"):
        read({name: text})


@pytest.mark.parametrize(
    ("name", "text", "value"),
    [("state-bytes", "1e12", 1e12), ("keep", ".5", 0.5), ("keep", " 50 %", 0.5), ("rate", "3.79e-3", 3.79e-3),
     ("ram", "200GB", 200e9)],
)  # fmt: skip
def test_words_that_say_what_they_mean_are_read(name: str, text: str, value: float) -> None:
    """A bare number where the setting names its unit; numbers as programs print them."""
    assert read({name: text}) == {name: pytest.approx(value)}


def test_the_list_of_formulas_is_an_answer() -> None:
    """Exit code 0, each formula with its inputs, and a list for programs."""
    shown = CliRunner().invoke(app, ["plan", "--formula", "list"])
    assert shown.exit_code == 0
    assert "young(stall_s, mtti_s)" in shown.output.splitlines()
    listed = json.loads(CliRunner().invoke(app, ["plan", "--formula", "list", "--json"]).output)
    assert listed["young"] == ["stall_s", "mtti_s"]
    assert len(listed) == len(shown.output.splitlines())
    unknown = CliRunner().invoke(app, ["plan", "--formula", "yung"])
    assert "no formula 'yung'; formulas: " in str(unknown.exception)


def test_an_unreadable_word_is_told_to_programs_like_any_mistake() -> None:
    """The reason stands in JSON, and no setting is called possible."""
    result = CliRunner().invoke(app, ["plan", "--max-rto", "10", "--json"])
    assert type(result.exception) is Unreadable
    assert json.loads(result.output) == {"feasible": False, "impossible": [str(result.exception)], "nearest": {}}


@pytest.mark.parametrize(
    ("kept", "away"),
    [
        ("--state-bytes 1TB", "--params 70B"),
        ("--state-bytes 1TB", "--keep 0.5"),
        ("--params 70B", "--keep 0.5"),
        ("--mtti 3h", "--rate 0.004"),
        ("--restart 5min", "--detect 30s"),
        ("--stall 1s", "--hidden 0.5"),
        ("--stall 1s", "--floor 5ms"),
        ("--drain 1min", "--store-bandwidth 100GB/s"),
        ("--tiers ram,shared", "--peers 2"),
    ],
)
def test_what_is_said_twice_is_refused_by_name(kept: str, away: str) -> None:
    """Two words for one figure: neither wins silently; both are named, and without the second there is an answer."""
    first, second = kept.split(), away.split()
    both = CliRunner().invoke(app, ["plan", *first, *second])
    assert both.exit_code == 1
    assert f"impossible: {first[0]} and {second[0]} say" in both.output or "no peer is among" in both.output
    assert f"nearest that is possible: (without {second[0]})" in both.output
    ask(*first)


@pytest.mark.parametrize(
    ("words", "option"),
    [
        ("plan --gpus 8 --gpus 16", "--gpus"),
        ("simulate --gpus 8 --years 1 --years 2", "--years"),
        ("wire --from sample --gpu 0 --gpu 1", "--gpu"),
        ("agent stop /nowhere --grace 1 --grace 2", "--grace"),
    ],
)
def test_an_option_typed_twice_is_refused_by_name(words: str, option: str) -> None:
    """Of one verb or another, or before the verb: the last does not win silently. Switches and lists may be repeated."""
    refused = CliRunner().invoke(app, words.split())
    assert f"{option} is given 2 times" in str(refused.exception)
    assert isinstance(refused.exception, ConfigError)
    repeated = ["plan", "--formula", "young", "--given", "stall_s=1s", "--given", "mtti_s=2s", "--json", "--json"]
    assert CliRunner().invoke(app, repeated).exit_code == 0


def test_drives_that_read_slowly_are_said_so() -> None:
    """--nvme is what drives write; a restart reads, and has its own word."""
    slow, fast = (load_from_nvme_s(ask(*LLAMA, "--nvme-read", rate)) for rate in ("1GB/s", "2GB/s"))
    assert slow - fast == pytest.approx(5.67e12 / 16384 * 8 / 1e9 / 2)


def load_from_nvme_s(answer: dict[str, Any]) -> float:
    """What a restart from NVMe loads for [s]."""
    return next(float(each["restart_parts_s"]["load"]) for each in answer["classes"] if each["tier"] == "nvme")


def test_every_part_of_a_restart_can_be_given_and_is_shown() -> None:
    """Detect, reschedule, load, init, replay: what is given is what a lost node costs, class by class, and in the year."""
    parts = {"detect": "1s", "reschedule": "2s", "load": "4s", "init": "8s", "init-growth": "0s", "replay": "16s"}
    answer = ask(*LLAMA, *(word for name, text in parts.items() for word in (f"--{name}", text)))
    for each in answer["classes"]:
        assert each["restart_parts_s"] == {"detect": 1, "reschedule": 2, "load": 4, "init": 8, "replay": 16}
        assert each["rto_s"] == 31
    inputs = answer["inputs"]
    assert inputs["restart.parts"]["value"]["node"] == {"detect_s": 1, "reschedule_s": 2, "init_s": 8}
    assert {inputs[f"restart.{name}"]["kind"] for name in ("parts", "load_s", "replay_s", "init_per_1k_nodes_s")} == {
        "given"
    }
    ratio = answer["lost"]["replay"]["ratio"] / answer["lost"]["detect"]["ratio"]
    assert ratio == pytest.approx(16)
    words = [word for name, text in parts.items() for word in ("--set", f"{name}={text}")]
    (year,) = json.loads(CliRunner().invoke(app, ["simulate", "--gpus", "1024", *words, "--json"]).output)
    assert year["shares"]["replay"] == pytest.approx(2 * year["shares"]["init"])


def test_a_part_given_leaves_the_others_guesses() -> None:
    """--detect alone: the parts stay a guess that says which of them is known."""
    parts = ask(*LLAMA, "--detect", "7s")["inputs"]["restart.parts"]
    assert (parts["kind"], parts["source"]) == ("guessed", "reschedule_s, init_s; given: detect_s")
    assert {each["detect_s"] for each in parts["value"].values()} == {7}
    assert parts["value"]["job"]["reschedule_s"] == 600


def test_a_refusal_says_which_of_its_numbers_nobody_gave() -> None:
    """A restart against the MTTI: its parts are guesses, unless they or the whole are given."""
    words = ["plan", "--gpus", "1024", "--mtti", "1min"]
    refused = CliRunner().invoke(app, [*words, "--json"])
    reason = next(text for text in json.loads(refused.output)["impossible"] if text.startswith("a restart takes "))
    assert "(guessed: restart.init_per_1k_nodes_s, " in reason
    assert "restart.parts" in reason
    assert "job.floor_s" not in reason
    whole = CliRunner().invoke(app, [*words, "--restart", "2min"]).output
    assert "restart.parts" not in whole
    assert "a restart takes 120 s" in whole


def test_a_stall_limit_names_the_limit_that_it_meets() -> None:
    """The interval given, not a redo limit that nobody set; and shares small enough to see."""
    given = CliRunner().invoke(app, ["plan", *LLAMA, "--interval", "5min", "--max-stall", "0.00001%"])
    assert given.exit_code == 1
    assert (
        "the interval given (300 s) asks for saves that cost at least 0.00167% of the time, 0.00001% are allowed"
        in given.output
    )
    assert "redo limit" not in given.output
    redo = CliRunner().invoke(app, ["plan", *LLAMA, "--max-redo", "5min", "--max-stall", "0.00001%"])
    assert "impossible: the redo limit asks for saves" in redo.output


def test_help_names_every_setting() -> None:
    """Help and parser are one table."""
    result = CliRunner().invoke(app, ["plan", "--help"], env={"COLUMNS": "200"})
    flags = set(re.findall(r"--[a-z0-9-]+", result.output))
    assert {f"--{name}" for name in SETTINGS} <= flags


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--given", "stall_s=1s"], "--formula"),
        (["--scale", "--html", "x.html"], "--html"),
        (["--html", "/nonexistent/x.html"], "/nonexistent/x.html cannot be written"),
        (["--seed", "-1"], "--seed"),
    ],
)
def test_switches_that_cannot_be_followed_are_refused(words: list[str], named: str) -> None:
    """What would be left unread, or cannot be written or begun with, is named; nothing is answered beside it."""
    result = CliRunner().invoke(app, ["plan", *words])
    assert isinstance(result.exception, ConfigError)
    assert named in str(result.exception)
    assert not result.output


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--usd-per-gpu-hour", "-3"], "'-3' is not a price above zero; write it like '4'"),
        (["--budget", "free"], "'free' is not a share or price above zero; write it like '5%' or '100000USD'"),
    ],
)
def test_a_price_is_explained_as_a_price(words: list[str], said: str) -> None:
    """The way to write it is that of the setting, not of a failure rate."""
    assert said in str(CliRunner().invoke(app, ["plan", "--gpus", "1024", *words]).exception)


@pytest.mark.parametrize("name", ["--max-stall", "--interference"])
def test_a_bare_one_is_neither_a_hundredth_nor_all(name: str) -> None:
    """Refused with both ways to write it; shares that are often all of it take it."""
    refused = CliRunner().invoke(app, ["plan", "--gpus", "1024", name, "1"])
    assert "write '1%' or '100%'" in str(refused.exception)
    assert {SETTINGS["keep"].parse("1"), SETTINGS[name.removeprefix("--")].parse("100%")} == {1.0}
