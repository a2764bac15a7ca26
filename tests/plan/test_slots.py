"""Images in RAM at once: counted as a schedule played save by save with the agent's rules takes them."""

import random
from collections.abc import Callable

import pytest
from drawn import RACKY

from hinan.core.ids import StepId
from hinan.core.lineage import History, Resume, lineage
from hinan.core.slot import Phase, Slot
from hinan.core.watermark import must_stay, slot_to_lease, watermark
from hinan.plan.decision.answer import answer
from hinan.plan.decision.nearest import solve_settings
from hinan.plan.decision.slots import FEWEST, FREE_SAVES_KEPT, FREE_SAVES_PASSING, Slots, older_steps
from hinan.plan.show.explain import explain


def slots_taken(every: list[int], drains: list[int], copy: int) -> int:
    """Plays a schedule save by save, with the agent's own rules for the slots: how many had to be made."""
    line = lineage(History(frozenset({1}), {1: Resume(1, None)}))
    slots: list[Slot] = []
    for now in range(0, 3 * every[-1] + 1, every[0]):
        held = [slot.holds.step for slot in slots if slot.holds]
        in_use = {
            StepId(1, step)
            for step in held
            if any((step - 1) % period == 0 and step - 1 + copy + drain > now
                   for period, drain in zip(every, drains, strict=True))
        }  # fmt: skip
        w = watermark(slots, line)
        stays = {s.name for s in slots if must_stay(s, w=w, line=line, resumed_from=None, in_use=in_use)}
        found = slot_to_lease(slots, 1, 0, 1, stays)
        if found is not None:
            slots.remove(found)
        name = found.name if found else str(len(slots))
        slots.append(Slot(name, 0, 1, True, 1, Phase.SEALED, StepId(1, now + 1), 1, 1))
    return len(slots)


def images_passing(every: list[int], drains: list[int], copy: int) -> int:
    """The same without a RAM tier: an image is there while it is filled and drained."""
    most = 0
    for now in range(0, 3 * every[-1] + 1, every[0]):
        read = {
            begun
            for period, drain in zip(every, drains, strict=True)
            for begun in range(0, now, period)
            if begun + copy + drain > now
        }
        most = max(most, 1 + len(read))
    return max(FEWEST, most)


def random_schedule(rng: random.Random, *, kept: bool) -> tuple[list[int], list[int], int]:
    """Intervals, drains and copy: nested, no drain longer than its own interval, no copy longer than the fastest."""
    every = [rng.choice([1, 4, 10])]
    for _ in range(rng.choice([1, 2, 3])):
        every.append(every[-1] * rng.choice([1, 2, 3, 5, 8]))
    drains = [0 if kept else rng.randint(0, every[0]), *(rng.randint(0, period) for period in every[1:])]
    return every, drains, rng.randint(0, every[0])


@pytest.mark.parametrize(
    ("kept", "free_saves", "played"),
    [(True, FREE_SAVES_KEPT, slots_taken), (False, FREE_SAVES_PASSING, images_passing)],
)
def test_the_count_is_what_a_schedule_takes(
    kept: bool, free_saves: int, played: Callable[[list[int], list[int], int], int]
) -> None:
    """Random nested schedules: as many slots as the agent would have to make, no fewer and no more."""
    rng = random.Random(1)
    seen = set()
    for _ in range(600):
        every, drains, copy = random_schedule(rng, kept=kept)
        taken = played(every, drains, copy)
        assert max(FEWEST, free_saves + older_steps(every, drains, copy, free_saves)) == taken, (every, drains, copy)
        seen.add(taken)
    assert seen >= {2, 3, 4}


