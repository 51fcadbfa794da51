"""Several processes of a MIG instance: measured, planned, written as settings and applied as one slice."""

import json
from pathlib import Path

import pytest

from router.management.operations.proposal import proposal
from router.settings import load_settings
from router.verbs.place.live.applying import Running, body
from router.verbs.place.question.asked import PlacementTask, ask
from router.verbs.place.question.rates import RunningGateway
from router.verbs.place.question.standing import as_settings
from serving.planning.deciding import Decision
from serving.planning.predicting import Prediction
from serving.policy.placement.terms.check import faults
from serving.policy.placement.terms.moves import Verdict, moves
from serving.policy.placement.terms.plan import Placement, PlacementPlan
from serving.policy.transition.steps import Transition
from serving.values.slice_specs import Share
from tests.router.settings.rehearsed import H200, write_profiles
from tests.router.settings.samples import write_gateway
from tests.router.verbs.place.deployments import deployment, four_cores

DEVICES = f"devices: [{{name: h, kind: {H200}, divide: mig, rehearse: true}}]\n"
MODELS = "models: [{path: models/digits, slo_ms: 25, variants: [linear], default_variant: linear}]\n"
SEVERAL = 'slices: [{name: g, device: h, share: "mig:2g.35gb", count: 2, processes: 3}]\n'
SINGLE = 'slices: [{name: g, device: h, share: "mig:2g.35gb"}]\n'


@pytest.fixture(autouse=True)
def _machine(monkeypatch: pytest.MonkeyPatch) -> None:
    four_cores(monkeypatch)


def world(home: Path, slices: str) -> PlacementTask:
    """Three processes carry twice what one does."""
    path = deployment(home, DEVICES + slices + MODELS)
    write_profiles(home / "profiles", ["mig:2g.35gb"], ("digits", "linear"))
    write_profiles(home / "profiles", ["mig:2g.35gb*3"], ("digits", "linear"), row_us=1500)
    return ask(path, ["digits=100"], 0.2, RunningGateway(), None)


def decided(asked: PlacementTask, placement: Placement) -> Decision:
    return Decision(
        plan=PlacementPlan(placement, 1.0, 1.0, "by hand"),
        prediction=Prediction({}, {}),
        verdict=Verdict(True, "by hand"),
        moves=moves(asked.current, placement),
        transition=Transition(),
    )


def planned(home: Path) -> Placement:
    """Two instances of three processes each, as `current` of another deployment has them."""
    return world(home / "planned", SEVERAL).current


def test_the_slices_of_an_instance_are_one_slice_of_the_placement(tmp_path: Path) -> None:
    asked = world(tmp_path, SEVERAL)
    (slots,) = asked.current.values()
    assert [(str(slot.share), slot.processes) for slot in slots] == [("mig:2g.35gb", 3)] * 2
    assert len({slot.start for slot in slots}) == 2
    (resident,) = slots[0].residents
    assert resident.capacity == pytest.approx(
        3 * resident.rows * 1e6 / resident.option.latency_us(resident.rows)
    )
    assert not faults(asked.problem, asked.current)


def test_written_as_settings_it_is_an_entry_with_processes(tmp_path: Path) -> None:
    asked = world(tmp_path, SEVERAL)
    text = as_settings(asked, asked.current) or ""
    assert 'device: "h", share: "mig:2g.35gb", processes: 3}' in text
    keys = "    slo_ms: 25\n    variants: [linear]\n    default_variant: linear\n"
    path = write_gateway(tmp_path, DEVICES + text + keys)
    again = ask(path, ["digits=100"], 0.2, RunningGateway(), None)
    assert len(again.settings.slices) == 6
    assert again.current == asked.current


def test_applied_it_is_as_many_slices_with_one_instance(tmp_path: Path) -> None:
    asked = world(tmp_path, SINGLE)
    decision = decided(asked, planned(tmp_path))
    told, _ = body(asked, decision, Running.of(asked.settings))
    found = proposal(json.dumps(told).encode(), asked.settings, range(4)).settings
    instances: dict[str, list[Share]] = {}
    for each in found.slices:
        instances.setdefault(each.instance, []).append(each.share)
    assert [*instances.values()] == [[Share.parse("mig:2g.35gb*3")] * 3] * 2
    assert found.models[0].slices == tuple(each.name for each in found.slices)
    assert asked.settings.slices[0].name not in found.models[0].slices  # that one computed alone


def test_instances_that_stay_keep_the_names_of_their_slices(tmp_path: Path) -> None:
    asked = world(tmp_path, SEVERAL)
    told, _ = body(asked, decided(asked, asked.current), Running.of(asked.settings))
    found = proposal(json.dumps(told).encode(), asked.settings, range(4)).settings
    assert found.slices == asked.settings.slices
    assert "steps" not in told


def test_the_way_back_to_one_process_is_another_slice(tmp_path: Path) -> None:
    asked = world(tmp_path, SEVERAL)
    single = world(tmp_path / "planned", SINGLE).current
    told, _ = body(asked, decided(asked, single), Running.of(asked.settings))
    (found,) = proposal(json.dumps(told).encode(), asked.settings, range(4)).settings.slices
    assert (str(found.share), found.instance) == ("mig:2g.35gb", "")
    assert found.name not in {each.name for each in asked.settings.slices}


def test_a_plan_may_choose_several_processes(tmp_path: Path) -> None:
    asked = world(tmp_path, SINGLE)
    demand = asked.problem.demand_of["digits"]
    (offer,) = (each for each in demand.offers if each.option.share == Share.parse("mig:2g.35gb"))
    assert offer.option.processes == 3
    assert load_settings(asked.settings.path).slices[0].share.processes == 1
