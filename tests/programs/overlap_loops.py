"""Training loops of every kind, by name: what each does between two `evac.step()` (see `tests.programs.overlap`)."""

from __future__ import annotations

from tests.programs import loops_of_gradients, loops_of_optimizers, loops_of_writes
from tests.programs.loops_of_optimizers import Kind

KINDS: dict[str, Kind] = {
    kind.__name__: kind for kind in (*loops_of_optimizers.KINDS, *loops_of_writes.KINDS, *loops_of_gradients.KINDS)
}
