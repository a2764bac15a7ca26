"""python -m bench.device: what evacuating does on an accelerator, as one table. For one machine with a GPU.

    order       a slow kernel is still running when the evacuation is asked for: the image must hold its result
    torn        the optimizer overwrites the state the moment `evac.step()` returns: the image must hold one step, whole
    can_tear    the same without hinan and without a gate: copies that do tear, or else the row above proves nothing
    d2h         bytes a second until held, against the fastest copy into pinned memory
    host        time the host is blocked: evac.step(), and the next optimizer.step() above its usual time
    bubble      time the device has nothing of training to do: between two marks around evac.step(), above the usual
    pin         registering a mapped tmpfs file of the state's size, in chunks of 1 GiB
    reattach    a new attempt on the RAM copy: construction, restore() and the first evacuation until it is held

The state is one parameter that the optimizer moves by exactly 1 at each step, so each byte of an image tells its step.
"""

from __future__ import annotations

import argparse
import json
import mmap
import sys
import tempfile
import time
from collections.abc import Callable
from ctypes import addressof, c_char
from pathlib import Path
from statistics import median
from typing import Any

NO_DEVICE = "bench.device: torch sees no accelerator on this machine, so there is nothing to measure"
TMPFS = Path("/dev/shm")
PARTS = 64
PIN_CHUNK_BYTES = 1 << 30
FLOAT_BYTES = 4


def main() -> int:
    """0 if every image is right, 1 if one is torn or stale, 2 without a device."""
    parser = argparse.ArgumentParser(prog="python -m bench.device", description="What evacuating does on an accelerator.")
    parser.add_argument("--state-bytes", type=int, default=4 << 30)
    parser.add_argument("--evacuations", type=int, default=20)
    parser.add_argument("--dir", type=Path, default=Path(tempfile.gettempdir()))
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    import torch

    if not torch.accelerator.is_available():
        print(NO_DEVICE, file=sys.stderr)
        return 2
    with tempfile.TemporaryDirectory(dir=options.dir) as target, tempfile.TemporaryDirectory(dir=TMPFS) as ram:
        rows = Device(options.state_bytes, options.evacuations, Path(target), Path(ram)).rows()
    if options.json:
        print(json.dumps(rows, indent=2))
    else:
        for row in rows:
            print(f"{row['figure']:10} {row['value']:12.4g} {row['unit']:12} {row['note']}")
    return int(any(row["value"] for row in rows if row["figure"] in ("order", "torn")))


