"""Models and optimizers of which only parts are trained: unused and frozen layers, empty and swapped groups, several."""

from __future__ import annotations

import logging
from typing import Any

import pytest
import torch
from torch import nn

from hinan.core.errors import CaptureError, FormatError, StructureError
from hinan.trainer.restoring.differences import refuse_lazy
from hinan.trainer.state.capture import Capture
from tests.exact.twins import Step, assert_resumes, assert_same, evacuated, everything, look, restored, seed
from tests.trainer.helpers import evacuate, install


class Parts(nn.Module):
    """Four layers: always used, used from the fourth step on, frozen, never used."""

    def __init__(self) -> None:
        super().__init__()
        self.used, self.late, self.frozen, self.unused = (nn.Linear(3, 3) for _ in range(4))
        self.frozen.requires_grad_(False)
        self.norm = nn.BatchNorm1d(3)
        self.drop = nn.Dropout(0.3)


def parts(**options: Any) -> tuple[dict[str, Any], Step]:
    """AdamW over all four; the late layer joins after the third step."""
    model = Parts()
    optim = torch.optim.AdamW(model.parameters(), **options)
    state = {"model": model, "optim": optim, "n": {"steps": 0}}

    def step() -> torch.Tensor:
        x = model.norm(model.frozen(model.used(model.drop(torch.randn(4, 3)))))
        loss = (model.late(x) if state["n"]["steps"] >= 3 else x).square().sum(1).sqrt().mean()
        loss.backward()
        optim.step()
        optim.zero_grad()
        state["n"]["steps"] += 1
        return loss.detach()

    return state, step


@pytest.mark.parametrize("at", [(2,), (3, 4), (5,)])
def test_unused_and_frozen_layers(at: tuple[int, ...]) -> None:
    """A-OPT-2: a layer without gradients has no state after the restore, gets it when it is used, and steps on equally."""
    straight, resumed = assert_resumes(parts, steps=7, at=at)
    for end in (straight, resumed):
        assert {id(p) for p in end["optim"].state} == {
            id(p) for name, p in end["model"].named_parameters() if name.split(".")[0] in ("used", "late", "norm")
        }


def test_a_layer_that_is_frozen_now_keeps_its_moments() -> None:
    """A-OPT-1: all layers were stepped; one is frozen in the new process: its state comes back with the others', and is
    saved again although it is frozen."""
    (saved, step), (live, _), (third, _) = parts(), parts(), parts()
    for _ in range(4):
        step()
    live["model"].used.requires_grad_(False)
    restored(*evacuated(saved), live)
    restored(*evacuated(live), third)
    for after in (live, third):
        p, q = after["model"].used.weight, saved["model"].used.weight
        assert_same(look(after["optim"].state[p]), look(saved["optim"].state[q]), "used.weight")
        assert len(after["optim"].state) == len(saved["optim"].state) == 6


def test_a_partly_missing_state_is_fatal_before_anything_is_written() -> None:
    """A-OPT-2: a moment that the values name and the image lacks ends the restore; it is no parameter without state."""
    (saved, step), (live, _) = parts(), parts()
    step()
    image, small, _ = evacuate(saved)
    entry = next(e for name, e in small["state"]["optim"]["$optimizer"]["state"] if name == "model.used.weight")
    entry["exp_avg"]["$tensor"][0] += "?"
    before = everything(live)
    with pytest.raises(FormatError, match=r"optim\.model\.used\.weight\.exp_avg\?"):
        install(image, small, live)
    assert everything(live) == before


def test_saved_between_backward_and_step() -> None:
    """A-OPT-4: with gradients present the whole optimizer state is there, and the gradients are left alone."""
    (saved, step), (live, _) = parts(), parts()
    step()
    saved["model"].used(torch.ones(1, 3)).sum().backward()
    gradient = saved["model"].used.weight.grad
    assert gradient is not None
    before = gradient.clone()
    restored(*evacuated(saved), live)
    assert_same(look(live["optim"]), look(saved["optim"]), "optim")
    assert saved["model"].used.weight.grad is gradient
    assert torch.equal(gradient, before)
    assert live["model"].used.weight.grad is None


def groups(order: tuple[str, ...] = ("used", "late", "empty", "norm")) -> tuple[dict[str, Any], Step]:
    """One group for each part, each with options of its own; one of them empty."""
    state, _ = parts()
    members = {name: list(getattr(state["model"], name).parameters()) if name != "empty" else [] for name in order}
    state["optim"] = optim = torch.optim.SGD(
        [{"params": members[name], "lr": 0.1 / (i + 1), "momentum": 0.9, "name": name} for i, name in enumerate(order)]
    )

    def step() -> torch.Tensor:
        loss = state["model"].late(state["model"].norm(state["model"].used(torch.randn(4, 3)))).square().mean()
        loss.backward()
        optim.step()
        for group in optim.param_groups:
            group["lr"] *= 0.5
            group["weight_decay"] += 0.01
        optim.zero_grad()
        return loss.detach()

    return state, step