@pytest.mark.parametrize("free_saves", [FREE_SAVES_KEPT, FREE_SAVES_PASSING])
def test_intervals_no_closer_than_the_least_need_no_other_slots(free_saves: int) -> None:
    """Whatever slots are given, they do."""
    rng = random.Random(2)
    for _ in range(1000):
        levels = rng.choice([2, 3, 4])
        kept = free_saves == FREE_SAVES_KEPT
        drains = [0.0 if kept else 10 ** rng.uniform(0, 2), *(10 ** rng.uniform(0, 3) for _ in range(levels - 1))]
        own = tuple(k for k in range(kept, levels) if rng.random() < 0.5)
        room = Slots(own, copy_s=rng.choice([0.0, 10 ** rng.uniform(0, 2)]), closest_s=1.0, free_saves=free_saves)
        every: list[float] = []
        for least in room.least_s(drains):
            below = every[-1] if every else rng.choice([1.0, 1.7]) * least
            every.append(below * max(1, -(-least // below)))
        assert older_steps(every, drains, room.copy_s, free_saves) <= len(own), (every, drains, room)


def test_two_slots_do_while_the_step_that_is_drained_is_the_newest() -> None:
    """Copy and drain that take less than two intervals: the next image fills the other slot meanwhile."""
    room = Slots((), copy_s=0.5, closest_s=1.0, free_saves=FREE_SAVES_KEPT)
    assert room.least_s([0.0, 238.1])[0] == pytest.approx(119.3)
    assert older_steps([132.0, 3828.0], [0.0, 238.1], 0.5, FREE_SAVES_KEPT) == 0
    assert older_steps([119.0, 3808.0], [0.0, 238.1], 0.5, FREE_SAVES_KEPT) == 1


@pytest.mark.parametrize(
    ("words", "first_s", "kept"),
    [("gpus=256 preset=gb200 step=12s interval=132s", 132, 0.9964),
     ("gpus=1024 keep=1 ram=1.4TB step=5s interval=10min tiers=ram,shared", 600, None),
     ("gpus=1024 keep=1 ram=1.4TB step=5s", 415, 0.9898),
     ("gpus=512 preset=gb200 step=12s nic=3GB/s", 240, None)],
)  # fmt: skip
def test_images_stay_in_two_slots_where_the_drain_takes_up_to_two_intervals(
    words: str, first_s: float, kept: float | None
) -> None:
    """RAM is a tier, in two slots, at intervals that a drain counted twice would forbid."""
    _, design = solve_settings(dict(word.split("=") for word in words.split()))
    assert (design.variant.tiers[0], design.ram.slots) == ("ram", 2)
    assert design.pattern.work_s == pytest.approx(first_s)
    assert kept is None or design.ettr > kept


@pytest.mark.parametrize("ram", ["1.1TB", "1.4TB", "2TB"])
def test_drains_of_two_tiers_that_read_two_steps_take_two_slots(ram: str) -> None:
    """The store's drain goes on when NVMe is saved again, and NVMe's when RAM is: four images, in 2 TB and not in 1.1."""
    words = f"preset=small-cloud keep=1 gpus=1024 step=5s failures={RACKY} mtti=3h tiers=ram,nvme,shared ram={ram}"
    _, design = solve_settings(dict(word.split("=") for word in words.split()))
    assert design.ram.slots == {"1.1TB": 3, "1.4TB": 4, "2TB": 4}[ram]
    assert design.ram.fits


@pytest.mark.parametrize(("ram", "limited_by"), [("1.4TB", "ram slots"), ("2TB", "pcie")])
def test_an_interval_that_slots_set_is_said_to_be(ram: str, limited_by: str) -> None:
    """In the column and the sentence of its tier; with a slot more neither is."""
    found = answer(*solve_settings({"gpus": "1024", "keep": "1", "ram": ram, "step": "5s"}))
    assert (found.tiers[0].tier, found.tiers[0].limited_by) == ("ram", limited_by)
    assert ("leaves its slot, and RAM holds no further one" in explain(found)) == (limited_by == "ram slots")


def test_slots_that_shorten_nothing_are_not_the_limit() -> None:
    """The interval is a step from what slots allow, and as long with ten times the RAM."""
    words = {"gpus": "1024", "keep": "0.7", "step": "2s", "mtti": "2h", "store-bandwidth": "30GB/s"}
    tight, wide = (answer(*solve_settings({**words, "ram": ram})) for ram in ("2394GB", "20TB"))
    assert [tier.interval_s for tier in tight.tiers] == [tier.interval_s for tier in wide.tiers]
    assert "ram slots" not in [tier.limited_by for tier in tight.tiers]
