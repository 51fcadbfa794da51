"""Devices that are alike, and the models that are shown."""

from math import nan

from router.verbs.place.view.figures import free, layouts, used, worst
from serving.policy.placement.terms.plan import Placement
from serving.policy.placement.terms.problem import PlacementProblem
from tests.router.verbs.place import samples
from tests.router.verbs.place.samples import FLEET, foretold


def test_devices_that_are_alike_are_one_layout_and_free_ones_are_told_by_pool() -> None:
    shown = samples.large(300)
    found = layouts(shown.problem, shown.after)
    assert sum(each.count for each in found) == used(shown.after) == 295
    assert [each.count for each in free(shown.problem, shown.after)] == [5, 3]
    named = [name for each in found for name in each.devices]
    assert sorted(named) == sorted(shown.after)
    for each in found:
        for name in each.devices:
            assert [slot.share for slot in shown.after[name]] == [slot.share for slot in each.slots]


def test_layouts_that_differ_by_position_alone_are_one_only_where_there_are_very_many() -> None:
    problem = FLEET
    few: Placement = {
        name: (samples.slot(problem, samples.mig("1g.10gb"), "digits", start=start),)
        for name, start in (("gpu-0", 0), ("gpu-1", 3))
    }
    assert [(each.count, each.placed) for each in layouts(problem, few)] == [(1, True), (1, True)]
    gpus = samples.pools(128, 0)
    wide = PlacementProblem(FLEET.demands, gpus)
    many: Placement = {
        f"gpu-{number}": tuple(
            samples.slot(wide, samples.mig("1g.10gb"), "digits" if bit == "1" else "minilm", start=start)
            for start, bit in enumerate(f"{number:07b}")
        )
        for number in range(128)
    }
    found = layouts(wide, many)
    assert len(found) == 8
    assert not any(each.placed for each in found)


def test_of_many_models_those_with_the_least_to_spare_are_shown_in_their_order() -> None:
    shown = foretold(0.999, nan, 0.2, 0.995)
    assert [each.model for each in worst(shown.models, 2)] == ["digits", "simple"]
    assert [each.model for each in worst(shown.models, 9)] == [each.model for each in shown.models]
