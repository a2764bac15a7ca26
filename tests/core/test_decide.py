"""Which step to resume from, and why not from the others."""

from __future__ import annotations

from core_values import at, history
from hypothesis import given
from hypothesis import strategies as st

from hinan.core.decide import MIXED, Image, View, decide, may_be_late
from hinan.core.ids import StepId
from hinan.core.lineage import History

ONE = history(None)


def image(step_id: StepId, rank: int, *, world: int = 2, flaw: str | None = None, late: bool = False) -> Image:
    return Image(step_id, rank, world, f"{step_id}/{rank}", 10, flaw, late)


def ram(*images: Image, node: str = "a") -> View:
    return View("ram", node, "present" if images else "empty", images)


def target(*images: Image) -> View:
    return View("target", "", "present" if images else "empty", images)


def both(step: int, attempt: int = 1) -> tuple[Image, Image]:
    return image(at(attempt, step), 0), image(at(attempt, step), 1)


def answers(views: list[View], past: History = ONE, **kwargs: object) -> list[tuple[str, int]]:
    return [(c.tier, c.step_id.step) for c in decide(views, past, **kwargs).ranked]  # type: ignore[arg-type]


def test_nothing_found_is_no_decision() -> None:
    """Without images there is nothing to resume from and nothing refused."""
    assert decide([], ONE).chosen is None
    assert decide([View("ram", "a", "absent")], ONE).candidates == ()


def test_newest_first_and_ram_before_target() -> None:
    """The ranked list: newest step first, fastest source first."""
    assert answers([ram(*both(30), *both(20)), target(*both(20), *both(10))]) == [
        ("ram", 30),
        ("ram", 20),
        ("target", 20),
        ("target", 10),
    ]


def test_a_step_that_one_rank_lacks_is_refused_on_all() -> None:
    """A-AGREE-1: rank 0 alone at 20, both at 10: all take 10, and the reason names the rank."""
    decision = decide([ram(*both(10), image(at(1, 20), 0))], ONE)
    assert decision.chosen is not None and decision.chosen.step_id == at(1, 10)
    assert [c.reason for c in decision.candidates if not c.ok] == ["no image of rank 1 of 2"]


def test_different_steps_in_ram() -> None:
    """A-AGREE-2: r0 {30,20}, r1 {20}, r2 {30,20} in RAM and 10 on the target; with a dead agent, an unproven image."""

    def of(rank: int, *steps: int, flaw: str | None = None) -> View:
        return ram(*(image(at(1, s), rank, world=3, flaw=flaw if s == 30 else None) for s in steps), node=f"n{rank}")

    stored = target(*(image(at(1, 10), r, world=3) for r in range(3)))
    assert answers([of(0, 30, 20), of(1, 20), of(2, 30, 20), stored])[0] == ("ram", 20)
    assert answers([of(0, 30, 20), of(1), of(2, 30, 20), stored])[0] == ("target", 10)
    assert answers([of(0, 30, 20), of(1, 30, 20, flaw="not proven"), of(2, 30, 20), stored])[0] == ("ram", 20)
    dead = View("ram", "n1", "absent")
    assert answers([of(0, 30, 20), dead, of(2, 30, 20), stored]) == [("target", 10)]


def test_what_a_slow_store_may_still_show() -> None:
    """A-FORMAT-5: nothing usable, or a newer committed step that lacks a file, may be better when more is seen; an orphan,
    a step that failed before, an older one and what never was whole are not waited for."""
    lacking = (image(at(1, 30), 0), image(at(1, 30), 1, flaw="its manifest is missing"))
    half = image(at(1, 30), 0)
    failed = {(at(1, 30), "target")}

    def late(*views: View, past: History = ONE, **more: object) -> bool:
        return may_be_late(decide(views, past, **more), past, **more)  # type: ignore[arg-type]

    assert late(target())
    assert late(target(*lacking))
    assert late(target(*lacking, *both(20)))
    assert not late(target(*lacking, *both(20)), failures=failed)
    assert not late(target(*lacking, *both(20)), past=history(None, at(1, 20)))
    assert not late(target(*lacking), ram(*both(40)))
    assert not late(target(half, *both(20)))
    assert not late(target(*both(30)), ram(*both(20)))


def test_images_of_several_nodes_make_one_step() -> None:
    """Ranks may be anywhere: completeness is over all views of a tier (G1)."""
    first, second = both(20)
    assert answers([ram(first, node="a"), ram(second, node="b")]) == [("ram", 20)]


