"""What the way to another state promises: no GPU has at once what it cannot, and models stay somewhere."""

from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from random import Random

import pytest

from serving.control.rollouts.breaking import contested, way
from serving.control.state.desired import DesiredReplica, DesiredSlice, DesiredState, union
from serving.values.slice_specs import Share, SliceSpec
from tests.builders import model_spec, served
from tests.seeds import seeds

H200 = "gpu-nvidia-h200"
MODELS = tuple(served(model_spec(name, ("a",), batch_max=1), ()) for name in ("m", "n"))
LAYOUTS = (
    ("whole:1",),
    ("time:1", "time:1"),
    ("mps:30", "mps:60"),
    ("sm:8", "sm:8"),
    ("mig:3g.71gb", "mig:3g.71gb"),
    ("mig:7g.141gb",),
    ("mig:1g.18gb", "mig:1g.18gb"),
)


def on_gpu(name: str, device: str, share: str, *models: str) -> DesiredSlice:
    spec = SliceSpec(name, (), device=device, part=Share.parse(share), kind=H200)
    return DesiredSlice(spec, tuple(DesiredReplica(model, "a") for model in models))


def state(*slices: DesiredSlice) -> DesiredState:
    return DesiredState(slices, MODELS)


def names(states: Sequence[DesiredState]) -> list[str]:
    return [" ".join(sorted(each.spec.name for each in one.slices)) for one in states]


def answering(of: DesiredState) -> set[str]:
    return {one.model for each in of.slices for one in each.replicas if one.routed}


WHOLE = state(on_gpu("a", "cuda:0", "whole:1", "m"), on_gpu("b", "cuda:1", "whole:1", "n"))
MPS = on_gpu("c", "cuda:0", "mps:30", "m")


def test_what_can_be_at_once_is_made_before_anything_goes() -> None:
    beside = state(on_gpu("c", "cuda:2", "mps:30", "m"), WHOLE.slices[1])
    assert way(WHOLE, beside) == (union(WHOLE, beside),)
    assert way(WHOLE, beside, [beside]) == (beside,)


def test_a_gpu_of_another_kind_of_share_is_drained_once_its_model_is_elsewhere() -> None:
    states = way(WHOLE, state(MPS, WHOLE.slices[1]))
    assert names(states) == ["a b", "a b", "b", "b c"]
    assert [answering(each) for each in states] == [{"m", "n"}] * 4
    stands_in = next(each for each in states[1].slices if each.spec.name == "b")
    assert [one.model for one in stands_in.replicas] == ["n", "m"]


def test_a_gpu_that_is_alone_is_drained_and_its_model_waits() -> None:
    states = way(state(WHOLE.slices[0]), state(MPS))
    assert names(states) == ["a", "", "c"]


def test_a_slice_of_cores_stands_in_for_no_gpu() -> None:
    core = DesiredSlice(SliceSpec("cpu", (0,)), (DesiredReplica("n", "a"),))
    assert names(way(state(core, WHOLE.slices[0]), state(core, MPS))) == ["a cpu", "cpu", "c cpu"]


@pytest.mark.parametrize(
    ("old", "new", "at_once"),
    [
        (["mig:3g.71gb"], ["mig:3g.71gb"], True),
        (["mig:3g.71gb", "mig:3g.71gb"], ["mig:1g.18gb"], False),
        (["mig:4g.71gb"], ["mig:4g.71gb"], False),  # one place for it
        (["mig:9g.999gb"], ["mig:1g.18gb"], False),  # only the driver may know it
        (["mps:100"], ["mps:100"], True),
        (["mps:1"] * 30, ["mps:1"] * 19, False),
        (["sm:8"], ["sm:4"], False),
        (["time:1"], ["mig:3g.71gb"], False),
    ],
)
def test_what_a_gpu_can_have_at_once(old: list[str], new: list[str], at_once: bool) -> None:
    before = state(*(on_gpu(f"o{n}", "cuda:0", share) for n, share in enumerate(old)))
    after = state(*(on_gpu(f"n{n}", "cuda:0", share) for n, share in enumerate(new)))
    assert contested(before, after) == (() if at_once else ("cuda:0",))
    assert contested(before, before) == ()


def test_states_that_are_given_are_taken_apart_too() -> None:
    last = state(MPS, WHOLE.slices[1])
    assert names(way(WHOLE, last, [last])) == ["a b", "a b", "b", "b c", "b c"]


def any_state(random: Random, stem: str) -> DesiredState:
    """Some of three GPUs, each in one layout, with models here and there."""
    slices = []
    for gpu in range(3):
        for number, share in enumerate(random.choice(((), *LAYOUTS))):
            models = random.sample("mn", random.randint(0, 2))
            slices.append(on_gpu(f"{stem}{gpu}{number}", f"cuda:{gpu}", share, *models))
    return state(*slices)


@pytest.mark.parametrize("seed", seeds(400))
def test_no_state_follows_another_that_it_cannot_be_beside(seed: int) -> None:
    random = Random(seed)
    old, new = any_state(random, "o"), any_state(random, "n")
    kept = tuple(each for each in old.slices if random.random() < 0.3)
    taken = {each.spec.device for each in kept}
    new = replace(new, slices=(*kept, *(each for each in new.slices if each.spec.device not in taken)))
    states = [old, *way(old, new), new]
    for before, after in pairwise(states):
        assert contested(before, after) == ()
        assert after.models == MODELS
    for each in states[1:-1]:  # a model is nowhere only where no slice is left
        assert not each.slices or answering(old) <= answering(each)
