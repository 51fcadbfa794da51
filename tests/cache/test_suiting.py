"""A kept answer suits a call where it is young enough, and of no lesser variant than would be computed."""

from dataclasses import replace
from math import inf

import pytest

from serving.cache.suiting import accuracy_of, suits
from serving.ports import Call
from serving.values.tensor import Tensor
from tests.builders import graded
from tests.cache.values import entry

MODEL = graded({"large": 0.95, "base": 0.9, "tiny": 0.8, "unmeasured": None})
VARIANTS = ("large", "base", "unmeasured")


def call(max_age_us: int | None = None, variant: str = "") -> Call:
    """Return a call that three of the four variants may answer."""
    found = Call(MODEL, [Tensor("X", "FP32", (1, 4), bytes(16))], 1)
    found.objective = replace(MODEL.objective("", 0.0), variants=VARIANTS)
    found.max_age_us, found.variant = max_age_us, variant
    return found


@pytest.mark.parametrize(("max_age_us", "expected"), [(None, True), (10, True), (9, False), (0, False)])
def test_an_answer_is_no_older_than_the_client_takes(max_age_us: int | None, expected: bool) -> None:
    kept = replace(entry(stored_us=90), variant="large")
    assert suits(call(max_age_us), kept, 100, lambda _call: 0.0) is expected


@pytest.mark.parametrize(
    ("variant", "preferred", "expected"),
    [
        ("large", inf, True),  # the best of those that may answer, whatever would be computed
        ("base", 0.9, True),
        ("base", 0.91, False),
        ("tiny", 0.0, False),  # it may not answer
        ("unmeasured", 0.0, False),
        ("unmeasured", -inf, True),
    ],
)
def test_an_answer_is_of_no_lesser_variant_than_would_be_computed(
    variant: str, preferred: float, expected: bool
) -> None:
    assert suits(call(), replace(entry(), variant=variant), 0, lambda _call: preferred) is expected


def test_a_pinned_variant_is_the_only_one_that_may_answer() -> None:
    assert suits(call(variant="tiny"), replace(entry(), variant="tiny"), 0, lambda _call: inf)
    assert not suits(call(variant="tiny"), replace(entry(), variant="large"), 0, lambda _call: 0.0)


def test_a_variant_that_is_not_measured_is_the_least_accurate() -> None:
    assert accuracy_of(call(), "unmeasured") == -inf
    assert accuracy_of(call(), "base") == 0.9
