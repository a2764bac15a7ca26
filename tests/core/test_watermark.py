"""Held everywhere, W, and which slots may be written again."""

from __future__ import annotations

from core_values import at, history, slot
from hypothesis import given
from hypothesis import strategies as st

from hinan.core.ids import StepId
from hinan.core.lineage import lineage
from hinan.core.slot import Phase, Slot
from hinan.core.watermark import all_past, held_everywhere, must_stay, passed_by, slot_to_lease, watermark

LINE = lineage(history(None))


def two(step: int, **kwargs: object) -> list[Slot]:
    """The images of both ranks of a world of two."""
    return [slot(f"{r}-{step}", r, at(1, step), world=2, **kwargs) for r in (0, 1)]  # type: ignore[arg-type]


def test_a_step_counts_only_with_every_rank() -> None:
    """A-AGREE-1: what one rank alone holds is not held everywhere."""
    slots = [*two(10), slot("0-20", 0, at(1, 20), world=2)]
    assert set(held_everywhere(slots)) == {at(1, 10)}
    assert watermark(slots, LINE) == at(1, 10)


def test_completeness_is_judged_by_the_saved_world() -> None:
    """Images of a world of two are complete with two, whatever size asks (G1)."""
    assert set(held_everywhere([slot("a", 0, at(1, 5), world=1)])) == {at(1, 5)}
    assert held_everywhere([slot("a", 0, at(1, 5), world=2)]) == {}


def test_filling_never_counts_and_unproven_counts_only_as_held() -> None:
    """Sealed is held; only proven may be drained or served (B1)."""
    sealed = two(10, phase=Phase.SEALED)
    assert held_everywhere(sealed).keys() == {at(1, 10)}
    assert held_everywhere(sealed, proven_only=True) == {}
    assert held_everywhere(two(10, phase=Phase.FILLING)) == {}


def test_orphans_and_lost_steps_are_never_w() -> None:
    """A rolled-back future is not W (A3), nor is a step that some rank lost (C2)."""
    slots = [*two(10), *two(20)]
    turned = lineage(history(None, at(1, 10)))
    assert watermark(slots, turned) == at(1, 10)
    assert watermark(slots, LINE, lost={at(1, 20)}) == at(1, 10)
    assert watermark([], LINE) is None


def stay(s: Slot, w: int | None, **kwargs: object) -> str | None:
    settings: dict[str, object] = {"line": LINE, "resumed_from": None, "in_use": (), "lost": (), **kwargs}
    return must_stay(s, w=at(1, w) if w is not None else None, **settings)  # type: ignore[arg-type]


def test_what_stays_and_why() -> None:
    """Nobody recycles W, what may become W, what is drained, what is read (C1)."""
    s = slot("a", 0, at(1, 20), world=2)
    assert stay(s, 20) == "it is the watermark"
    assert stay(s, 10) == "it may still become the watermark"
    assert stay(s, None) == "it may still become the watermark"
    assert stay(s, 30) is None
    assert stay(s, 30, in_use={at(1, 20)}) == "it is being drained"
    assert stay(slot("a", 0, at(1, 20), readers=1), 30) == "it is being read"


def test_lost_and_orphaned_steps_are_released_by_all() -> None:
    """C2: all release S once one rank lost it; an orphan holds no slot; a drain or a reader still does."""
    s = slot("a", 0, at(1, 20), world=2)
    assert stay(s, 10, lost={at(1, 20)}) is None
    assert stay(s, 10, line=lineage(history(None, at(1, 10)))) is None
    assert stay(s, 10, lost={at(1, 20)}, in_use={at(1, 20)}) == "it is being drained"


def test_the_resume_source_stays_until_w_has_passed_it() -> None:
    """C1: right after a restart the source is all there is."""
    line = lineage(history(None, at(1, 40)))
    source = slot("a", 0, at(1, 40), world=2, alive=False)
    assert must_stay(source, w=at(1, 40), line=line, resumed_from=at(1, 40), in_use=()) is not None
    assert must_stay(source, w=None, line=line, resumed_from=at(1, 40), in_use=()) is not None
    assert must_stay(source, w=at(2, 50), line=line, resumed_from=at(1, 40), in_use=()) is None


def test_a_writer_gets_a_free_slot_first_then_its_oldest_that_need_not_stay() -> None:
    """The oldest is recycled first, and never one that stays."""
    free, old, newer = slot("c", 0), slot("b", 0, at(1, 10)), slot("a", 0, at(1, 20))
    assert slot_to_lease([newer, old, free], 100, 0, 10, ()) is free
    assert slot_to_lease([newer, old], 100, 0, 10, ()) is old
    assert slot_to_lease([newer, old], 100, 0, 10, {"b"}) is newer
    assert slot_to_lease([newer, old], 100, 0, 10, {"a", "b"}) is None


def test_nobody_writes_anothers_slot() -> None:
    """B2: one inode, one writing process; other processes, ranks, lengths, exited writers and slots in filling are out."""
    for wrong in (
        slot("a", 0, pid=7),
        slot("a", 1),
        slot("a", 0, alive=False),
        slot("a", 0, at(1, 5), alive=False),
        slot("a", 0, phase=Phase.FILLING),
    ):
        assert slot_to_lease([wrong], 100, 0, 10, ()) is None
    assert slot_to_lease([slot("a", 0)], 100, 0, 11, ()) is None


