"""Random number generators that belong to the rank: torch, its devices, NumPy's and Python's globals (rule D5)."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

_OWNERS = {"numpy.random.Generator": "Generator", "numpy.random.RandomState": "RandomState"}
_ALGORITHMS = ("MT19937", "PCG64", "PCG64DXSM", "Philox", "SFC64")
"""NumPy's bit generators, all that are made anew: a file's word must not choose what is called."""


def rng_state() -> dict[str, Any]:
    """All global generators' states as plain values and small arrays. Reads only."""
    state: dict[str, Any] = {
        "torch": torch.get_rng_state().numpy(),
        "numpy": np.random.get_state(),
        "python": random.getstate(),
    }
    module = _device_module()
    if module is not None:
        state["devices"] = [s.cpu().numpy() for s in module.get_rng_state_all()]
    return state


def set_rng_state(state: Mapping[str, Any]) -> None:
    """Put all global generators back. Call last: whatever draws in between would shift every later number."""
    torch.set_rng_state(torch.from_numpy(state["torch"].copy()))
    np.random.set_state(state["numpy"])
    random.setstate(state["python"])
    module = _device_module()
    if module is not None and "devices" in state:
        module.set_rng_state_all([torch.from_numpy(s.copy()) for s in state["devices"]])


def host_rng_state() -> dict[str, Any]:
    """States of the host's global generators as plain values, and as few of them as can be. Reads only."""
    version, numbers, gauss = random.getstate()
    drawn: Any = np.random.get_state(legacy=False)
    is_usual = drawn["bit_generator"] == "MT19937"  # another one may have been put there, and is not kept here
    keys = drawn["state"]["key"].tobytes() if is_usual else b""
    return {
        "torch": torch.get_rng_state().numpy().tobytes(),
        "numpy": [keys, drawn["state"]["pos"], drawn["has_gauss"], drawn["gauss"]] if is_usual else None,
        "python": [version, np.array(numbers, dtype=np.uint32).tobytes(), gauss],
    }


def set_host_rng_state(state: Mapping[str, Any]) -> None:
    """Put them back."""
    torch.set_rng_state(torch.frombuffer(bytearray(state["torch"]), dtype=torch.uint8))
    if state["numpy"] is not None:
        keys, *rest = state["numpy"]
        np.random.set_state(("MT19937", np.frombuffer(keys, dtype=np.uint32), *rest))
    version, numbers, gauss = state["python"]
    random.setstate((version, tuple(np.frombuffer(numbers, dtype=np.uint32).tolist()), gauss))


Generator = torch.Generator | np.random.Generator | np.random.RandomState | random.Random
"""Those that draw by a state of their own."""


def is_generator(value: object) -> bool:
    """Whether a value is one."""
    return isinstance(value, Generator)


def generator_state(value: Generator) -> Any:
    """Its state as a plain value. Reads only."""
    return bytes(value.get_state().tolist()) if isinstance(value, torch.Generator) else random_state(value)


def set_generator_state(value: Generator, state: Any) -> None:
    """Put it back."""
    if isinstance(value, torch.Generator):
        value.set_state(torch.frombuffer(bytearray(state), dtype=torch.uint8))
    else:
        set_random_state(value, state)


def random_kind(value: object) -> str | None:
    """What a generator of NumPy's or Python's is called in a state, its algorithm included; None for anything else."""
    if type(value) is np.random.Generator:
        return f"numpy.random.Generator({type(value.bit_generator).__name__})"
    if type(value) is np.random.RandomState:
        return f"numpy.random.RandomState({type(value._bit_generator).__name__})"
    return "random.Random" if type(value) is random.Random else None


def can_make(kind: str) -> bool:
    """Whether a generator of this kind (`random_kind`) can be made anew."""
    owner, _, algorithm = kind.removesuffix(")").partition("(")
    return kind == "random.Random" or (owner in _OWNERS and algorithm in _ALGORITHMS)


def new_random(kind: str, state: Any, seed: Mapping[str, Any] | None = None) -> Any:
    """A generator of a kind that `can_make` knows. Without a seed it cannot spawn: the one whose state it is could not."""
    value: Any = random.Random()  # noqa: S311 - it gets its state
    if kind != "random.Random":
        owner, _, algorithm = kind.removesuffix(")").partition("(")
        bit_generator: Any = getattr(np.random, algorithm)()
        bit_generator.__setstate__((bit_generator.state, None))
        value = getattr(np.random, _OWNERS[owner])(bit_generator)
    set_random_state(value, state, seed)
    return value


def random_state(value: Any) -> object:
    """The state of such a generator as plain values and small arrays. Reads only."""
    if isinstance(value, random.Random):
        return value.getstate()
    return value.bit_generator.state if isinstance(value, np.random.Generator) else value.get_state(legacy=False)


def set_random_state(value: Any, state: Any, seed: Mapping[str, Any] | None = None) -> None:
    """Put such a generator back.

    Args:
        seed: what it spawned from; None leaves that as it is.
    """
    if isinstance(value, random.Random):
        value.setstate(state)
    elif isinstance(value, np.random.Generator):
        value.bit_generator.state = state
    else:
        value.set_state(state)
    if seed is not None:
        _set_seed(value, seed)


def seed_of(value: Any) -> dict[str, Any] | None:
    """What such a generator of NumPy's spawns others from, as plain values; None where it cannot spawn any.

    Raises:
        TypeError: it spawns from something whose state only its own class knows.
    """
    seed = None if isinstance(value, random.Random) else _bit_generator(value).seed_seq
    if type(seed) is np.random.SeedSequence:
        entropy = seed.entropy
        return {**seed.state, "entropy": list(entropy) if isinstance(entropy, range) else entropy}
    if hasattr(seed, "spawn"):
        raise TypeError(
            f"a generator spawns from a {type(seed).__qualname__}, and only numpy.random.SeedSequence can be kept"
        )
    return None


def _set_seed(value: Any, seed: Mapping[str, Any]) -> None:
    """Let such a generator spawn on. In place: whoever else spawns from the same SeedSequence goes on with it."""
    saved, generator = np.random.SeedSequence(**seed), _bit_generator(value)
    if type(generator.seed_seq) is np.random.SeedSequence:
        generator.seed_seq.__setstate__(saved.__reduce_ex__(2)[2])  # type: ignore[attr-defined]
    else:
        generator.__setstate__((generator.state, saved))


def _bit_generator(value: Any) -> Any:
    """Its own, which may be shared."""
    return value.bit_generator if isinstance(value, np.random.Generator) else value._bit_generator


def _device_module() -> Any | None:
    """torch's module of the current accelerator, if it was used and has generators of its own."""
    if not torch.accelerator.is_available():
        return None
    module = torch.get_device_module(torch.accelerator.current_accelerator())
    return module if hasattr(module, "get_rng_state_all") and module.is_initialized() else None
