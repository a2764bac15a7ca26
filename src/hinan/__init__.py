"""Evacuate the state of a training job from GPU memory to host RAM, and bring every rank back to one proven step.

Importing this package configures nothing, opens nothing and asks no device: the names below are loaded when first used,
so that programs without torch (the node agent, most verbs of the command) never pay for it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hinan.core.errors import HinanError as HinanError
    from hinan.core.retention import Keep as Keep
    from hinan.trainer.evacuating.handle import Handle as Handle
    from hinan.trainer.evacuator import Evacuator as Evacuator
    from hinan.trainer.state.codecs import register_codec as register_codec

__version__ = "0.1.0"
__all__ = ["Evacuator", "Handle", "HinanError", "Keep", "register_codec"]

_HOME = {
    "Evacuator": "hinan.trainer.evacuator",
    "Handle": "hinan.trainer.evacuating.handle",
    "HinanError": "hinan.core.errors",
    "Keep": "hinan.core.retention",
    "register_codec": "hinan.trainer.state.codecs",
}


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'hinan' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
