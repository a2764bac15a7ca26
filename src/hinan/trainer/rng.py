"""Random number generators that belong to the rank: torch, its devices, NumPy's and Python's globals (rule D5)."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

import numpy as np
import torch


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


def _device_module() -> Any | None:
    """torch's module of the current accelerator, if it was used and has generators of its own."""
    if not torch.accelerator.is_available():
        return None
    module = torch.get_device_module(torch.accelerator.current_accelerator())
    return module if hasattr(module, "get_rng_state_all") and module.is_initialized() else None
