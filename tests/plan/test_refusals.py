"""A refusal says what counts, in the words that were typed, and nothing beside it."""

import pytest

from hinan.plan.decision.nearest import solve_settings
from hinan.plan.model.checks import Infeasible


@pytest.mark.parametrize(
    ("words", "said", "nearest", "silent_about"),
    [
        ("gpus=8 params=1B tiers=ram,peer,shared", "tier peer cannot be used here: one node has no peer",
         {"tiers": "ram,shared"}, "state_bytes"),
        ("gpus=16 params=7B tiers=ram,peer,shared peers=8",
         "--peers 8: 8 peer copies want as many other nodes, there is 1", {"peers": "1"}, "GB"),
        ("gpus=16 params=7B peers=8",
         "--peers 8: 8 peer copies want as many other nodes, there is 1", {"peers": "1"}, "GB"),
        ("gpus=8 params=7B peers=1", "--peers 1: one node has no peer", {"peers": ""}, "GB"),
        ("gpus=64 params=1B mode=ring tiers=ram,shared", "tier ram cannot be used here: ring mode keeps no image in RAM",
         {"tiers": "shared"}, "state_bytes"),
        ("gpus=64 params=1B tiers=ram,peer,shared peers=0", "--peers 0 and --tiers ram,peer,shared contradict each other",
         {"peers": ""}, "cannot be used"),
        ("gpus=8 params=1B tiers=ram", "no copy survives a failure of class node on ram alone (default: failures)",
         {"tiers": "ram,shared"}, "floor_s"),
        ("gpus=8 params=1B latency=1s verify=2min", "corruption is to be seen within 1 s",
         {"latency": "120.6s"}, "interruption"),
        ("gpus=8 params=1B latency=0.5s", "a verification takes 1 s of training (guessed: restart.verify_s)",
         {"latency": "1.005s"}, "interruption"),
        ("gpus=16384 params=70B verify=5000000d", "corruption strikes every",
         {"verify": "1553000s"}, "interruption"),
        ("gpus=1024 params=70B shard-gpus=4096", "the state cannot be sharded over 4,096 of 1,024 GPUs",
         {"shard-gpus": "1024"}, "floor_s"),
        ("gpus=4096 ram=1GB", "no whole image fits", {"ram": "8.59079GB", "mode": "ring"}, "8.591"),
        ("gpus=1024 params=70B budget=0.0001%", "more than 0.0001%", {"budget": "0.14924%"}, "0.000%"),
        ("gpus=16384 params=70B rate=5", "a restart takes", {"rate": "0.3314"}, "say the same thing"),
    ],
)  # fmt: skip
def test_a_refusal_names_the_reason_and_what_was_typed(
    words: str, said: str, nearest: dict[str, str], silent_about: str
) -> None:
    """What contradicts what, with the inputs that it rests on and no others; corrected in the words that were given."""
    asked = dict(word.split("=") for word in words.split())
    with pytest.raises(Infeasible) as refused:
        solve_settings(asked)
    assert said in " ".join(refused.value.impossible)
    assert silent_about not in " ".join(refused.value.impossible)
    assert refused.value.nearest == nearest
    solve_settings({name: text for name, text in {**asked, **nearest}.items() if text})
