"""What a slice is called, and what it holds of its device."""

import pytest

from serving.values.slice_specs import Share, SliceSpec, own_process


@pytest.mark.parametrize(
    ("share", "held"), [("mig:1g.18gb", "a"), ("sm:2", "a"), ("mps:30", "a+m"), ("time:1", "a+m")]
)
def test_what_is_reserved_is_held_once_for_a_slice_and_its_models_own_processes(
    share: str, held: str
) -> None:
    spec = SliceSpec(own_process("a", "m"), (), device="cuda:0", part=Share.parse(share))
    assert (spec.place, spec.held_as) == ("a", held)


def test_the_processes_of_an_instance_hold_it_together() -> None:
    share = Share.parse("mig:1g.18gb*2")
    assert SliceSpec("a-1", (), device="cuda:0", part=share, instance="a").held_as == "a"