def test_tiers_are_mixed_only_where_none_is_whole() -> None:
    """A step split between RAM and target is read from both, each rank from the faster; never when one tier is whole."""
    first, second = both(20)
    decision = decide([ram(first), target(second)], ONE)
    assert decision.chosen is not None and decision.chosen.tier == MIXED
    assert decision.chosen.sources == {0: first, 1: second}
    assert MIXED not in {c.tier for c in decide([ram(first), target(*both(20))], ONE).candidates}


def test_a_flawed_image_is_replaced_by_a_good_one_of_the_other_tier() -> None:
    """A flaw on one tier costs nothing while another tier has that rank."""
    flawed = image(at(1, 20), 0, flaw="wrong length")
    decision = decide([ram(flawed, image(at(1, 20), 1)), target(image(at(1, 20), 0))], ONE)
    assert decision.chosen is not None and decision.chosen.tier == MIXED
    assert decision.chosen.sources[0].flaw is None


def test_flaws_are_named() -> None:
    """A-COMMIT-2: each broken form is skipped with its reason, and the older step is taken."""
    short = target(image(at(1, 20), 0, flaw="short by 1 byte"), image(at(1, 20), 1, flaw="no manifest"), *both(10))
    decision = decide([short], ONE)
    assert decision.chosen is not None and decision.chosen.step_id == at(1, 10)
    assert decision.candidates[0].reason == "rank 0: short by 1 byte (and 1 more)"


def test_what_failed_at_an_earlier_restart_is_not_tried_again() -> None:
    """A-TRUST-1: a bad source is quarantined; the same step from another tier is not."""
    views = [ram(*both(20)), target(*both(20), *both(10))]
    assert answers(views, failures={(at(1, 20), "ram")}) == [("target", 20), ("target", 10)]
    assert answers(views, failures={(at(1, 20), "ram"), (at(1, 20), "target")}) == [("target", 10)]


def test_another_world_size_is_refused_with_the_way_out() -> None:
    """Until states are resharded, a step is for as many ranks as saved it; asking only is fine for any."""
    decision = decide([ram(*both(20))], ONE, world_size=3)
    assert decision.chosen is None
    assert decision.candidates[0].reason == "saved by 2 ranks, asked for by 3: start 2 ranks"
    assert decide([ram(*both(20))], ONE).chosen is not None


def test_orphans_are_listed_and_never_taken() -> None:
    """A3: a rolled-back future and a zombie's late step are shown with the reason, never chosen."""
    past = history(None, at(1, 10))
    decision = decide([ram(*both(50)), target(*both(10), *both(15, attempt=2))], past)
    assert [(c.step_id, c.ok) for c in decision.candidates] == [(at(2, 15), True), (at(1, 50), False), (at(1, 10), True)]
    assert decision.candidates[1].reason.startswith("orphan")


def test_a_late_digest_is_said() -> None:
    """B1: evidence of less is marked, not refused."""
    decision = decide([ram(image(at(1, 20), 0, world=1, late=True))], ONE)
    assert decision.chosen is not None and decision.chosen.reason.endswith("digest taken late")


def test_many_missing_ranks_are_cut_short() -> None:
    """The table stays readable for a thousand ranks."""
    decision = decide([ram(image(at(1, 20), 0, world=1000))], ONE)
    assert decision.candidates[0].reason == "no image of rank 1, 2, 3, 4, 5, 6, 7, 8 and 991 more of 1000"


images = st.builds(
    Image,
    st.builds(StepId, st.integers(1, 3), st.integers(1, 4).map(lambda n: n * 10)),
    st.integers(0, 1),
    st.just(2),
    st.just("place"),
    st.just(10),
    st.sampled_from([None, None, None, "not proven"]),
)
views = st.builds(
    lambda t, i: View(t, "n", "present", tuple(i)), st.sampled_from(["ram", "target"]), st.lists(images, max_size=6)
)


@given(
    st.lists(views, max_size=4),
    st.sampled_from([history(None), history(None, at(1, 20)), history(None, at(1, 20), at(1, 10))]),
)
def test_every_choice_is_one_whole_flawless_step_on_the_lineage(found: list[View], past: History) -> None:
    """Invariant 1: whatever the views show, all sources of a choice are of one (attempt, step), and none is flawed."""
    from hinan.core.lineage import lineage

    decision = decide(found, past)
    for c in decision.ranked:
        assert set(c.sources) == {0, 1}
        assert {i.step_id for i in c.sources.values()} == {c.step_id}
        assert all(i.flaw is None for i in c.sources.values())
        assert c.step_id in lineage(past)
    order = [c.step_id for c in decision.ranked]
    assert order == sorted(order, reverse=True)
