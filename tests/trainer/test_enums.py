"""Members of enums come back anywhere: from classes that this process has, and no file makes it import one."""

from __future__ import annotations

import enum
import sys
import types
from typing import Any

import pytest
import torch
from torch import nn

import hinan
from hinan.core.errors import CaptureError, StructureError
from hinan.trainer.state.enums import class_of, is_found_again, member_of
from tests.trainer.helpers import evacuate, install, through


class Phase(enum.Enum):
    WARM_UP = 1
    TRAIN = 2


class Count(enum.IntEnum):
    ONE = 1


class Word(enum.StrEnum):
    LAST = "last"


class Part(enum.Flag):
    A = 1
    B = 2
    C = 4
    AB = 3


class Wide(enum.IntFlag):
    LOW = 1
    HIGH = 1 << 60


class _Outer:
    class __Inner(enum.Enum):
        X = 1

    x = __Inner.X


class Says:
    """A Stateful of the user's."""

    def __init__(self, said: Any) -> None:
        self.said = said

    def state_dict(self) -> Any:
        return {"said": self.said}

    def load_state_dict(self, state: Any) -> None:
        self.said = state["said"]


class Extra(nn.Linear):
    """An extra state of the user's."""

    def __init__(self, said: Any) -> None:
        super().__init__(2, 2)
        self.said = said

    def get_extra_state(self) -> Any:
        return self.said

    def set_extra_state(self, said: Any) -> None:
        self.said = said


class Schedule(torch.optim.lr_scheduler.LRScheduler):
    """A schedule in phases: torch keeps all that it has."""

    def __init__(self, phase: Phase) -> None:
        self.phase = phase
        super().__init__(torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=1.0))

    def get_lr(self) -> list[Any]:
        return [1.0]


class InPhases(torch.optim.SGD):
    """An optimizer with words of its own."""

    def __init__(self, phase: Phase) -> None:
        super().__init__([nn.Parameter(torch.zeros(1))], lr=1.0)
        self.phase = phase

    def state_dict(self) -> Any:
        return {**super().state_dict(), "phase": self.phase}

    def load_state_dict(self, state: Any) -> None:
        self.phase = state.pop("phase")
        super().load_state_dict(state)


class Carried:
    """Carried by a codec."""

    def __init__(self, said: Any) -> None:
        self.said = said


hinan.register_codec(Carried, "tests.enums", vars, lambda v: Carried(v["said"]))

MEMBERS = [Phase.TRAIN, Count.ONE, Word.LAST, Part.A, Part.AB, Part.A | Part.C, Part(0), Wide.LOW | Wide.HIGH, _Outer.x]


@pytest.mark.parametrize("member", MEMBERS, ids=repr)
def test_a_member_comes_back_anywhere(member: Any) -> None:
    """Where a live member stands and where none does: as a value and a key, in sets, tuples and lists that have grown, over
    None, in what a state_dict(), an extra state or a codec says."""
    said = {"x": member, "in": [(member,), {member}, {member: member}, {"y": ((member,),)}]}
    live: dict[str, Any] = {
        "value": next(iter(type(member))), "none": None, "keys": {}, "set": set(), "grown": [], "more": {},
        "tuple": ((None,),),
        "stateful": Says({}), "extra": Extra(None), "codec": Carried(None),
    }  # fmt: skip
    saved = {
        "value": member, "none": member, "keys": {member: 1, 2: member}, "set": {member}, "grown": [member, [member]],
        "more": {"x": member}, "tuple": ((member,),), "stateful": Says(said), "extra": Extra(said), "codec": Carried(said),
    }  # fmt: skip
    through(saved, live)
    for name in ("value", "none", "keys", "set", "grown", "more", "tuple"):
        assert repr(live[name]) == repr(saved[name]), name
    assert live["value"] is member or live["value"] == member
    assert repr([live[name].said for name in ("stateful", "extra", "codec")]) == repr([said] * 3)
    assert type(live["stateful"].said["x"]) is type(member)


def test_a_member_in_a_schedule_and_in_an_optimizers_own_words() -> None:
    live = {"s": Schedule(Phase.WARM_UP), "o": InPhases(Phase.WARM_UP)}
    through({"s": Schedule(Phase.TRAIN), "o": InPhases(Phase.TRAIN)}, live)
    assert (live["s"].phase, live["o"].phase) == (Phase.TRAIN, Phase.TRAIN)


def test_a_class_of_the_program_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """`__main__` is another module in every program, and has another name in a process that the program spawns."""
    kind = enum.Enum("Kind", "A B", module="__main__")
    monkeypatch.setattr(sys.modules["__main__"], "Kind", kind, raising=False)
    live = {"s": Says(None)}
    through({"s": Says(kind["B"])}, live)
    assert live["s"].said is kind["B"]
    spawned = types.ModuleType("__mp_main__")
    spawned.Spawned = enum.Enum("Spawned", "A", module="__mp_main__")  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "__mp_main__", spawned)
    assert class_of("__main__", "Spawned") is spawned.Spawned


