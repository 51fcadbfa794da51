"""Sentences of any state of a model; `tests/goldens/explain.txt` has those of chosen ones."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.verbs.explain.words import sentences
from tests.router.verbs.explain.explanations import explanation, ladder, promise, variants
from tests.seeds import drawn

ALL = ("ensemble", "cnn", "mlp")


@pytest.mark.parametrize(("served", "said"), [(1, False), (2, True)])
def test_others_could_answer_only_where_there_are_others(served: int, said: bool) -> None:
    own = promise([ladder(["cnn"])], chooses=False, variants=["cnn"], accuracy_min=0.0)
    replicas = variants({"cpu0": "ready"})
    replicas.sort(key=lambda each: each["name"] != "cnn")
    for place, each in enumerate(replicas):
        each["served"] = place < served
    now = explanation(own, 310.0, variants=replicas)
    assert ("others could answer" in "".join(sentences(now, own))) is said


@settings(max_examples=drawn(50))
@given(
    st.lists(st.integers(0, 2), min_size=0, max_size=3),
    st.sampled_from([0.0, 0.2, 900.0, 1e6]),
    st.sampled_from([None, 0.0, 410.0, 1e9]),
    st.sampled_from(["most_accurate", "balanced", "cheapest"]),
    st.booleans(),
)
def test_anything_a_gateway_may_say_can_be_told(
    carrying: list[int], rate: float, afford_us: float | None, optimize: str, chooses: bool
) -> None:
    ladders = [ladder(ALL, each, min(each, 1), f"s{place}") for place, each in enumerate(carrying)]
    lines = sentences(
        now := explanation(promise(ladders, optimize=optimize, chooses=chooses), rate, afford_us),
        now["promises"][0],
    )
    assert all(line == line.rstrip() and "None" not in line and "inf" not in line for line in lines)
