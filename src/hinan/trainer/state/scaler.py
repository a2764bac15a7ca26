"""GradScaler without its `.item()`: the scale and the growth tracker are kept as the tensors they are.

`GradScaler.state_dict()` waits for the device. Here capture takes the two tensors, which may not exist before the first
`scale()` (then the initial numbers count), and restore gives the plain numbers back through `load_state_dict`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch.amp import GradScaler


def is_plain_scaler(value: object) -> bool:
    """Whether a value is a GradScaler whose state is torch's own; a subclass that says otherwise is taken at its word."""
    return isinstance(value, GradScaler) and type(value).state_dict is GradScaler.state_dict


def scaler_values(scaler: GradScaler) -> dict[str, Any]:
    """What `state_dict()` returns, under the same names, with tensors where it reads numbers; {} for a disabled one."""
    if not scaler.is_enabled():
        return {}
    return {
        "scale": scaler._init_scale if scaler._scale is None else scaler._scale,
        "growth_factor": scaler.get_growth_factor(),
        "backoff_factor": scaler.get_backoff_factor(),
        "growth_interval": scaler.get_growth_interval(),
        "_growth_tracker": scaler._init_growth_tracker if scaler._growth_tracker is None else scaler._growth_tracker,
    }


def scaler_state(values: Mapping[str, Any]) -> dict[str, Any]:
    """The same as `state_dict()` would say it. A float32 scale is exact as a Python float."""
    return {key: value.item() if isinstance(value, torch.Tensor) else value for key, value in values.items()}
