"""What `--lose` and `--spot` say, and how a loss is followed."""

from dataclasses import replace

import pytest

from serving.simulation.devices.held import Presence
from serving.simulation.devices.losses import Loss, LossCourse, clash, read_losses, read_notices

SECOND = 1_000_000


def test_losses_and_notices_are_read_as_they_are_written() -> None:
    assert read_losses("gpu-1@10+20, gpu-2@.5") == (Loss("gpu-1", 10, None, 20), Loss("gpu-2", 0.5))
    assert read_notices("lent-1@10:30,lent-2@4:0") == (Loss("lent-1", 10, 30), Loss("lent-2", 4, 0))
    assert [(each.gone_s, each.back_s) for each in read_losses("a@1+2,a@1")] == [(1, 3), (1, None)]
    assert read_notices("a@1:2")[0].gone_s == 3


@pytest.mark.parametrize("text", ["", "a", "@3", "a@", "a@-1", "a@1+", "a@1+0", "a@1:2", "a@1,", "a b@1"])
def test_what_is_no_loss_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected SLICE@S"):
        read_losses(text)


@pytest.mark.parametrize("text", ["", "a@1", "a@1+2", "a@1:", "a@1:2+3"])
def test_what_is_no_notice_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected SLICE@S:NOTICE_S"):
        read_notices(text)


def test_only_what_is_back_can_be_lost_again() -> None:
    first, later, other = Loss("a", 1, None, 2), Loss("a", 3), Loss("b", 2)
    assert clash([("d", first), ("d", later), ("e", other)]) is None
    assert clash([("d", later), ("d", first), ("d", other)]) == (first, other)
    assert clash([("d", later), ("d", replace(first, at_s=4))]) == (later, replace(first, at_s=4))


def followed(loss: Loss) -> tuple[LossCourse, Presence]:
    """A loss of `a` and `b`, of which `a` has both models and `c` has one of them."""
    presence = Presence(["m", "n"])
    for name, model in (("a", "m"), ("a", "n"), ("c", "m")):
        presence.up(name, model, "v", 0)
    course = LossCourse(loss, ("a", "b"), SECOND)
    course.begin(presence, ["m", "n"], 2 * SECOND)
    return course, presence


def test_models_are_replaced_when_all_of_them_are_on_as_many_slices_that_stay() -> None:
    course, presence = followed(Loss("a", 1, 10))
    assert course.before == {"m": 2, "n": 1}
    for at_us, name, model in ((3, "b", "m"), (4, "e", "m"), (5, "c", "n")):
        presence.up(name, model, "v", at_us * SECOND)
        course.look(presence, at_us * SECOND)
    assert course.replaced_us == 5 * SECOND
    assert course.span_us(100 * SECOND) == (2 * SECOND, 12 * SECOND)  # until it is gone


def test_models_that_are_back_on_a_device_that_is_back_are_replaced_too() -> None:
    course, presence = followed(Loss("a", 1, None, 3))
    presence.gone("a", 2 * SECOND)
    course.look(presence, 2 * SECOND)
    for model in ("m", "n"):
        presence.up("a", model, "v", 6 * SECOND)
        course.look(presence, 6 * SECOND)
    assert course.replaced_us == 6 * SECOND
    assert course.span_us(100 * SECOND) == (2 * SECOND, 6 * SECOND)
