"""Questions drawn at random, over orders of magnitude, for what must hold for every question."""

import itertools
import random
from pathlib import Path

from hinan.plan.model.machines import MACHINES

RACKY = Path(__file__).with_name("racky.json")
"""A failure table in which whole racks and jobs fail as often as processes do."""
TIER_SETS = [
    ",".join((*pick, "shared")) for count in range(4) for pick in itertools.combinations(("ram", "peer", "nvme"), count)
]
"""All that `--tiers` can ask for beside the store."""


def drawn(rng: random.Random) -> dict[str, str]:
    """A job, a machine, and some demands and fixed intervals, over orders of magnitude."""

    def log(low: float, high: float) -> float:
        return float(10 ** rng.uniform(low, high))

    asked = {"gpus": str(int(log(0.9, 5))), "params": f"{log(9, 11.6):.4g}", "preset": rng.choice(list(MACHINES))}
    demands = (
        (0.6, "step", f"{log(-1, 1.5):.3g}s"),
        (0.5, "mtti", f"{log(2.3, 6):.4g}s"),
        (0.25, "stall", f"{log(-3, 1):.3g}s"),
        (0.25, "drain", f"{log(-1, 3):.3g}s"),
        (0.2, "restart", f"{log(0, 2.5):.3g}s"),
        (0.2, "max-redo", f"{log(1, 4):.3g}s"),
        (0.2, "max-stall", f"{log(-2, 1.5):.3g}%"),
        (0.2, "interval", f"{log(0, 3.5):.3g}s"),
        (0.15, "latency", f"{log(2, 5.5):.3g}s"),
        (0.2, "hidden", f"{rng.random():.3g}"),
    )
    return asked | {name: text for share, name, text in demands if rng.random() < share}
