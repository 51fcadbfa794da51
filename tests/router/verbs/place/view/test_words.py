"""Lists of names in sentences; `tests/goldens/place.txt` has the sentences about placements."""

from dataclasses import replace
from math import nan

import pytest

from router.verbs.place.view import words
from serving.policy.placement.terms.problem import PlacementProblem
from tests.router.verbs.place import samples
from tests.router.verbs.place.samples import FLEET, NOTHING


def test_a_rate_of_nothing_is_told_as_no_demand() -> None:
    idle = PlacementProblem((replace(FLEET.demands[0], rate=0.0),), FLEET.pools)
    shown = replace(NOTHING, problem=idle, models=samples.told(idle, {}, (nan,)))
    assert words.sentence(shown) == words.sentence(NOTHING)


@pytest.mark.parametrize(
    ("names", "said"),
    [
        (["a"], "a"),
        (["gpu-1", "gpu-2"], "gpu-1, gpu-2"),
        (["gpu-1", "gpu-2", "gpu-3", "gpu-7"], "gpu-1 to gpu-3, gpu-7"),
        (["gpu-9", "gpu-10", "gpu-11"], "gpu-9 to gpu-11"),
        (["a", "c", "e", "g", "i"], "a, c and 3 more"),
        (["7", "8", "9"], "7 to 9"),
        (["gpu-08", "gpu-9"], "gpu-08, gpu-9"),
    ],
)
def test_numbered_devices_are_told_as_spans(names: list[str], said: str) -> None:
    assert words.spans(names) == said


@pytest.mark.parametrize(
    ("names", "said"), [([], ""), (["a"], "a"), (["a", "b"], "a and b"), (["a", "b", "c"], "a, b and c")]
)
def test_a_few_names_are_listed_and_many_counted(names: list[str], said: str) -> None:
    assert words.listed(names) == said
    assert words.listed([str(number) for number in range(20)]) == "0, 1, 2 and 17 more"
