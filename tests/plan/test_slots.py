"""Images in RAM at once: counted as a schedule played save by save holds them, whatever the drains of the tiers are."""

import random

import pytest
from drawn import RACKY

from hinan.plan.levels import Level
from hinan.plan.nearest import solve_settings
from hinan.plan.slots import own_slots, waits_s


def most_older_images(multiples: list[int], drains: list[int]) -> int:
    """Plays a schedule with steps of one second between saves: at each save the older steps that a drain still reads."""
    every = [1]
    for multiple in multiples:
        every.append(every[-1] * multiple)
    begun: dict[int, int] = {}
    most = 0
    for now in range(2 * every[-1] + 1):
        read = {step for level, step in begun.items() if step + drains[level] > now}
        most = max(most, len(read - {now}))
        begun |= {level: now for level, period in enumerate(every) if now % period == 0}
    return most


def test_no_moment_of_a_schedule_holds_more_than_is_counted() -> None:
    """Random nested schedules: never more images than slots; as many wherever slower drains last long enough to meet the
    faster ones."""
    rng = random.Random(1)
    exact = 0
    for _ in range(1000):
        multiples = [rng.choice([1, 2, 3, 5, 8]) for _ in range(rng.choice([1, 2, 3]))]
        every = [1]
        for multiple in multiples:
            every.append(every[-1] * multiple)
        drains = [rng.choice([0, 1]), *(rng.randint(0, period) for period in every[1:])]
        own = own_slots(every, drains)
        held = most_older_images(multiples, drains)
        assert held <= len(own), (every, drains)
        leads = [0, *own]
        meet = all(drains[k] > sum(every[lead] for lead in leads[:at]) for at, k in enumerate(own, start=1))
        exact += meet and len(own) > 1
        assert not meet or held == len(own), (every, drains)
    assert exact > 30


def test_saves_that_wait_for_a_shared_slot_need_no_other() -> None:
    """Intervals no shorter than `waits_s` asks for: whatever slots are given, they do."""
    rng = random.Random(2)
    for _ in range(1000):
        levels = rng.choice([2, 3, 4])
        drains = [0.0, *(10 ** rng.uniform(0, 3) for _ in range(levels - 1))]
        own = [k for k in range(1, levels) if rng.random() < 0.5]
        every: list[float] = []
        for wait in waits_s(drains, own):
            below = every[-1] if every else 1.0
            every.append(below * max(1, -(-max(wait, 1.0) // below)))
        assert len(own_slots(every, drains)) <= len(own), (every, drains, own)


@pytest.mark.parametrize("ram", ["1.1TB", "1.4TB", "2TB"])
def test_drains_of_two_tiers_that_read_two_steps_take_two_slots(ram: str) -> None:
    """The store's drain goes on when NVMe is saved again, and NVMe's when RAM is: four images, in 2 TB and not in 1.1."""
    words = f"preset=small-cloud keep=1 gpus=1024 step=5s failures={RACKY} mtti=3h tiers=ram,nvme,shared ram={ram}"
    _, design = solve_settings(dict(word.split("=") for word in words.split()))
    drains = [drain_s(level) for level in design.levels]
    assert design.ram.slots == 2 + len(own_slots(design.pattern.intervals_s(), drains))
    assert design.ram.slots == {"1.1TB": 3, "1.4TB": 4, "2TB": 4}[ram]
    assert design.ram.fits


def drain_s(level: Level) -> float:
    """The drain, by which a copy lags [s]."""
    return min((cause.lag_s for cause in level.causes), default=0.0)
