"""What of a saved state and a live one cannot be bridged, said by path with both sides. Nothing is cast or left out."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import torch
from torch import nn

from hinan.core.errors import StructureError
from hinan.trainer.restoring.saved import SavedTensor
from hinan.trainer.state.layout import has_its_bytes
from hinan.trainer.state.loading_modules import saves_itself
from hinan.trainer.state.loading_optimizers import is_plain
from hinan.trainer.state.modules import unwrap
from hinan.trainer.state.naming import modules_of
from hinan.trainer.state.places import names_loaded, owners_of, places_of
from hinan.trainer.state.supported import is_wrapper


def refuse_other_keys(saved: Collection[str], live: Collection[str]) -> None:
    """The keys of the state must be the same."""
    if missing := sorted(set(saved) - set(live)):
        raise StructureError(
            f"the saved state has {missing}, the live one does not; add them to the state, or leave them out on purpose "
            "with a new target"
        )
    if extra := sorted(set(live) - set(saved)):
        raise StructureError(f"the live state has {extra}, the saved one does not; it was saved without them")


def refuse_lazy(state: Mapping[str, object]) -> None:
    """Parameters without values, which a restore could not write over. Asked at a start from nothing, too: what is saved
    later, the next start of the same program could only refuse.

    Who saves himself may load himself before he has run, and is asked only when there is something to load.
    """
    for path, module in modules_of(state):
        bare = unwrap(module)
        saving = {name for name, owner in bare.named_modules(remove_duplicate=False) if saves_itself(owner)}
        loaded = names_loaded(bare)
        for name, (slots, attribute) in places_of(bare).items():
            if nn.parameter.is_lazy(slots[attribute]) and name in loaded and saving.isdisjoint(owners_of(name)):
                raise _lazy(f"{path}.{name}")


def _lazy(path: str) -> StructureError:
    return StructureError(
        f"{path} belongs to a lazy module and has no values yet; run the module once before restore()", path=path
    )


def refuse_other_names(path: str, saved: Collection[str], live: Collection[str]) -> None:
    """The tensors of a module must have the same names."""
    if difference := set(saved) ^ set(live):
        name = min(difference)
        where = "saved but not in the live module" if name in saved else "in the live module but was not saved"
        raise StructureError(f"{path}.{name} is {where} ({len(difference)} such names)", path=f"{path}.{name}")


def refuse_other_tensor(path: str, saved: SavedTensor, live: torch.Tensor) -> None:
    """A live tensor that is written over must have bytes of its own, and the dtype and shape of the saved one."""
    if nn.parameter.is_lazy(live):
        raise _lazy(path)
    if is_wrapper(live):
        raise StructureError(
            f"{path} was saved from a tensor with bytes of its own and is a {type(live).__name__} now, whose bytes "
            "only its class knows; convert it after restore()",
            path=path,
        )
    if not has_its_bytes(live):
        raise StructureError(
            f"{path} has a storage of {live.untyped_storage().nbytes()} bytes: it was freed or cut by resize_(); give it "
            "its bytes back before restore()",
            path=path,
        )
    if saved.dtype != live.dtype or saved.shape != live.shape:
        raise StructureError(
            f"{path} was saved as {saved.dtype} {tuple(saved.shape)} and is {live.dtype} {tuple(live.shape)} now; "
            "nothing is cast or reshaped silently",
            path=path,
        )


def refuse_other_groups(path: str, saved: list[list[str]], live: list[list[str]]) -> None:
    """The groups of an optimizer must have the same parameters, in the same order."""
    if saved == live:
        return
    if len(saved) != len(live):
        raise StructureError(f"{path} was saved with {len(saved)} parameter groups and has {len(live)} now", path=path)
    for i, (a, b) in enumerate(zip(saved, live, strict=True)):
        if difference := set(a) ^ set(b):
            raise StructureError(
                f"{path}: group {i} differs in {min(difference)} ({len(difference)} such parameters)", path=path
            )
    raise StructureError(f"{path}: the parameters of a group come in another order than they were saved in", path=path)


def refuse_other_way(path: str, live: torch.optim.Optimizer, *, was_plain: bool) -> None:
    """An optimizer that was saved by its own methods loads by them, and one of torch as one of torch.

    Args:
        was_plain: it was saved as torch's optimizers are.
    """
    if is_plain(live) == was_plain:
        return
    kind = type(live).__qualname__
    if was_plain:
        raise StructureError(
            f"{path} was saved as an optimizer of torch is, and is a {kind} with a state_dict() of its own or with hooks "
            "on saving and loading now; make the optimizer as it was, and register such hooks after restore()",
            path=path,
        )
    raise StructureError(
        f"{path} was saved by a state_dict() of its own or with hooks on saving and loading, and is a {kind} without "
        "any now; make the optimizer of that class, and register its hooks, before restore()",
        path=path,
    )
