"""The baselines by name."""

from loadtests.virtual.baselines.catalogue import BASELINES
from tests.loadtests.virtual.baselines.models import asks, cut, on_mig, on_parts


def test_each_divides_the_devices_that_it_was_published_for() -> None:
    mig, parts = on_mig(asks("a", 10, {1: 10.0})), on_parts(asks("a", 10, {50: 10.0}))
    on_either = {name: [cut(solve(mig)), cut(solve(parts))] for name, solve in BASELINES.items()}
    assert on_either == {
        "first-fit decreasing": [[[("a", 1)]], [[("a", 50)]]],
        "ParvaGPU": [[[("a", 1)]], []],
        "MIG-Serving": [[[("a", 1)]], []],
        "gpulet": [[], [[("a", 50)]]],
        "Nexus": [[], [[("a", 50)]]],
    }
