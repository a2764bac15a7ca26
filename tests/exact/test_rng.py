"""Random generators of torch, NumPy and Python, global and in the state, draw on as in the run that was never stopped."""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
import torch

from hinan.core.errors import CaptureError, StructureError
from tests.exact.twins import Step, assert_resumes, assert_same, evacuated, look, look_at_rng, restored, seed
from tests.trainer.helpers import evacuate, through

MAKERS: dict[str, Any] = {
    "torch": lambda: torch.Generator(),
    "numpy PCG64": lambda: np.random.default_rng(3),
    "numpy MT19937": lambda: np.random.Generator(np.random.MT19937(3)),
    "numpy Philox": lambda: np.random.Generator(np.random.Philox(3)),
    "numpy SFC64": lambda: np.random.Generator(np.random.SFC64(3)),
    "RandomState": lambda: np.random.RandomState(3),
    "RandomState PCG64": lambda: np.random.RandomState(np.random.PCG64(3)),
    "python": lambda: random.Random(3),
}


def draw(generator: Any) -> Any:
    """Numbers of several kinds: half-used words and second Gaussians are part of a generator's state."""
    if isinstance(generator, torch.Generator):
        return torch.randn(3, generator=generator), torch.randint(2**40, (2,), generator=generator), torch.randperm(5)
    if isinstance(generator, random.Random):
        return generator.random(), generator.gauss(0, 1), generator.sample(range(10), 3)
    if isinstance(generator, np.random.RandomState):
        return generator.randn(3), generator.randint(2**30), generator.permutation(5)
    return generator.standard_normal(3), generator.integers(2**20, dtype=np.uint32), generator.permutation(5)


@pytest.mark.parametrize("kind", MAKERS)
def test_a_generator_in_the_state_draws_on(kind: str) -> None:
    """Also in the middle of a pair of Gaussians, and of a 64-bit word of which one half was drawn."""

    def make() -> tuple[dict[str, Any], Step]:
        state = {"cfg": {"g": MAKERS[kind]()}, "pair": (1, MAKERS[kind]())}
        return state, lambda: look([draw(state["cfg"]["g"]), draw(state["pair"][1])])

    assert_resumes(make, at=(1, 2), used=3)


@pytest.mark.parametrize("kind", [k for k in MAKERS if "numpy" in k or k == "RandomState PCG64"])
@pytest.mark.parametrize("seeds", ["its own", "another", "shared"])
def test_a_generator_spawns_on(kind: str, seeds: str) -> None:
    """What it spawned is counted in its seed, as NumPy's own pickle keeps it: the next one draws other numbers. Also where
    the new program has seeded it otherwise, and where others spawn from the same seed."""
    entropy = iter((7, 7, *([7] * 9 if seeds != "another" else range(8, 17))))

    def make() -> tuple[dict[str, Any], Step]:
        if seeds == "shared":
            seed = np.random.SeedSequence(7, spawn_key=(2,), pool_size=8)
            state = {"g": np.random.Generator(np.random.PCG64(seed)), "h": np.random.Generator(np.random.SFC64(seed))}
            spawns = [lambda: seed.spawn(1)[0].generate_state(2), lambda: draw(state["g"].spawn(2)[1])]
        else:
            state = {"g": MAKERS[kind](), "more": {}}
            bits = getattr(state["g"], "bit_generator", None) or state["g"]._bit_generator
            bits.__setstate__((bits.state, np.random.SeedSequence([next(entropy), 2**70])))
            spawns = [lambda: draw(np.random.Generator(bits.spawn(3)[2]))]
        return state, lambda: look([[spawn() for spawn in spawns], draw(state["g"])])

    straight, resumed = assert_resumes(make, at=(1, 2), used=4)
    (a, b) = (getattr(s["g"], "bit_generator", None) or s["g"]._bit_generator for s in (straight, resumed))
    assert a.seed_seq.state == b.seed_seq.state
    assert np.array_equal(a.seed_seq.generate_state(8), b.seed_seq.generate_state(8))


def test_a_generator_that_was_saved_without_its_seed_keeps_the_live_one() -> None:
    """As files of older versions have it; and a seed of one's own, or a seed or bit generator alone, is refused by name."""
    image, small, _ = evacuate({"g": np.random.default_rng(3)})
    del small["state"]["g"]["$random"][2:]
    live = np.random.default_rng(4)
    live.spawn(2)
    restored(image, small, {"g": live})
    assert live.bit_generator.seed_seq.state == {"entropy": 4, "spawn_key": (), "pool_size": 4, "n_children_spawned": 2}
    assert draw(live)[1].tolist() == draw(np.random.default_rng(3))[1].tolist()

    class Own(np.random.SeedSequence):
        """Counts in a way of its own."""

    for value, name in (
        (np.random.Generator(np.random.PCG64(Own(3))), "Own"),
        (np.random.SeedSequence(3), "SeedSequence"),
        (np.random.PCG64(3), "PCG64"),
    ):
        with pytest.raises(CaptureError, match=rf"^cfg\.g .*{name}"):
            evacuate({"cfg": {"g": value}})


def test_a_generator_of_another_kind_is_refused() -> None:
    """Another algorithm, or no generator at all: refused by name, before anything is written."""
    for live in (np.random.Generator(np.random.SFC64(1)), random.Random(), 7):
        before = repr(live)
        with pytest.raises(StructureError, match=r"^g was saved from a numpy\.random\.Generator\(PCG64\)"):
            restored(*evacuated({"g": np.random.default_rng()}), {"g": live})
        assert repr(live) == before