class Device:
    """One state on the current accelerator, and what is measured with it."""

    def __init__(self, state_bytes: int, evacuations: int, target: Path, ram: Path) -> None:
        import torch

        self.torch, self.evacuations, self.target, self.ram = torch, evacuations, target, ram
        self.device: Any = torch.accelerator.current_accelerator()
        part = state_bytes // FLOAT_BYTES // PARTS
        self.parameters = [torch.nn.Parameter(torch.zeros(part, device=self.device)) for _ in range(PARTS)]
        for parameter in self.parameters:
            parameter.grad = torch.full_like(parameter, -1.0)
        self.optimizer = torch.optim.SGD(self.parameters, lr=1.0)
        self.state = {"model": torch.nn.ParameterList(self.parameters), "optim": self.optimizer}
        self.square = torch.randn(8192, 8192, device=self.device) / 8192
        self.state_bytes = part * PARTS * FLOAT_BYTES

    def rows(self) -> list[dict[str, Any]]:
        import hinan

        evac = hinan.Evacuator(self.target / "run", self.state, every=2, commit_every=2, ram=self.ram)
        evac.restore()
        loop = self.loop(evac)
        peak = self.pinned_peak()
        held_s = median(self.held(evac) for _ in range(self.evacuations))
        host_s = median(loop["host_due_s"]) - median(loop["host_s"])
        bubble_s = median(loop["bubble_due_s"]) - median(loop["bubble_s"])
        torn = self.can_tear()
        pin_s = self.pin()
        evac.close(keep_ram=True)
        return [
            row("order", loop["stale"], "images", f"of {self.evacuations} that hold an older step"),
            row("torn", loop["torn"], "images", f"of {self.evacuations} that hold two steps"),
            row("can_tear", torn, "copies", "of 20 without a gate that tear (0: this test cannot fail here)"),
            row(
                "d2h",
                self.state_bytes / held_s / 1e9,
                "GB/s",
                f"{self.state_bytes / held_s / peak:.2f} of {peak / 1e9:.1f}",
            ),
            row("host", host_s * 1e3, "ms", "blocked per evacuation"),
            row("bubble", bubble_s * 1e3, "ms", "of the device per evacuation"),
            row("pin", pin_s, "s", f"for {self.state_bytes / 2**30:.1f} GiB"),
            row("reattach", self.reattach(), "s", "construction, restore, first evacuation held"),
        ]

    def loop(self, evac: Any) -> dict[str, Any]:
        """Steps with a slow kernel before the update and nothing between evac.step() and the next optimizer.step()."""
        found: dict[str, Any] = {name: [] for name in ("host_s", "host_due_s", "bubble_s", "bubble_due_s")}
        found |= {"stale": 0, "torn": 0}
        for _ in range(4):  # warm up: the slots are pinned, the overlap is earned
            self.slow()
            self.optimizer.step()
            evac.step()
        for _ in range(self.evacuations):
            for due in ("", "_due"):
                self.slow()
                self.optimizer.step()
                before = self.mark()
                began = time.perf_counter()
                step = evac.step()
                self.square.mul_(1.0)  # training's next kernel
                after = self.mark()
                self.optimizer.step()
                found[f"host{due}_s"].append(time.perf_counter() - began)
                if due:
                    evac.last.wait("held", 120.0)
                self.torch.accelerator.synchronize()
                found[f"bubble{due}_s"].append(before.elapsed_time(after) / 1e3)
                for parameter in self.parameters:
                    parameter.data.sub_(1.0)  # the second step is taken back: values stay step numbers
                self.torch.accelerator.synchronize()
            evac.last.wait("committed", 600.0)
            low, high = self.image(step)
            found["stale"] += high < step
            found["torn"] += low != high
        return found

    def held(self, evac: Any) -> float:
        """Seconds from the request until it is held, with nothing else to do for the device."""
        self.optimizer.step()
        evac.step()
        self.optimizer.step()
        self.torch.accelerator.synchronize()
        began = time.perf_counter()
        evac.step()
        evac.last.wait("held", 120.0)
        seconds = time.perf_counter() - began
        evac.last.wait("committed", 600.0)
        return seconds

    def image(self, step: int) -> tuple[float, float]:
        """Smallest and largest value of a committed image; both are its step number if it is right."""
        from safetensors import safe_open

        (path,) = self.target.glob(f"run/steps/{step:010d}-*/rank-00000.safetensors")
        with safe_open(path, "pt") as image:
            ends = [self.torch.aminmax(image.get_tensor(name)) for name in image.keys() if name.startswith("model")]  # noqa: SIM118
        return min(float(e.min) for e in ends), max(float(e.max) for e in ends)

    def can_tear(self) -> int:
        """Copies on a side stream that are overwritten at once, without any gate; how many of 20 hold two values."""
        torch, tensor = self.torch, self.parameters[0].data
        pinned = torch.empty(tensor.shape, pin_memory=True)
        side, torn = torch.Stream(self.device), 0
        for value in range(20):
            tensor.fill_(value)
            side.wait_event(self.mark())
            with side:
                pinned.copy_(tensor, non_blocking=True)
            tensor.fill_(value + 1)
            torch.accelerator.synchronize()
            torn += bool(pinned.min() != pinned.max())
        return torn

    def pinned_peak(self) -> float:
        """Bytes a second of the fastest of some copies of 1 GiB into pinned memory."""
        source = self.torch.empty(1 << 30, dtype=self.torch.uint8, device=self.device)
        pinned = self.torch.empty(1 << 30, dtype=self.torch.uint8, pin_memory=True)

        def copy() -> None:
            pinned.copy_(source, non_blocking=True)
            self.torch.accelerator.synchronize()

        copy()
        return source.nbytes / min(timed(copy) for _ in range(5))

    def pin(self) -> float:
        """Register a mapped file of the arena's kind, in chunks; nan where the device cannot pin foreign memory."""
        if self.device.type != "cuda":
            return float("nan")
        runtime: Any = self.torch.cuda.cudart()  # type: ignore[no-untyped-call]
        with tempfile.TemporaryFile(dir=self.ram) as file:
            file.truncate(self.state_bytes)
            mapped = mmap.mmap(file.fileno(), self.state_bytes)
            address = addressof(c_char.from_buffer(mapped))
            starts = range(0, self.state_bytes, PIN_CHUNK_BYTES)
            began = time.perf_counter()
            for at in starts:
                status = int(runtime.cudaHostRegister(address + at, min(PIN_CHUNK_BYTES, self.state_bytes - at), 0))
                if status != 0:
                    raise RuntimeError(f"cudaHostRegister failed with {status} at byte {at}")
            seconds = time.perf_counter() - began
            for at in starts:
                runtime.cudaHostUnregister(address + at)
        return seconds

    def reattach(self) -> float:
        """A new attempt finds the RAM copy."""
        import hinan

        began = time.perf_counter()
        evac = hinan.Evacuator(self.target / "run", self.state, every=10**9, commit_every=10**9, ram=self.ram)
        evac.restore()
        self.optimizer.step()
        evac.step()
        evac.evacuate(wait="held")
        seconds = time.perf_counter() - began
        evac.close()
        return seconds

    def slow(self) -> None:
        """Tens of milliseconds of work on the training stream."""
        for _ in range(8):
            self.square @ self.square

    def mark(self) -> Any:
        event = self.torch.Event(self.device, enable_timing=True)
        event.record(self.torch.accelerator.current_stream())
        return event


def row(figure: str, value: float, unit: str, note: str) -> dict[str, Any]:
    return {"figure": figure, "value": value, "unit": unit, "note": note}


def timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


if __name__ == "__main__":
    sys.exit(main())
