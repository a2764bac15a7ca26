"""Looking at live tensors leaves no mark on them (D8): their memory can be freed and regrown afterwards, as before."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn

import hinan.trainer
from hinan.trainer.evacuating.copying import Copying, SlotMap, enqueue, lanes
from hinan.trainer.evacuating.flight import Flight
from hinan.trainer.evacuating.gate import Gate
from hinan.trainer.evacuating.watching import Watched, bits
from hinan.trainer.ports.hostport import CpuPort, copy_bits
from hinan.trainer.ports.rawmemory import bytes_of, memory
from hinan.trainer.state.capture import Capture
from hinan.trainer.state.layout import make_plan
from tests.trainer.helpers import bits as bits_in_order

LENDS = re.compile(r"\.numpy\(|dlpack|\.__array__|np\.as\w*array\(")
MAY = {
    "restoring/saved.py": "an image",
    "state/rng.py": "a generator's state, made for us",
    "state/torch_values.py": "a generator's state, made for us",
    "attempt/ranks.py": "what a collective brought",
}
"""Where tensors are lent out that are nobody's state."""


def kinds() -> dict[str, torch.Tensor]:
    base = torch.randn(6, 8)
    square = torch.randn(4, 6, dtype=torch.complex128)
    return {
        "contiguous": torch.randn(300),
        "parameter": nn.Parameter(torch.randn(5, 3)),
        "zero_dim": torch.tensor(3.5),
        "empty": torch.zeros(0, 3),
        "transposed": torch.randn(7, 5).t(),
        "strided": torch.randn(9, 8)[1:, ::3],
        "expanded": torch.randn(5, 1).expand(5, 4),
        "permuted": torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last),
        "half": torch.randn(4, 6).to(torch.bfloat16)[:, 1::2],
        "flags": (torch.randn(4, 6) > 0)[:, ::2],
        "complex": square[:, ::2],
        "lazy": torch.randn(4, dtype=torch.complex64).conj(),
        "negative": torch.randn(4, dtype=torch.complex64).conj().imag,
        "left": base[:, :5],
        "right": base[:, 3:],
    }


def evacuated_with_overlap(tensors: dict[str, torch.Tensor]) -> None:
    found = Capture(tensors).take()
    plan = make_plan(found.tensors)
    port, copying = CpuPort(), Copying(SlotMap("slot", memoryview(bytearray(plan.image_bytes))))
    enqueue(copying, plan, lanes(plan, lambda device: port, tensors), found.tensors, lambda device: port)
    flight = Flight(copying, frozenset({"o"}), Watched(tensors.items()), lambda flight: None, check_bits=True)
    flight.hold(["o"])
    flight.land()
    assert (flight.torn, flight.failure) == (None, None)


def copied_before_training_goes_on(tensors: dict[str, torch.Tensor]) -> None:
    plan = make_plan(Capture(tensors).take().tensors)
    port, copying = CpuPort(), Copying(SlotMap("slot", memoryview(bytearray(plan.image_bytes))))
    enqueue(copying, plan, lanes(plan, lambda device: port), tensors, lambda device: port)
    copying.join()


def watched(tensors: dict[str, torch.Tensor]) -> None:
    assert Watched(tensors.items(), exactly=True).moved() is None


def written_over(tensors: dict[str, torch.Tensor]) -> None:
    for tensor in tensors.values():
        with torch.no_grad():
            copy_bits(tensor.detach(), tensor.detach().clone())


def tried_out(tensors: dict[str, torch.Tensor]) -> None:
    """A gate whose tensors are watched bit for bit once."""
    trained = [t.detach() for t in tensors.values() if t.is_floating_point() and not t.is_neg() and 0 not in t.stride()]
    parameters = [nn.Parameter(t) for t in trained]
    optimizer = torch.optim.SGD(parameters, lr=0.1, momentum=0.9)
    state = {"p": parameters, "o": optimizer, **tensors}
    gate, capture = Gate(state), Capture(state)
    for _ in range(3):
        for p in parameters:
            p.grad = torch.ones_like(p)
        optimizer.step()
        gate.at_boundary()
        gate.learn(capture.take())
        gate.probe()
    assert gate.earned()
    gate.close()


@pytest.mark.parametrize("look", [evacuated_with_overlap, copied_before_training_goes_on, watched, written_over, tried_out])
def test_every_storage_can_be_resized_after_a_look(look: Callable[[dict[str, torch.Tensor]], None]) -> None:
    tensors = kinds()
    look(tensors)
    for name, tensor in tensors.items():
        storage = tensor.untyped_storage()
        assert storage.resizable(), name
        size_bytes = storage.nbytes()
        storage.resize_(0)
        storage.resize_(size_bytes)


def test_bytes_are_those_of_the_tensor() -> None:
    for name, tensor in kinds().items():
        whole = torch.empty(tensor.shape, dtype=tensor.dtype)
        copy_bits(whole, tensor)
        assert bytes(bytes_of(whole)) == bits_in_order(tensor), name
        assert bits(whole) == bits(tensor), name
    assert bytes(memory(0, 0)) == b""


def test_nothing_lends_out_a_live_tensor() -> None:
    """Where it happens at all, it is somebody else's memory; a new place says here whose."""
    root = Path(hinan.trainer.__file__).parent
    lending = {
        str(path.relative_to(root))
        for path in root.rglob("*.py")
        if LENDS.search(ast.unparse(_without_docstrings(ast.parse(path.read_text()))))
    }
    assert lending == set(MAY)


def _without_docstrings(tree: ast.Module) -> ast.Module:
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            node.value.value = ""
    return tree
