"""What a refusal calls the nearest that is possible has an answer, and there is no room between it and what was asked."""

import random
import re

import pytest
from drawn import drawn

from hinan.core.errors import ConfigError
from hinan.plan.decision.nearest import solve_settings
from hinan.plan.model.checks import Infeasible

LESS_IS_HARDER = {"max-redo": True, "max-rto": True, "max-stall": True, "budget": True, "mtti": True, "ram": True,
                  "store-bandwidth": True, "latency": True, "rate": False, "drain": False, "verify": False,
                  "repair": False}  # fmt: skip
"""Corrections that are a quantity, and which way they are harder to keep."""


@pytest.mark.parametrize(
    ("words", "least"),
    [
        ("gpus=1024 params=70B step=5s max-redo=1s", 19.8),
        ("gpus=1024 params=70B step=5s max-redo=19.7s", 19.8),
        ("gpus=1024 params=70B step=60s max-redo=1s", 69.8),
        ("gpus=1024 params=70B step=300s max-redo=1s", 309.8),
        ("gpus=16384 params=405B step=5s max-redo=1s", 116.7),
        ("gpus=1024 params=70B step=5s mtti=1s", 107.7),
        ("gpus=65536 params=405B step=5s drain=1000000s", 12960),
        ("gpus=1024 params=70B step=5s latency=1ms", 1.01),
    ],
)
def test_the_nearest_is_the_edge_of_what_is_possible(words: str, least: float) -> None:
    """Within a hundredth of the least (or most) that has an answer, as trying tells."""
    refused = refusal(dict(word.split("=") for word in words.split()))
    (offered,) = refused.nearest.values()
    assert float(re.match(r"[0-9.]+", offered)[0]) == pytest.approx(least, rel=0.01)  # type: ignore[index]


def test_a_redo_limit_between_two_numbers_of_steps_speaks_of_itself_alone() -> None:
    """Nobody gave a stall budget."""
    refused = refusal({"gpus": "1024", "params": "70B", "step": "5s", "max-redo": "19.7s"})
    assert "no whole number of steps of 5 s keeps the redo limit and what copies and drains take" in refused.impossible[0]


def test_there_is_no_room_beside_the_nearest() -> None:
    """Over orders of magnitude each quantity that is offered has an answer, and 3 % harder has none."""
    no_room_beside_the_nearest(random.Random(8), questions=8)


@pytest.mark.slow
def test_there_is_no_room_beside_the_nearest_at_length() -> None:
    """The same over many more questions."""
    no_room_beside_the_nearest(random.Random(9), questions=150)


def no_room_beside_the_nearest(rng: random.Random, *, questions: int) -> None:
    """Asks until so many were refused; corrects as told, asks again, and a little harder."""
    seen = 0
    while seen < questions:
        asked = drawn(rng) | too_much(rng)
        try:
            solve_settings(asked)
        except Infeasible as error:
            nearest = error.nearest
        else:
            continue
        seen += 1
        corrected = {k: t for k, t in {**asked, **nearest}.items() if t}
        solve_settings(corrected)
        for name in LESS_IS_HARDER.keys() & corrected.keys() & nearest.keys():
            assert not possible({**corrected, name: harder(name, corrected[name])}), (asked, nearest)


def too_much(rng: random.Random) -> dict[str, str]:
    """A demand that hardly any job can keep."""
    name, text = rng.choice(
        [("max-redo", f"{10 ** rng.uniform(-2, 2):.3g}s"), ("max-stall", f"{10 ** rng.uniform(-7, -3):.3g}%"),
         ("max-rto", f"{10 ** rng.uniform(-1, 1.5):.3g}s"), ("mtti", f"{10 ** rng.uniform(0, 1.8):.3g}s"),
         ("budget", f"{10 ** rng.uniform(-6, -3):.3g}%"), ("drain", f"{10 ** rng.uniform(4.5, 7):.3g}s"),
         ("latency", f"{10 ** rng.uniform(-3, 0):.3g}s"), ("ram", f"{10 ** rng.uniform(0, 1):.3g}GB")]
    )  # fmt: skip
    return {name: text}


def harder(name: str, text: str) -> str:
    """The same quantity 3 % farther from what is easy."""
    number, unit = re.fullmatch(r"([0-9.e+-]+)(.*)", text).groups()  # type: ignore[union-attr]
    return f"{float(number) * (0.97 if LESS_IS_HARDER[name] else 1.03):.6g}{unit}"


def possible(asked: dict[str, str]) -> bool:
    """Whether there is an answer."""
    try:
        solve_settings(asked)
    except ConfigError:
        return False
    return True


def refusal(asked: dict[str, str]) -> Infeasible:
    """What is said instead of an answer."""
    with pytest.raises(Infeasible) as refused:
        solve_settings(asked)
    return refused.value
