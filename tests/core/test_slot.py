"""The life of a slot: which moves there are, and in which order facts go."""

from __future__ import annotations

import itertools

import pytest

from hinan.core.slot import Effect, Event, IllegalTransition, Phase, advance

LEGAL = {
    (Phase.FREE, Event.LEASE): Phase.FILLING,
    (Phase.FREE, Event.RELEASE): Phase.GONE,
    (Phase.FILLING, Event.SEAL): Phase.SEALED,
    (Phase.FILLING, Event.LOSE): Phase.FREE,
    (Phase.FILLING, Event.RELEASE): Phase.GONE,
    (Phase.SEALED, Event.PROVE): Phase.PROVEN,
    (Phase.SEALED, Event.RECYCLE): Phase.FILLING,
    (Phase.SEALED, Event.RELEASE): Phase.GONE,
    (Phase.PROVEN, Event.RECYCLE): Phase.FILLING,
    (Phase.PROVEN, Event.RELEASE): Phase.GONE,
}


@pytest.mark.parametrize(("phase", "event"), list(itertools.product(Phase, Event)))
def test_every_move_is_in_the_table_or_refused_by_name(phase: Phase, event: Event) -> None:
    """No phase and event are left undefined: a move is legal, or it raises with both names."""
    if (phase, event) in LEGAL:
        assert advance(phase, event)[0] is LEGAL[phase, event]
    else:
        with pytest.raises(IllegalTransition, match=rf"{phase.value} slot cannot {event.value}"):
            advance(phase, event)


@pytest.mark.parametrize("phase", [Phase.SEALED, Phase.PROVEN])
@pytest.mark.parametrize("event", [Event.RECYCLE, Event.RELEASE])
def test_facts_go_before_the_bytes_may_change_and_the_seal_first(phase: Phase, event: Event) -> None:
    """A kill between two effects never leaves `.sealed` without the `.proven` that stood beside it: its digests would be
    taken again, late, of bytes that the old ones may have shown to be damaged."""
    _, effects = advance(phase, event)
    assert effects[:2] == (Effect.WITHDRAW_SEALED, Effect.WITHDRAW_PROVEN)


def test_a_proof_that_was_left_alone_is_gone_before_the_slot_is_filled() -> None:
    """It would otherwise stand beside bytes that it does not describe."""
    assert advance(Phase.FREE, Event.LEASE) == (Phase.FILLING, (Effect.WITHDRAW_PROVEN,))


@pytest.mark.parametrize("phase", [Phase.FREE, Phase.FILLING, Phase.SEALED, Phase.PROVEN])
def test_the_image_goes_last(phase: Phase) -> None:
    """When a slot is released no fact outlives the image it describes."""
    _, effects = advance(phase, Event.RELEASE)
    assert effects == (Effect.WITHDRAW_SEALED, Effect.WITHDRAW_PROVEN, Effect.UNLINK_IMAGE)


def test_nothing_leaves_gone() -> None:
    """A released slot never comes back: one inode, one writer for life (rule B2)."""
    assert not [key for key in LEGAL if key[0] is Phase.GONE]
