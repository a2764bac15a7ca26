"""Data loaders that keep a position (torchdata's StatefulDataLoader): what their own state_dict leaves to chance.

Asked before its first iteration, such a loader makes its iterator to answer: it draws from a generator and starts workers.
Saving must change nothing (rule D8), so it is not asked then.

Its position says how many samples were taken. The order is made anew, by a sampler that may draw it from any generator
there is: as it is asked for an order, or for the first sample. So what all generators were at both moments is noted and
kept with the position, and is there again as the order is drawn again; afterwards they are what they were. The iterator
that goes on is made when the loop asks for it, not earlier: an epoch that the loop sets on sampler or dataset before
counts, also in workers.
"""

from __future__ import annotations

import functools
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any
from weakref import WeakKeyDictionary, WeakSet

from torch.utils.data import DataLoader, IterableDataset, Sampler

from hinan.core.errors import StructureError
from hinan.host.signals import ours
from hinan.trainer.state.attributes import says_its_state
from hinan.trainer.state.naming import loaders_of
from hinan.trainer.state.rng import (
    Generator,
    generator_state,
    host_rng_state,
    is_generator,
    set_generator_state,
    set_host_rng_state,
)

Draws = Mapping[str, Any]
"""States of generators as plain values: `host` has the global ones, `own` those of a loader and its samplers."""
Began = dict[str, Draws | None]
"""States as a sampler was `asked` for an order, and as the `first` sample was taken from it; None as long as none was."""


def keeps_position(value: object) -> bool:
    """Whether a value is a data loader that says and takes its position."""
    return isinstance(value, DataLoader) and says_its_state(value)


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
        set_generator_state(live, generator_state(state))


class _Beginning:
    """What generators were as one loader's present iterator was made.

    Ownership: the iterator itself has it. What is noted beside a loader must not lead back to it: it would live on, and
    its workers with it.
    """

    def __init__(self) -> None:
        self._resumes: str | None = None
        self._began: Began | None = None
        self._is_making = False

    def resume(self, path: str, began: Began | None) -> None:
        """The next iterator goes on from a position that was loaded, and that another one had, which began so."""
        self._resumes, self._began = path, began

    def of_iterator(self, iterator: Any) -> Began | None:
        """How the loader's iterator began; before there is one, how the one began that it will go on from. None where it is
        not known: a loader with persistent workers begins again by itself."""
        if iterator is None:
            return self._began if self._resumes is not None else None
        began, order = getattr(iterator, _NOTED, (None, None))
        return began if iterator._sampler_iter is order else None

    def make(self, loader: Any, make: Callable[[Any], Any]) -> Any:
        """An iterator of the loader."""
        if self._is_making:  # a class of the user's calls that of its base
            return make(loader)
        self._is_making = True
        try:
            generators = _generators(loader)
            now = _draws(generators)
            began: Began = {"asked": now, "first": None}
            if self._resumes is None or loader.next_iter_state is None:
                with _ordering(loader, generators, began, draws_again=False):
                    iterator = make(loader)
            else:
                began = dict(self._began or began)
                iterator = self._resumed(loader, make, generators, began, now)
            iterator._index_sampler = loader._index_sampler
            setattr(iterator, _NOTED, (began, iterator._sampler_iter))
            self._resumes = self._began = None
            return iterator
        finally:
            self._is_making = False

    def _resumed(
        self, loader: Any, make: Callable[[Any], Any], generators: Sequence[Generator], began: Began, now: Draws
    ) -> Any:
        try:
            _set_draws(generators, began["asked"])
            with _ordering(loader, generators, began, draws_again=True):
                iterator = make(loader)
                if isinstance(iterator._sampler_iter, islice) and not loader.num_workers:
                    # It has not drawn yet what it will pass over: it would, when all generators are elsewhere.
                    order = iter(iterator._index_sampler)
                    deque(islice(order, iterator._sampler_iter_yielded), maxlen=0)
                    iterator._sampler_iter = order
            return iterator
        except ours(Exception) as error:
            raise StructureError(
                f"{self._resumes} is a {type(loader).__qualname__} that does not go on from the position that was saved: "
                f"{type(error).__name__}: {error}. Make it as it was made then, with the same dataset, sampler and workers",
                path=self._resumes,
            ) from error
        finally:
            _set_draws(generators, now)


_NOTED = "_hinan_began"
"""Attribute of an iterator: (how it began, its order then)."""

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
def _ordering(loader: Any, generators: Sequence[Generator], began: Began, *, draws_again: bool) -> Iterator[None]:
    """For the time in which an iterator is made, orders are drawn under watch. A sampler with a state needs nothing.

    Args:
        draws_again: torchdata asks for an order up to three times to go on, and uses the last one.
    """
    batches = loader.batch_sampler
    # torchdata's own asks the sampler inside it again. What the loader itself holds it lets nobody set any more.
    is_inside = type(batches).__module__.startswith("torchdata.")
    holder = vars(batches if is_inside else loader)
    name = "sampler" if is_inside or batches is None else "batch_sampler"
    sampler = holder[name]
    if hasattr(sampler, "state_dict") or isinstance(loader.dataset, IterableDataset):
        yield
        return
    holder[name] = _Ordered(sampler, generators, began, draws_again)
    try:
        yield
    finally:
        holder[name] = sampler


class _Ordered:
    """A sampler whose orders are drawn as one that has begun was, or are noted for that."""

    def __init__(self, sampler: Any, generators: Sequence[Generator], began: Began, draws_again: bool) -> None:
        self._sampler, self._generators, self._began, self._draws_again = sampler, generators, began, draws_again

    def __iter__(self) -> Iterator[Any]:
        if self._draws_again:
            _set_draws(self._generators, self._began["asked"])
        else:  # torch asks a second time before it starts workers
            self._began["asked"] = _draws(self._generators)
        order: Iterator[Any] = iter(self._sampler)
        return order if hasattr(order, "state_dict") else self._from(order)

    def _from(self, order: Iterator[Any]) -> Iterator[Any]:
        """The order; a sampler that is a generator draws it with the first sample."""
        if self._began["first"] is None:
            self._began["first"] = _draws(self._generators)
        elif self._draws_again:
            _set_draws(self._generators, self._began["first"])
        yield from order

    def __len__(self) -> int:
        return len(self._sampler)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sampler, name)


def _draws(generators: Sequence[Generator]) -> Draws:
    return {"host": host_rng_state(), "own": [generator_state(generator) for generator in generators]}


def _set_draws(generators: Sequence[Generator], draws: Draws | None) -> None:
    assert draws is not None
    set_host_rng_state(draws["host"])
    for generator, state in zip(generators, draws["own"], strict=False):
        set_generator_state(generator, state)


def _generators(loader: Any) -> list[Generator]:
    """The generators that a loader has, and its samplers and those inside them, each once."""
    found = {id(g): g for g in (loader.generator,) if is_generator(g)}
    holders, seen = [loader.sampler, loader.batch_sampler], set()
    while holders:
        holder = holders.pop(0)
        if holder is None or id(holder) in seen:
            continue
        seen.add(id(holder))
        for value in getattr(holder, "__dict__", {}).values():
            if is_generator(value):
                found[id(value)] = value
            elif isinstance(value, Sampler):
                holders.append(value)
    return list(found.values())
