"""Data loaders that keep a position (torchdata's StatefulDataLoader): what their own state_dict leaves to chance.

Asked before its first iteration, such a loader makes its iterator to answer: it draws from a generator and starts workers.
Saving must change nothing (rule D8), so it is not asked then.

Its position says how many samples were taken, and the order is made anew: by a sampler that draws it as the iterator is
made, from any generator there is. So what all generators were is noted then, is kept with the position, and is there again
for the time in which the iterator that goes on is made; afterwards they are what they were. That one is made when the loop
asks for it, not earlier: an epoch that the loop sets on sampler or dataset before counts, also in workers.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import chain, islice
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

import torch
from torch.utils.data import DataLoader, IterableDataset

from hinan.core.errors import StructureError
from hinan.host.signals import ours
from hinan.trainer.state.naming import loaders_of
from hinan.trainer.state.rng import host_rng_state, set_host_rng_state

Draws = Mapping[str, Any]
"""States of generators as plain values: `host` has the global ones, `own` those of a loader and its samplers."""


def keeps_position(value: object) -> bool:
    """Whether a value is a data loader that says and takes its position."""
    return isinstance(value, DataLoader) and hasattr(value, "state_dict") and hasattr(value, "load_state_dict")


def follow_loaders(state: Mapping[str, Any]) -> None:
    """Note from now on what the loaders in containers of a state begin their iterators with."""
    for _, loader in loaders_of(state):
        if keeps_position(loader):
            _follow(loader)


def loader_values(loader: Any) -> dict[str, Any]:
    """Position and generators of a loader, and what generators were as its iterator was made, if that is known; {} is the
    position before the first iteration."""
    started = loader._iterator is not None
    position = loader.state_dict() if started else getattr(loader, "next_iter_state", None) or {}
    values = {"position": position, "generators": _generators(loader)}
    beginning = _follow(loader)
    began = None if beginning is None else beginning.of_iterator(loader._iterator)
    return {**values, "began": began} if position and began else values


def load_loader(path: str, loader: Any, saved: Mapping[str, Any]) -> None:
    """Take a position, from which the next iterator goes on; then put the generators back.

    Args:
        saved: what `loader_values` said.
    """
    loader.load_state_dict(saved["position"])
    if saved["position"]:
        beginning = _follow(loader)
        if beginning is None:
            loader.state_dict()  # makes the iterator at once, which the next `iter(loader)` returns
        else:
            beginning.resume(path, saved.get("began"))
    for live, state in zip(_generators(loader), saved["generators"], strict=False):
        live.set_state(state.get_state())


class _Beginning:
    """What generators were as one loader's present iterator was made.

    Ownership: the iterator itself has it. What is noted beside a loader must not lead back to it: it would live on, and
    its workers with it.
    """

    def __init__(self) -> None:
        self._resumes: str | None = None
        self._draws: Draws | None = None

    def resume(self, path: str, draws: Draws | None) -> None:
        """The next iterator goes on from a position that was loaded, and that another one had, which began with `draws`."""
        self._resumes, self._draws = path, draws

    def of_iterator(self, iterator: Any) -> Draws | None:
        """What the loader's iterator began with; before there is one, what the one began with that it will go on from.
        None where it is not known: a loader with persistent workers begins again by itself."""
        if iterator is None:
            return self._draws if self._resumes is not None else None
        draws, order = getattr(iterator, _NOTED, (None, None))
        return draws if iterator._sampler_iter is order else None

    def make(self, loader: Any, make: Callable[[Any], Any]) -> Any:
        """An iterator of the loader."""
        began = now = _draws(_generators(loader))
        if self._resumes is None or loader.next_iter_state is None:
            iterator = make(loader)
        else:
            began = self._draws or now
            iterator = self._resumed(loader, make, began, now)
        setattr(iterator, _NOTED, (began, iterator._sampler_iter))
        self._resumes = self._draws = None
        return iterator

    def _resumed(self, loader: Any, make: Callable[[Any], Any], began: Draws, now: Draws) -> Any:
        try:
            _set_draws(_generators(loader), began)
            with _drawing_again(loader, began):
                iterator = make(loader)
            iterator._index_sampler = loader._index_sampler
            if isinstance(iterator._sampler_iter, islice) and iterator._sampler_iter_yielded:
                # It has not drawn yet what it will pass over: it would, when all generators are elsewhere.
                order = iterator._sampler_iter
                iterator._sampler_iter = chain(list(islice(order, 1)), order)
            return iterator
        except ours(Exception) as error:
            raise StructureError(
                f"{self._resumes} is a {type(loader).__qualname__} that does not go on from the position that was saved: "
                f"{type(error).__name__}: {error}. Make it as it was made then, with the same dataset, sampler and workers",
                path=self._resumes,
            ) from error
        finally:
            _set_draws(_generators(loader), now)


_NOTED = "_hinan_began"
"""Attribute of an iterator: (what generators were as it was made, its order then)."""

_beginnings: WeakKeyDictionary[DataLoader[Any], _Beginning] = WeakKeyDictionary()
_followed: WeakSet[Callable[..., Any]] = WeakSet()


def _follow(loader: Any) -> _Beginning | None:
    """What is noted of a loader; None for one whose iterators are made in a way that we do not know.

    Its class is changed, not the loader: one that is copied or pickled has nothing of ours, and its copy is not followed.
    """
    owner = getattr(getattr(loader, "_get_iterator", None), "__self__", None)  # of a wrapped one (accelerate) the inner
    if not isinstance(owner, DataLoader) or not hasattr(owner, "next_iter_state"):
        return None
    kind: Any = next(base for base in type(owner).__mro__ if "_get_iterator" in vars(base))
    make = vars(kind)["_get_iterator"]
    if make not in _followed:

        @functools.wraps(make)
        def followed(self: Any) -> Any:
            beginning = _beginnings.get(self)
            return make(self) if beginning is None else beginning.make(self, make)

        _followed.add(followed)
        kind._get_iterator = followed
    return _beginnings.setdefault(owner, _Beginning())


@contextmanager
def _drawing_again(loader: Any, began: Draws) -> Iterator[None]:
    """For the time in which an iterator is made: torchdata asks a sampler for its order up to three times for it, and
    uses the last one. Each is drawn as the first of the epoch was. A sampler with a state of its own needs nothing."""
    batches = loader.batch_sampler
    # torchdata's own asks the sampler inside it again. What the loader itself holds it lets nobody set any more.
    is_inside = type(batches).__module__.startswith("torchdata.")
    holder = vars(batches if is_inside else loader)
    name = "sampler" if is_inside or batches is None else "batch_sampler"
    sampler = holder[name]
    if hasattr(sampler, "state_dict") or isinstance(loader.dataset, IterableDataset):
        yield
        return
    holder[name] = _Again(sampler, loader.generator, _generators(loader), began)
    try:
        yield
    finally:
        holder[name] = sampler


class _Again:
    """A sampler each of whose orders is drawn as that of an epoch that has begun."""

    def __init__(
        self, sampler: Any, seeds: torch.Generator | None, generators: Sequence[torch.Generator], began: Draws
    ) -> None:
        self._sampler, self._seeds, self._generators, self._began = sampler, seeds, generators, began

    def __iter__(self) -> Iterator[Any]:
        _set_draws(self._generators, self._began)
        order: Iterator[Any] = iter(self._sampler)
        # A seed for the workers comes next, before a sampler that is a generator draws anything.
        torch.empty((), dtype=torch.int64).random_(generator=self._seeds)
        return order

    def __len__(self) -> int:
        return len(self._sampler)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sampler, name)


def _draws(generators: Sequence[torch.Generator]) -> Draws:
    return {"host": host_rng_state(), "own": [bytes(g.get_state().tolist()) for g in generators]}


def _set_draws(generators: Sequence[torch.Generator], draws: Draws) -> None:
    set_host_rng_state(draws["host"])
    for generator, state in zip(generators, draws["own"], strict=False):
        generator.set_state(torch.frombuffer(bytearray(state), dtype=torch.uint8))


def _generators(loader: Any) -> list[torch.Generator]:
    """The loader's own generator and its sampler's, each once; a batch sampler of the user's may hold one, too."""
    holders = (loader, loader.sampler, getattr(loader.batch_sampler, "sampler", None))
    found = [getattr(holder, "generator", None) for holder in holders]
    return list({id(g): g for g in found if isinstance(g, torch.Generator)}.values())