def of(rank: int, *steps: int, attempt: int = 1) -> list[Slot]:
    """What one rank of a world of two holds."""
    return [slot(f"{rank}-{step}", rank, at(attempt, step), world=2, phase=Phase.SEALED) for step in steps]


def passes(slots: list[Slot], above: StepId | None = None) -> dict[int, int]:
    return {step_id.step: p.rank for step_id, p in passed_by(slots, above=above).items()}


def test_a_rank_with_a_newer_step_has_gone_past_an_older_one() -> None:
    """C2: seals come in the order of steps; the newest step of all is passed by nobody."""
    slots = [*of(0, 12, 16, 20), *of(1, 12, 18, 21)]
    assert passes(slots) == {16: 1, 18: 0, 20: 1}
    assert passes(slots, above=at(1, 18)) == {20: 1}
    assert passed_by(slots)[at(1, 16)].steps == {0: [12, 16, 20], 1: [12, 18, 21]}


def test_who_holds_nothing_newer_here_may_still_come() -> None:
    """It is only late, its node is out of reach, or what it holds is another attempt's."""
    assert passes([*of(0, 16, 20), *of(1, 12)]) == {12: 0}
    assert passes(of(0, 16, 20)) == {}
    assert passes([*of(0, 16), *of(1, 18, attempt=2)]) == {}
    assert passes([*of(0, 16), slot("a", 1, at(1, 20), world=2, phase=Phase.FILLING)]) == {}


def test_what_every_rank_has_gone_past() -> None:
    """In the newest attempt, by the size of its world."""
    assert all_past([*of(0, 12, 20), *of(1, 18)]) == at(1, 18)
    assert all_past(of(0, 12, 20)) is None
    assert all_past([*of(0, 30), *of(1, 30), *of(0, 5, attempt=2)]) is None
    assert all_past([]) is None


@given(
    st.lists(st.tuples(st.integers(0, 1), st.integers(1, 9)), max_size=12),
    st.lists(st.integers(1, 9), max_size=4),
    st.integers(0, 12),
)
def test_what_was_passed_never_becomes_whole(sealed: list[tuple[int, int]], later: list[int], then: int) -> None:
    """However the ranks go on, each in the order of steps, no step that was said to be passed is held everywhere."""
    newest, slots = {0: 0, 1: 0}, []
    for i, (rank, steps) in enumerate([*sealed, *((n % 2, k) for n, k in enumerate(later))]):
        newest[rank] += steps
        slots.append(slot(str(i), rank, at(1, newest[rank]), world=2))
    said = passed_by(slots[: min(then, len(sealed))])
    assert not set(said) & set(held_everywhere(slots))


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(1, 4)), max_size=40))
def test_two_slots_are_enough_however_the_ranks_differ(moves: list[tuple[int, int]]) -> None:
    """C5: once what was passed is lost, the rank that is furthest behind has a slot besides that of W."""
    newest: dict[int, int] = dict.fromkeys(range(3), 0)
    slots: list[Slot] = []
    lost: set[StepId] = set()
    for i, (rank, steps) in enumerate(moves):
        w = watermark(slots, LINE, lost)
        stays = {s.name: "" for s in slots if must_stay(s, w=w, line=LINE, resumed_from=None, in_use=(), lost=lost)}
        kept = [s for s in slots if s.rank == rank and s.name in stays]
        if len(kept) < 2:
            newest[rank] += steps
            slots = [s for s in slots if s.rank != rank or s.name in stays] + [
                slot(str(i), rank, at(1, newest[rank]), world=3)
            ]
        else:
            assert newest[rank] > min(newest.values())
        lost |= set(passed_by(slots, above=watermark(slots, LINE, lost)))


@st.composite
def arenas(draw: st.DrawFn) -> tuple[list[Slot], set[int]]:
    """Three slots for each of two ranks of one attempt, each rank having missed some steps."""
    slots, lost = [], set()
    for rank in (0, 1):
        for n, step in enumerate(draw(st.lists(st.integers(1, 6), unique=True, max_size=3))):
            phase = draw(st.sampled_from([Phase.SEALED, Phase.PROVEN]))
            slots.append(slot(f"{rank}-{n}", rank, at(1, step * 10), phase=phase, world=2))
    lost = set(draw(st.lists(st.integers(1, 6), max_size=2)))
    return slots, {n * 10 for n in lost}


@given(arenas())
def test_recycling_what_may_go_never_moves_w(arena: tuple[list[Slot], set[int]]) -> None:
    """W is the same after everything that may be recycled has been."""
    slots, lost_steps = arena
    lost = {at(1, s) for s in lost_steps}
    w = watermark(slots, LINE, lost)
    kept = [s for s in slots if must_stay(s, w=w, line=LINE, resumed_from=None, in_use=(), lost=lost)]
    assert watermark(kept, LINE, lost) == w
    assert all(s in kept for s in slots if s.holds and s.holds not in lost and (w is None or s.holds >= w))
