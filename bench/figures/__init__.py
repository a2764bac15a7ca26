"""Each module measures some figures: `GOALS`, and `rows(settings)`, whose work is done in fresh interpreters."""

from __future__ import annotations

from types import ModuleType

from bench.figures import growth, idle, memory, persisted, restart, restoring, tiny, training

MODULES: tuple[ModuleType, ...] = (training, persisted, restoring, idle, memory, tiny, restart, growth)