def test_nothing_is_imported_and_no_code_is_run_to_find_a_class(monkeypatch: pytest.MonkeyPatch) -> None:
    """A module that was not imported, one that imports what it is asked for, what is no enum: not found."""
    lazy = types.ModuleType("lazy_words")
    lazy.__getattr__ = lambda name: pytest.fail(f"{name} was asked for")  # type: ignore[method-assign]
    lazy.NoEnum = Says  # type: ignore[attr-defined]
    lazy.alias = Phase  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "lazy_words", lazy)
    before = set(sys.modules)
    for name in ("Phase", "NoEnum", "NoEnum.state_dict", "alias.TRAIN", "", "NoEnum.__init__"):
        assert class_of("lazy_words", name) is None
    assert class_of("wave.never", "Phase") is None and class_of("", "Phase") is None
    assert set(sys.modules) == before
    assert class_of(__name__, "Phase") is Phase


def local() -> type[enum.Enum]:
    class Local(enum.Enum):
        A = 1
        B = 2

    return Local


def test_a_local_class_comes_back_where_a_live_member_gives_it() -> None:
    """As it always did: the live class is taken, also one that has moved to another module since."""
    kind, other = local(), local()
    live = {"v": kind.A, "d": {"v": [kind.A]}, "t": (kind.A, 1), "m": Extra(kind.A)}  # type: ignore[attr-defined]
    through({"v": other.B, "d": {"v": [other.B]}, "t": (other.B, 1), "m": Extra(other.B)}, live)  # type: ignore[attr-defined]
    assert [live["v"], live["d"]["v"][0], live["t"][0], live["m"].said] == [kind.B] * 4  # type: ignore[attr-defined,index]


def test_a_class_of_its_module_goes_before_one_that_is_called_alike(monkeypatch: pytest.MonkeyPatch) -> None:
    """And where its module has it no longer, the live one is taken: it has moved."""
    other = types.ModuleType("other_words")
    other.Phase = enum.Enum("Phase", "WARM_UP TRAIN", module="other_words")  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "other_words", other)
    live = {"v": Phase.WARM_UP}
    image, small, _ = evacuate({"v": other.Phase.TRAIN})
    install(image, small, live)
    assert live["v"] is other.Phase.TRAIN
    del other.Phase
    live = {"v": Phase.WARM_UP}
    install(image, small, live)
    assert live["v"] is Phase.TRAIN


@pytest.mark.parametrize(
    ("place", "path"),
    [
        (lambda m: Says({"phase": [m]}), r"s\.said\.phase\.\[0\]"),
        (lambda m: Extra({"m": m}), r"s\._extra_state\.m"),
        (Carried, r"s\.said"),
        (lambda m: {m}, r"s\.\[0\]"),
        (lambda m: {m: 1}, r"s\.\[.*Local.A.*"),
        (lambda m: (1, [m]), r"s\.\[1\]\.\[0\]"),
        (lambda m: {"o": InPhases(m)}, r"s\.o\.phase"),
    ],
    ids=["a Stateful", "an extra state", "a codec", "a set", "a key", "a list in a tuple", "an optimizer's words"],
)
def test_a_class_that_could_not_be_found_again_is_refused_at_the_save(place: Any, path: str) -> None:
    """Not at the resume, where it would be too late."""
    assert not is_found_again(local())
    with pytest.raises(
        CaptureError, match=rf"^{path} is a member of {__name__}\.local\..*Local.*Make it a class of a module"
    ):
        evacuate({"s": place(local().A)})  # type: ignore[attr-defined]


def test_what_the_program_does_not_have_any_more_is_said_with_its_path(monkeypatch: pytest.MonkeyPatch) -> None:
    """A class, a member, the codec: the message names the place and the way out."""
    image, small, _ = evacuate({"d": {"s": Says([Phase.TRAIN])}, "w": torch.ones(1)})
    live = {"d": {"s": Says(0)}, "w": torch.zeros(1)}
    said = small["state"]["d"]["s"]["$stateful"]["said"]
    for payload, what in (
        (["Phase", "GONE", __name__], "does not have any more"),
        (["Gone", "TRAIN", __name__], rf"no enum {__name__}\.Gone is imported here"),
        (["Phase", "TRAIN"], "no enum Phase is imported here"),
    ):
        said[0] = {"$enum": payload}
        with pytest.raises(StructureError, match=rf"^d\.s\.said\.\[0\] was saved as .*{what}.*[Ww]hat was saved stands"):
            install(image, small, live)
    said[0] = {"$codec": ["tests.nobody", 1]}
    with pytest.raises(StructureError, match=r"^d\.s\.said\.\[0\] .*'tests.nobody'.*call hinan.register_codec"):
        install(image, small, live)
    assert (float(live["w"]), live["d"]["s"].said) == (0.0, 0)  # type: ignore[arg-type,index]


def test_files_of_older_versions_stay_readable() -> None:
    """They name the class without its module, and a combination of flags as Python shows it."""
    image, small, _ = evacuate({"p": Phase.TRAIN, "f": Part.A})
    small["state"] = {"p": {"$enum": ["Phase", "TRAIN"]}, "f": {"$enum": ["Part", "A|C"]}}
    live: dict[str, Any] = {"p": Phase.WARM_UP, "f": Part.B}
    install(image, small, live)
    assert live == {"p": Phase.TRAIN, "f": Part.A | Part.C}
    assert member_of(Part, None) == Part(0)
    assert member_of(Wide, "LOW|8") == Wide.LOW | Wide(8)