def test_groups_with_options_of_their_own_and_an_empty_one() -> None:
    """Options that moved while training, those of an empty group too, come back to their group."""
    _, resumed = assert_resumes(groups)
    assert [g["lr"] for g in resumed["optim"].param_groups] == [0.1 / (i + 1) * 0.5**5 for i in range(4)]


@pytest.mark.parametrize(
    ("order", "message"),
    [
        (("late", "used", "empty", "norm"), r"group 0 differs in model\.late\."),
        (("used", "late", "norm", "empty"), r"group 2 differs in model\.norm\."),
        (("used", "late", "norm"), "saved with 4 parameter groups and has 3"),
    ],
    ids=["two swapped", "the empty one swapped", "the empty one missing"],
)
def test_swapped_groups_are_refused_by_name(order: tuple[str, ...], message: str) -> None:
    """Options would reach the wrong parameters: refused before anything is written, even where all shapes agree."""
    (saved, step), (live, _) = groups(), groups(order)
    step()
    image, small = evacuated(saved)
    before = everything(live)
    with pytest.raises(StructureError, match=message):
        restored(image, small, live)
    assert everything(live) == before


def frozen_later(*, steps_done: int = 0) -> tuple[dict[str, Any], Step]:
    """Two groups; the second is taken out at the end of step 2 and comes back at that of step 4.

    Args:
        steps_done: new objects have the groups that the loop has then.
    """
    state: dict[str, Any] = {"a": nn.Linear(3, 3), "b": nn.Linear(3, 1), "turn": [0]}
    members = [{"params": list(state[name].parameters())} for name in ("a", "b")]
    state["optim"] = optim = torch.optim.AdamW(members[:1] if 1 < steps_done <= 3 else members, lr=0.1)

    def step() -> torch.Tensor:
        loss = state["b"](torch.tanh(state["a"](torch.randn(4, 3)))).square().mean()
        loss.backward()
        optim.step()
        state["a"].zero_grad()
        state["b"].zero_grad()
        state["turn"][0] += 1
        if state["turn"][0] == 2:
            optim.param_groups.pop(1)
        if state["turn"][0] == 4:
            optim.add_param_group({"params": list(state["b"].parameters())})
        return loss.detach()

    return state, step


@pytest.mark.parametrize("at", [2, 3, 4])
def test_a_group_that_is_taken_out_and_comes_back(at: int) -> None:
    """torch leaves its moments where they are, and goes on from them when it comes back: so does a resumed run."""
    made = iter([0, 0, at])
    assert_resumes(lambda: frozen_later(steps_done=next(made)), steps=6, at=at)


def test_moments_outside_the_groups_need_their_parameter() -> None:
    """Kept by name: a live state without such a parameter is refused before anything is written."""
    (saved, step), (live, _) = frozen_later(), frozen_later(steps_done=2)
    step()
    step()
    image, small = evacuated(saved)
    for state in (live, small["state"]):
        del state["b"]
    with pytest.raises(StructureError, match=r"optim was saved with moments of b\.weight, which is in none"):
        restored(image, small, live)


@pytest.mark.parametrize("how", ["assigned", "its module is not at the top"])
def test_moments_of_nobodys_parameters_are_left_out(how: str, caplog: pytest.LogCaptureFixture) -> None:
    """The optimizer never looks at them. Said once, listed with their bytes, and the run goes on as it would have."""

    def make() -> tuple[dict[str, Any], Step]:
        a, b = nn.Linear(3, 3), nn.Linear(3, 1)
        optim = torch.optim.AdamW([*a.parameters(), *b.parameters()], lr=0.1)
        state: dict[str, Any] = {"a": a, "b": b if how == "assigned" else {"module": b}, "optim": optim, "turn": [0]}

        def step() -> torch.Tensor:
            loss = b(torch.tanh(a(torch.randn(4, 3)))).square().mean()
            loss.backward()
            optim.step()
            optim.zero_grad()
            state["turn"][0] += 1
            return loss.detach()

        return state, step

    def freeze(state: dict[str, Any]) -> None:
        b = state["b"] if how == "assigned" else state["b"]["module"]
        if how == "assigned":
            b.load_state_dict({name: torch.ones_like(t) for name, t in b.state_dict().items()}, assign=True)
        state["optim"].param_groups[0]["params"][2:] = list(b.parameters()) if how == "assigned" else []

    seed(1)
    straight, step = make()
    step()
    freeze(straight)
    seed(2)
    expected = [look(step()) for _ in range(3)]
    seed(1)
    saved, step = make()
    step()
    freeze(saved)
    seed(2)
    capture = Capture(saved)
    for _ in range(2):
        kept = capture.take()
    assert (
        len([r for r in caplog.records if "holds state of 2 parameters that are in none of its groups" in r.message]) == 1
    )
    assert len(kept.tensors) == 4 + 2 * 3
    image, small = evacuated(saved)
    assert small["left"][0] == ["optim (state of parameters in none of its groups)", 2 * (3 + 1) * 4 + 2 * 4]
    live, step = make()
    freeze(live)
    restored(image, small, live)
    assert_same([look(step()) for _ in range(3)], expected, "loss")
    assert look(live["a"]) == look(straight["a"])
    assert look(live["b"]) == look(straight["b"])


