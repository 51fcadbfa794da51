"""What is lost and what fails is in no problem any more; everything else stays."""

from dataclasses import replace

import pytest

from serving.planning.remaining import Outage, remaining
from serving.policy.placement.terms.geometry import H200_141
from serving.policy.placement.terms.problem import Instances, Parts, PlacementProblem
from serving.values.slice_specs import Share
from tests.planning.worlds import KIND, ONE, option, question

TWO = Share("cores", 2.0)


def problem(devices: int = 2) -> PlacementProblem:
    found = question({"a": 10.0, "b": 10.0}, devices).problem
    both = (option(), option(600.0, share=TWO))
    return replace(found, demands=tuple(replace(each, options=both) for each in found.demands))


def test_without_an_outage_the_problem_is_the_same() -> None:
    assert remaining(problem(), Outage()) == problem()


def test_a_lost_device_is_gone_and_an_empty_pool_with_it() -> None:
    assert [*remaining(problem(), Outage({"d-0"})).pool_of] == ["d-1"]
    assert remaining(problem(), Outage({"d-0", "d-1"})).pools == ()


@pytest.mark.parametrize(("devices", "pools"), [(1, [62.0]), (2, [62.0, 64.0])])
def test_a_device_that_lost_a_part_is_smaller_and_comes_first(devices: int, pools: list[float]) -> None:
    found = remaining(problem(devices), Outage(amounts={"d-0": 2.0})).pools
    totals = [each.division.total for each in found if isinstance(each.division, Parts)]
    assert totals == pools
    assert [device.name for device in found[0].devices] == ["d-0"]


def test_a_device_without_anything_left_is_gone() -> None:
    assert remaining(problem(1), Outage(amounts={"d-0": 64.0})).pools == ()


def test_a_model_keeps_the_shares_on_which_it_loads() -> None:
    found = remaining(problem(), Outage(failing={(KIND, "a", ONE)})).demand_of
    assert [each.share for each in found["a"].options] == [TWO]
    assert [each.share for each in found["b"].options] == [ONE, TWO]


def test_a_model_that_fails_on_a_kind_has_no_share_of_it() -> None:
    found = remaining(problem(), Outage(failing={(KIND, "a", None), ("other", "b", None)})).demand_of
    assert found["a"].options == ()
    assert len(found["b"].options) == 2


def test_a_gpu_that_lost_an_instance_has_the_others() -> None:
    found = question({"a": 10.0}, 2, division=Instances(H200_141)).problem
    first, second = remaining(found, Outage(instances={"d-0": ((0, "4g.71gb"),)})).pools
    assert [device.name for device in first.devices] == ["d-0"]
    assert isinstance(first.division, Instances)
    assert {each.name for each in first.division.geometry} == {"1g.18gb", "1g.35gb", "2g.35gb", "3g.71gb"}
    assert second.division == Instances(H200_141)
    assert remaining(found, Outage(instances={"d-0": ((0, "7g.141gb"),)})).pools == (second,)


def test_a_model_that_fails_in_an_instance_of_two_processes_may_have_it_alone() -> None:
    share = Share.parse("mig:2g.35gb")
    found = question({"a": 10.0}, division=Instances(H200_141)).problem
    ways = (option(share=share), option(share=share, processes=2))
    found = replace(found, demands=tuple(replace(each, options=ways) for each in found.demands))
    left = remaining(found, Outage(failing={(KIND, "a", share.with_processes(2))})).demand_of["a"]
    assert left.options == ways[:1]
