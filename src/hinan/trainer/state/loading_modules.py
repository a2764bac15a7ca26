"""Which modules save or load themselves otherwise than torch.nn does: by a method of their own, or a hook.

Such a module may name, convert or derive anything as it is saved and loaded; only its own `load_state_dict` knows what.
What is not known here is taken for the user's: that costs copies, and never a value.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from torch import nn

_SAVING = ("state_dict", "_save_to_state_dict")
_LOADING = ("_load_from_state_dict",)
_SAVING_HOOKS = ("_state_dict_hooks", "_state_dict_pre_hooks")
_LOADING_HOOKS = ("_load_state_dict_pre_hooks", "_load_state_dict_post_hooks")

_TORCHS = frozenset(
    {
        *(("torch.nn.modules.module", f"Module.{name}") for name in (*_SAVING, *_LOADING, "load_state_dict")),
        # They bring states of older versions up to date, and leave one of their own as it is.
        ("torch.nn.modules.batchnorm", "_NormBase._load_from_state_dict"),
        ("torch.nn.modules.instancenorm", "_InstanceNorm._load_from_state_dict"),
        ("torch.nn.utils.parametrizations", "weight_norm.<locals>._weight_norm_compat_hook"),
        ("torch.nn.utils.spectral_norm", "SpectralNormStateDictHook"),
        ("torch.nn.utils.spectral_norm", "SpectralNormLoadStateDictPreHook"),
        # For parameters without values, which are refused anyway.
        ("torch.nn.modules.lazy", "LazyModuleMixin._save_to_state_dict"),
        ("torch.nn.modules.lazy", "LazyModuleMixin._lazy_load_hook"),
    }
)
"""Methods and hooks, by module and name, under which a saved tensor is the module's own, and loading it is a copy."""


def saves_itself(module: nn.Module) -> bool:
    """Whether this module's part of a `state_dict` is of its own making."""
    return _has_own(module, _SAVING, _SAVING_HOOKS)


def loads_itself(module: nn.Module, *, is_root: bool) -> bool:
    """Whether loading this module may do more than copy into its parameters and buffers.

    Args:
        is_root: its own `load_state_dict` is called; torch does not call that of a child.
    """
    return _has_own(module, (*_LOADING, "load_state_dict") if is_root else _LOADING, _LOADING_HOOKS)


def has_extra_state(module: nn.Module) -> bool:
    """Whether a module gives or takes values that are no parameter or buffer."""
    kind = type(module)
    return (kind.get_extra_state, kind.set_extra_state) != (nn.Module.get_extra_state, nn.Module.set_extra_state)


def _has_own(module: nn.Module, methods: Iterable[str], hooks: Iterable[str]) -> bool:
    # A method may also be put into the object: libraries that wrap a model do that.
    found = (vars(module).get(name, getattr(type(module), name, None)) for name in methods)
    hooked = (hook for name in hooks for hook in getattr(module, name, {}).values())
    return not all(map(_is_torchs, found)) or not all(map(_is_torchs, hooked))


def _is_torchs(called: Callable[..., Any] | None) -> bool:
    called = getattr(called, "hook", called)  # torch wraps some hooks, to give them their module
    function = getattr(called, "__func__", called)
    named: Any = function if hasattr(function, "__qualname__") else type(function)
    return (named.__module__, named.__qualname__) in _TORCHS