def several() -> tuple[dict[str, Any], Step]:
    """Two optimizers for two models that are trained in turn, and one more that shares a parameter with the first."""
    state: dict[str, Any] = {"a": nn.Linear(3, 3), "b": nn.Linear(3, 1)}
    state["optims"] = [
        torch.optim.Adam(state["a"].parameters(), lr=0.02),
        torch.optim.SGD(state["b"].parameters(), lr=0.1, momentum=0.9),
        torch.optim.RMSprop([state["a"].bias], lr=0.01),
    ]
    state["turn"] = [0]

    def step() -> torch.Tensor:
        loss = state["b"](torch.tanh(state["a"](torch.randn(4, 3)))).square().mean()
        loss.backward()
        state["optims"][state["turn"][0] % 3].step()
        state["turn"][0] += 1
        for optim in state["optims"]:
            optim.zero_grad()
        return loss.detach()

    return state, step


@pytest.mark.parametrize("at", [(1,), (2, 4)])
def test_several_optimizers_in_one_state(at: tuple[int, ...]) -> None:
    """In a list, some without state yet, two with state for one and the same parameter."""
    assert_resumes(several, steps=7, at=at)


def test_parameters_of_no_module() -> None:
    """Plain tensors that an optimizer trains are named by their place in the groups."""

    def make() -> tuple[dict[str, Any], Step]:
        w = [nn.Parameter(torch.randn(3)), nn.Parameter(torch.randn(3))]
        optim = torch.optim.Adam(w, lr=0.1)

        def step() -> torch.Tensor:
            optim.zero_grad()
            loss = (w[0] * w[1] - torch.randn(3)).square().mean()
            loss.backward()
            optim.step()
            return loss.detach()

        return {"w": w, "optim": optim}, step

    assert_resumes(make)


def test_state_that_an_optimizer_keeps_where_it_likes() -> None:
    """A-OPT-7: state that is no mapping, text keys at the top level, ints, None, lists and tensors inside: a round trip."""
    (saved, step), (live, _) = parts(), parts()
    step()
    w, v = saved["model"].used.weight, live["model"].used.weight
    saved["optim"].state["k"] = torch.tensor(7, dtype=torch.int16)
    saved["optim"].state["steps"] = {"n": 3, "last": None, "dirs": [torch.ones(2), None, (torch.zeros(()), 1)]}
    saved["optim"].state[w].update(n=2**60, note=None, flag=True)
    saved["optim"].state[saved["model"].unused.weight] = torch.ones(2)  # type: ignore[assignment]
    restored(*evacuated(saved), live)
    assert_same(look(live["optim"]), look(saved["optim"]), "optim")
    assert live["optim"].state[v]["n"] == 2**60
    assert live["optim"].state["k"].dtype == torch.int16
    restored(*evacuated(live), saved)
    assert_same(look(live["optim"]), look(saved["optim"]), "back")


def test_a_state_key_the_live_optimizer_has_and_the_saved_one_lacks(caplog: pytest.LogCaptureFixture) -> None:
    """A-OPT-6: amsgrad was switched on for the new run: the saved switch counts, as its moments do; nothing is mixed."""
    (saved, step), (live, live_step) = parts(), parts(amsgrad=True)
    for advance in (step, live_step):
        advance()
    with caplog.at_level(logging.WARNING, "hinan"):
        restored(*evacuated(saved), live)
    assert_same(look(live["optim"]), look(saved["optim"]), "optim")


def test_modules_before_their_first_forward() -> None:
    """A lazy module has nothing to keep yet: refused by path, not with torch's own words; after the first forward it is
    a module like any other, and its twin must have been run once, too. So a start from nothing refuses it as well: what
    it goes on to save, the next one could not take. One that saves itself is left to say so when it loads."""
    for module in (nn.LazyLinear(2), nn.Sequential(nn.LazyBatchNorm1d())):
        with pytest.raises(StructureError, match=r"m\..* has no values yet; run the module once before restore\(\)"):
            refuse_lazy({"m": module, "o": torch.optim.SGD(module.parameters())})

    class Makes(nn.LazyLinear):
        def state_dict(self, *arguments: Any, **named: Any) -> Any:
            return super().state_dict(*arguments, **named)

    refuse_lazy({"m": Makes(2), "n": nn.Linear(2, 2)})
    with pytest.raises(CaptureError, match=r"m\.weight .*has no values yet"):
        evacuate({"m": nn.LazyLinear(2)})
    seed(1)
    saved, live = nn.LazyLinear(2), nn.LazyLinear(2)
    saved(torch.ones(1, 3))
    with pytest.raises(StructureError, match=r"m\.weight .*has no values yet"):
        restored(*evacuated({"m": saved}), {"m": live})
    live(torch.ones(1, 3))
    restored(*evacuated({"m": saved}), {"m": live})
    assert_same(look(live), look(saved), "m")
