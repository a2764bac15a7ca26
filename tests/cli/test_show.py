"""What `hinan show` says of a tensor is what the program knows it as."""

from __future__ import annotations

import torch

from hinan.cli.show import _kept
from hinan.tiers.mapping import read_header
from tests.trainer.helpers import evacuate


def test_what_safetensors_cannot_say_is_shown_as_what_it_is() -> None:
    """It is in the file as bytes; its true dtype and shape are in its view."""
    two = torch.zeros(2, dtype=torch.complex128)
    state = {
        "c": two,
        "tied": two,
        "h": torch.zeros(2, 3, dtype=torch.complex32),
        "f": torch.zeros(3),
        "s": torch.zeros(()),
    }
    state["e"] = torch.zeros(3).to(torch.float8_e5m2fnuz)
    header = read_header(memoryview(evacuate(state)[0]), "image")[1]
    shown = {(t := _kept(header, entry, ""))["name"]: (t["dtype"], t["shape"], t["bytes"]) for entry in header.entries}
    assert shown == {
        "c": ("complex128", [2], 32), "h": ("complex32", [2, 3], 24), "e": ("float8_e5m2fnuz", [3], 3),
        "f": ("F32", [3], 12), "s": ("F32", [], 4),
    }  # fmt: skip
