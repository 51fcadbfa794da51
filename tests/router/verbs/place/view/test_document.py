"""The JSON of a decision."""

import json
from dataclasses import replace
from math import inf, nan
from typing import Any

import pytest

from router.verbs.place.view.document import __doc__ as schema
from router.verbs.place.view.document import document
from router.verbs.place.view.shown import PlaceReport
from serving.policy.placement.terms.plan import PlacementPlan
from serving.values.slice_specs import Share
from tests.router.verbs.place import samples
from tests.router.verbs.place.samples import (
    AFTER,
    BEFORE,
    CHANGED,
    FIRST,
    FLEET,
    KEPT,
    NOTHING,
    foretold,
    lacking,
)


def written(shown: PlaceReport) -> dict[str, Any]:
    """As it is read back; ValueError where a number is none that JSON has."""
    found: dict[str, Any] = json.loads(json.dumps(document(shown), allow_nan=False))
    return found


@pytest.mark.parametrize(
    "shown",
    [CHANGED, KEPT, FIRST, NOTHING, lacking(), foretold(nan, nan, nan, nan)],
    ids=["changed", "kept", "first", "nothing", "lacking", "not-predicted"],
)
def test_every_decision_has_the_same_keys_and_numbers_that_json_has(shown: PlaceReport) -> None:
    found = written(shown)
    assert list(found) == list(written(CHANGED))
    for model in found["models"].values():
        assert list(model) == list(written(CHANGED)["models"]["minilm"])


def test_the_placement_is_there_device_by_device() -> None:
    found = written(CHANGED)
    assert set(found["placement"]) == set(AFTER)
    assert set(found["before"]) == set(BEFORE)
    assert found["plan"] is None
    (_, second, third) = found["placement"]["gpu-0"]
    assert (third["share"], third["start"]) == ("mig:1g.10gb", 2)
    assert second["residents"] == [
        {
            "model": "bert-large-uncased", "variant": "fp16", "rows": 16, "processes": 1,
            "batch_ms": 79.6048, "capacity_rows_per_s": 200.993, "profiled_capacity": None,
        }
    ]  # fmt: skip
    assert found["placement"]["node-1"][0]["start"] is None


def test_shares_are_written_as_they_are_read() -> None:
    for slots in written(CHANGED)["placement"].values():
        for slot in slots:
            assert str(Share.parse(slot["share"])) == slot["share"]


def test_a_plan_that_is_not_taken_is_there_beside_what_stays() -> None:
    found = written(KEPT)
    assert found["taken"] is False
    assert found["placement"] == found["before"] == written(CHANGED)["before"]
    assert found["plan"] == written(CHANGED)["placement"]
    assert found["cost_per_hour"] == 4.65


def test_figures_have_their_units_in_their_names_and_six_digits() -> None:
    minilm = written(CHANGED)["models"]["minilm"]
    assert minilm == {
        "asked_rows_per_s": 1150.0, "rate_rows_per_s": 1380.0, "slo_ms": 100.0, "variants": ["fp16", "int8"],
        "replicas": 2, "capacity_rows_per_s": 1414.88, "short_rows_per_s": 0.0, "headroom": 0.230334,
        "domains": 2, "domains_min": 2, "attainment": 0.9985, "p99_ms": 60.0,
    }  # fmt: skip


def test_what_is_not_known_is_null() -> None:
    found = written(foretold(nan, nan, nan, nan))
    assert found["models"]["minilm"]["attainment"] is None
    unbounded = written(replace(CHANGED, plan=PlacementPlan(AFTER, 3.2, inf, "greedy")))
    assert (unbounded["bound_per_hour"], unbounded["gap"]) == (None, None)
    assert (found["bound_per_hour"], found["gap"]) == (2.91, 0.0996564)


def test_moves_and_steps_are_there() -> None:
    found = written(CHANGED)
    assert found["moves"]["models"]["digits"] == {"started": 3, "ended": 0, "kept": 1}
    assert len(found["moves"]["started"]) == 8
    assert {
        "device": "node-1", "share": "cores:8", "start": None, "model": "minilm", "variant": "int8",
    } in found["moves"]["started"]  # fmt: skip
    assert len(found["moves"]["ended"]) == 4
    assert [[step["action"] for step in stage] for stage in found["steps"]] == [
        ["create", "create"], ["load"], ["route", "stop", "resize"], ["drain"], ["unload"], ["destroy"],
    ]  # fmt: skip
    assert found["steps"][4] == [
        {
            "action": "unload", "device": "gpu-0", "share": "mig:7g.80gb", "start": 0, "model": "minilm",
            "variant": "fp16",
        }
    ]  # fmt: skip
    assert found["steps"][0][0]["model"] is None


def test_what_does_not_hold_is_said() -> None:
    assert written(CHANGED)["holds"] is True
    found = written(replace(CHANGED, taken=False, refused=("digits: too late",)))
    assert (found["holds"], found["refused"], found["taken"]) == (False, ["digits: too late"], False)
    assert found["placement"] == written(CHANGED)["placement"]
    assert found["plan"] is None
    assert found["sentence"].startswith("The best plan that was found breaks a promise: 3 of 6 devices")


def test_every_key_is_explained_and_no_other() -> None:
    told = schema or ""
    names = {word.strip(",;:") for word in told.split()}
    found = written(CHANGED)
    assert set(found) <= names
    assert set(found["models"]["minilm"]) <= names
    assert {key for slot in found["placement"]["gpu-0"] for key in slot} <= names
    assert {key for slot in found["placement"]["gpu-0"] for one in slot["residents"] for key in one} <= names


def test_devices_that_nothing_is_on_are_left_out() -> None:
    shown = replace(CHANGED, before={**BEFORE, "gpu-3": ()})
    assert "gpu-3" not in written(shown)["before"]
    assert written(CHANGED)["devices"] == sum(len(pool.devices) for pool in FLEET.pools)
    assert written(CHANGED)["devices_used"] == 3


def test_a_large_fleet_is_there_device_by_device() -> None:
    shown = samples.large(300)
    assert set(written(shown)["placement"]) == set(shown.after)