class Holds:
    """Says the very generators that it draws from, as few would on purpose."""

    def __init__(self, *generators: Any) -> None:
        self.said: Any = {"all": list(generators)}

    def state_dict(self) -> Any:
        return self.said

    def load_state_dict(self, said: Any) -> None:
        self.said = said


ALGORITHMS = (np.random.MT19937, np.random.PCG64, np.random.PCG64DXSM, np.random.Philox, np.random.SFC64)


def test_generators_where_there_is_no_live_one_are_made_anew() -> None:
    """Of each kind, in what a state_dict() says, under a new key and in a list that has grown: they draw and spawn on."""

    def made() -> list[Any]:
        numpys = [np.random.Generator(kind(7)) for kind in ALGORITHMS]
        legacy = [np.random.RandomState(7), *(np.random.RandomState(kind(7)) for kind in ALGORITHMS)]
        every = [*numpys, *legacy, random.Random(7)]
        for generator in every:
            draw(generator)
        for generator in numpys:
            generator.spawn(2)
        return every

    live: dict[str, Any] = {"s": Holds(), "d": {}, "l": made()[:1]}
    restored(*evacuated({"s": Holds(*made()), "d": {"new": made()}, "l": made()}), live)
    for found in (live["s"].said["all"], live["d"]["new"], live["l"]):
        for generator, wanted in zip(found, made(), strict=True):
            assert type(generator) is type(wanted)
            assert repr(draw(generator)) == repr(draw(wanted))
            if isinstance(wanted, np.random.Generator):
                assert draw(generator.spawn(1)[0])[1].tolist() == draw(wanted.spawn(1)[0])[1].tolist()
    saved = torch.Generator().manual_seed(3)
    live = {"s": Holds()}
    restored(*evacuated({"s": Holds(saved)}), live)
    assert torch.equal(torch.rand(3, generator=live["s"].said["all"][0]), torch.rand(3, generator=saved))


def test_a_generator_without_a_seed_is_made_anew_without_one() -> None:
    """It could not spawn; the one made from it must not spawn from a seed that nobody chose."""
    saved = np.random.Generator(np.random.RandomState(3)._bit_generator)
    live = {"s": Holds()}
    restored(*evacuated({"s": Holds(saved)}), live)
    (made,) = live["s"].said["all"]
    assert draw(made)[1].tolist() == draw(saved)[1].tolist()
    assert (made.bit_generator.seed_seq, saved.bit_generator.seed_seq) == (None, None)


def test_generators_that_cannot_be_made_anew_are_refused_at_the_save() -> None:
    """Subclasses, by path: where a live one takes its state that is no matter."""

    class Mine(torch.Generator):
        """Might hold anything."""

    class Other(np.random.PCG64):
        """An algorithm that is not NumPy's."""

    for value, name in (
        (Mine(), "Mine"), (np.random.Generator(Other(3)), "Other"), (random.SystemRandom(), "SystemRandom"),
        (type("Sub", (random.Random,), {})(3), "Sub"),
    ):  # fmt: skip
        with pytest.raises(CaptureError, match=rf"^s\.all\.\[0\] .*{name}"):
            evacuate({"s": Holds(value)})
    live = Mine().manual_seed(1)
    restored(*evacuated({"g": Mine().manual_seed(5)}), {"g": live})
    assert torch.equal(torch.rand(3, generator=live), torch.rand(3, generator=torch.Generator().manual_seed(5)))


def test_global_generators_draw_on() -> None:
    """D5: torch's, NumPy's and Python's own, with a second Gaussian waiting in each."""

    def make() -> tuple[dict[str, Any], Step]:
        return {"n": {}}, lambda: look(
            [torch.randn(3), np.random.randn(), np.random.rand(2), random.gauss(0, 1), random.random()]
        )

    assert_resumes(make, at=(1, 2), used=1)


def test_saving_draws_nothing() -> None:
    """D8: two evacuations later every generator is where it was."""
    state = {"a": {"torch": torch.Generator(), "numpy": np.random.default_rng(), "python": random.Random(1)}}
    seed(5)
    before = look_at_rng(), look([draw(state["a"]["torch"])])
    seed(5)
    state["a"]["torch"] = torch.Generator()
    evacuated(state)
    evacuated(state)
    assert_same((look_at_rng(), look([draw(state["a"]["torch"])])), before, "generators")


def test_a_generator_whose_seed_is_a_range() -> None:
    saved, live = np.random.default_rng(range(3)), np.random.default_rng(4)
    saved.spawn(2)
    through({"g": saved}, {"g": live})
    assert saved.spawn(1)[0].random() == live.spawn(1)[0].random()


@pytest.mark.parametrize("setting", ["device", "dtype"])
def test_torch_defaults_of_the_user_reach_nothing(setting: str) -> None:
    """A default device or dtype that is not torch's own changes neither what is saved nor what comes back."""
    flat = torch.randn(9)
    saved = {"v": [flat[2:], flat[:5], torch.ones(2, 3).t()], "e": {"x": torch.empty(0, 3)}, "g": torch.Generator()}
    saved["model"] = torch.nn.Linear(2, 2)
    plain = evacuate(saved)[0]
    live: dict[str, Any] = {"v": [], "e": {}, "g": torch.Generator(), "model": torch.nn.Linear(2, 2)}
    torch.set_default_device("meta") if setting == "device" else torch.set_default_dtype(torch.float64)
    try:
        image, small, _ = evacuate(saved)
        restored(image, small, live)
    finally:
        torch.set_default_device(None)
        torch.set_default_dtype(torch.float32)
    assert image == plain
    assert_same(look(live), look(saved), "state")
