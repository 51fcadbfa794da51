"""Loads that fail again and again are known by place and model, until one succeeds."""

from serving.control.failing import FailingLoads
from serving.control.reconciling import LOAD_TRIES


def test_a_load_fails_for_good_once_it_has_failed_as_often_as_a_rollout_allows() -> None:
    loads = FailingLoads()
    for _ in range(LOAD_TRIES - 1):
        loads.failed("a", "m")
        loads.failed("b", "m")
    assert loads.found == frozenset()
    loads.failed("a", "m")
    assert loads.found == {("a", "m")}


def test_a_model_with_other_files_begins_anew_everywhere() -> None:
    loads = FailingLoads()
    for _ in range(LOAD_TRIES):
        for place, model in (("a", "m"), ("b", "m"), ("a", "n")):
            loads.failed(place, model)
    loads.forget("m")
    assert loads.found == {("a", "n")}


def test_a_load_that_succeeds_begins_anew() -> None:
    loads = FailingLoads()
    for _ in range(LOAD_TRIES):
        loads.failed("a", "m")
    loads.loaded("a", "m")
    assert loads.found == frozenset()
    loads.failed("a", "m")
    assert loads.found == frozenset()
