"""A plan as what a gateway is told: slices that run keep their names, and who is not planned stays."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, event, given, settings
from hypothesis import strategies as st

from router.management.operations.applied import AppliedPlacement, PlannedFor, digest, keep
from router.management.operations.proposal import proposal
from router.settings import Settings, load_settings
from router.verbs.place.live.applying import UNSAYABLE, Running, as_running, body, with_sharing
from router.verbs.place.question.asked import PlacementTask, ask
from router.verbs.place.question.rates import RunningGateway
from router.verbs.simulate.traffic import SimulateRequestError
from serving.planning.deciding import Decision
from serving.planning.predicting import Prediction
from serving.policy.placement.terms.moves import Verdict, moves
from serving.policy.placement.terms.plan import PlacedReplica, Placement, PlacementPlan, Slot
from serving.policy.transition.planning import transition
from serving.policy.transition.steps import Transition, TransitionRefused
from serving.values.slice_specs import Share, SliceSpec
from tests.router.verbs.place.deployments import GATEWAY, HOST, deployment, four_cores
from tests.seeds import drawn

Layout = list[tuple[int, list[str]]]
"""Of each slice: cores, models."""


@pytest.fixture(autouse=True)
def _machine(monkeypatch: pytest.MonkeyPatch) -> None:
    four_cores(monkeypatch)


def running(filed: Settings) -> Running:
    """A gateway that has what the settings say."""
    return Running(
        {
            "slices": [
                {"name": each.name, "cores": len(each.cores), "threads": each.threads, "on": [*each.cores]}
                for each in filed.slices
            ],
            "models": {each.name: {"slices": [*each.slices]} for each in filed.models},
        }
    )


def world(home: Path, gateway: str = HOST + GATEWAY, rates: str = "digits=100,minilm=5") -> PlacementTask:
    return ask(deployment(home, gateway), [rates], 0.2, RunningGateway(), None)


def plan(asked: PlacementTask, layout: Layout, planned: bool = True) -> Decision:
    """Of that layout on the host; with its transition, if `planned`."""
    options = {
        (each.model, option.share.amount): option for each in asked.problem.demands for option in each.options
    }
    placement: Placement = {
        "host": tuple(
            Slot(
                Share("cores", float(cores)),
                tuple(PlacedReplica(model, options[model, float(cores)], 1, 100.0) for model in models),
            )
            for cores, models in layout
        )
    }
    way = (
        transition(asked.problem, asked.current, placement)
        if planned
        else TransitionRefused("digits has no room")
    )
    return Decision(
        plan=PlacementPlan(placement, 1.0, 1.0, "by hand"),
        prediction=Prediction({}, {"host/cores:2": 0.4, "host/cores:1": 0.1}),
        verdict=Verdict(True, "by hand"),
        moves=moves(asked.current, placement),
        transition=way,
    )


def told(asked: PlacementTask, decision: Decision, found: Running | None = None) -> dict[str, Any]:
    """The body, which the gateway of these settings takes."""
    there = found or running(asked.settings)
    said, _ = body(asked, decision, there)
    over = there.over(asked.settings)
    over = replace(over, models=tuple(each for each in over.models if each.slices))
    proposal(json.dumps(said).encode(), over, range(4))
    return said


def test_slices_that_stay_have_their_names_and_others_free_ones(tmp_path: Path) -> None:
    asked = world(tmp_path)
    found = told(asked, plan(asked, [(1, ["digits"]), (2, ["minilm"]), (1, ["minilm"])], planned=False))
    assert [(each["name"], each["cores"]) for each in found["slices"]] == [
        ("cpu-a", 1),
        ("cpu-b", 2),
        ("cpu-1", 1),
    ]
    assert found["models"]["digits"]["slices"] == ("cpu-a",)
    assert found["models"]["minilm"]["slices"] == ("cpu-b", "cpu-1")
    assert "steps" not in found


def test_what_was_planned_for_goes_with_it(tmp_path: Path) -> None:
    asked = world(tmp_path)
    found = told(asked, plan(asked, [(1, ["digits"]), (2, ["minilm"]), (1, ["minilm"])], planned=False))
    assert found["models"]["minilm"] == {
        "slices": ("cpu-b", "cpu-1"),
        "variant": "fp32",
        "requests_per_s": 5.0,
        "rows": 1.0,
        "capacity_rows_per_s": 200.0,
    }


def test_a_transition_from_what_runs_is_gone_through_state_by_state(tmp_path: Path) -> None:
    asked = world(tmp_path)
    decision = plan(asked, [(1, ["digits"]), (2, ["minilm"]), (1, ["minilm"])])
    assert isinstance(decision.transition, Transition)
    found = told(asked, decision)
    assert {each["name"]: each["cores"] for each in found["slices"]} == {"cpu-a": 1, "cpu-b": 2, "cpu-1": 1}
    assert found["models"]["digits"]["slices"] == ("cpu-a",)
    first = {each["name"]: each["models"] for each in found["steps"][0]}
    assert first["cpu-a"] == {"digits": True, "minilm": True}
    states = [{each["name"]: each["models"] for each in state} for state in found["steps"]]
    assert any(state.get("cpu-1") == {"minilm": True} and "minilm" in state["cpu-a"] for state in states)


@pytest.mark.parametrize(
    "change",
    [
        lambda told: told["models"].update(other={"slices": ["cpu-a"]}),  # a model that the plan knows not
        lambda told: told["slices"].append({"name": "idle", "cores": 1, "threads": 1, "on": [3]}),
        lambda told: told["slices"][0].update(cores=2, on=[0, 3]),  # more cores than threads
    ],
)
def test_where_something_else_runs_as_well_nothing_is_gone_through(tmp_path: Path, change: Any) -> None:
    asked = world(tmp_path)
    there = running(asked.settings)
    change(there.told)
    said, _ = body(asked, plan(asked, [(1, ["digits"]), (2, ["minilm"]), (1, ["minilm"])]), there)
    assert "steps" not in said


def test_a_slice_with_other_cores_than_threads_is_another_one(tmp_path: Path) -> None:
    asked = world(tmp_path)
    there = running(asked.settings)
    there.told["slices"][0].update(cores=2, on=[0, 3])
    said, _ = body(asked, plan(asked, [(1, ["digits", "minilm"]), (2, ["minilm"])]), there)
    assert [each["name"] for each in said["slices"]] == ["cpu-1", "cpu-b"]


def test_models_that_nothing_is_asked_of_stay_where_their_slice_does_or_go_where_least_is_done(
    tmp_path: Path,
) -> None:
    asked = world(tmp_path, rates="digits=100")
    there = running(asked.settings)
    said, notes = body(asked, plan(asked, [(1, ["digits"])], planned=False), there)
    assert said["models"]["minilm"] == {"slices": ("cpu-a",)}
    assert notes == ["not in the plan, as nothing is asked of it: minilm; kept on cpu-a"]
    there.told["models"]["minilm"]["slices"] = ["cpu-b"]
    said, notes = body(asked, plan(asked, [(2, ["digits"]), (1, ["digits"])], planned=False), there)
    assert [each["name"] for each in said["slices"]] == ["cpu-1", "cpu-a"]
    assert said["models"]["minilm"] == {"slices": ("cpu-a",)}


def test_what_no_gateway_can_run_is_not_applied(tmp_path: Path) -> None:
    asked = world(tmp_path)
    decision = plan(asked, [(1, ["digits"])], planned=False)
    with pytest.raises(SimulateRequestError, match="is planned, and the gateway does not serve digits"):
        body(asked, decision, Running({"slices": [], "models": {}}))
    nothing = replace(decision, plan=PlacementPlan({}, 0.0, 0.0, "none"))
    with pytest.raises(SimulateRequestError) as refused:
        body(asked, nothing, running(asked.settings))
    assert str(refused.value) == UNSAYABLE


def test_without_a_way_slices_share_cores_and_that_is_said(tmp_path: Path) -> None:
    asked = world(tmp_path)
    decision = plan(asked, [(4, ["digits", "minilm"])], planned=False)
    shared, allowed = with_sharing(asked, decision)
    assert allowed.transition == Transition()
    assert shared.notes[-1].startswith("there is no way without sharing cores: while it is applied,")
    assert with_sharing(asked, replace(decision, refused=("late",)))[1].transition == decision.transition
    elsewhere = replace(decision, plan=PlacementPlan({}, 0.0, 0.0, "none"))
    assert with_sharing(asked, elsewhere)[1].transition == decision.transition


def test_what_runs_is_what_is_planned_from(tmp_path: Path) -> None:
    asked = world(tmp_path)
    there = running(asked.settings)
    there.told["slices"] = [{"name": "cpu-z", "cores": 4, "threads": 4, "on": [0, 1, 2, 3]}]
    there.told["models"] = {"digits": {"slices": ["cpu-z"]}}
    ((slot,),) = as_running(asked, there).current.values()
    assert (slot.share.amount, [each.model for each in slot.residents]) == (4.0, ["digits"])


def test_what_was_applied_is_what_is_in_place_without_a_gateway_too(tmp_path: Path) -> None:
    path = deployment(tmp_path, HOST + GATEWAY)
    filed = load_settings(path)
    models = {"digits": ("cpu-1",), "minilm": ("cpu-1",)}
    slices = (SliceSpec("cpu-1", (0, 1, 2, 3), 4),)
    keep(
        path,
        AppliedPlacement("a", "then", digest(filed), slices, models, {"digits": PlannedFor(1.0, 1.0, 1.0)}),
    )
    asked = ask(path, ["digits=100,minilm=5"], 0.2, RunningGateway(), None)
    ((slot,),) = asked.current.values()
    assert slot.share.amount == 4.0
    assert any("slices are as a placement has them that was applied (then)" in note for note in asked.notes)


_MODELS = st.lists(st.sampled_from(["digits", "minilm"]), min_size=1, max_size=2, unique=True)


@st.composite
def _layouts(draw: st.DrawFn) -> Layout:
    """Of at most four cores; each model is somewhere."""
    found: Layout = []
    for cores in draw(st.permutations([1, 1, 1, 2, 2, 4])):
        if sum(each for each, _ in found) + cores <= 4 and (not found or draw(st.booleans())):
            found.append((cores, sorted(draw(_MODELS))))
    there = {model for _, models in found for model in models}
    first, models = found[0]
    return [(first, sorted({*models, *({"digits", "minilm"} - there)})), *found[1:]]


def _written(layout: Layout) -> str:
    slices = [f"{{name: old-{n}, cores: {cores}, threads: {cores}}}" for n, (cores, _) in enumerate(layout)]
    text = GATEWAY.split("models:")[1]
    for model, was in (("digits", "[cpu-a]"), ("minilm", "[cpu-a, cpu-b]")):
        names = ", ".join(f"old-{n}" for n, (_, models) in enumerate(layout) if model in models)
        before, after = text.split(f"models/{model}", 1)
        text = f"{before}models/{model}{after.replace(was, f'[{names}]', 1)}"
    return f"{HOST}slices: [{', '.join(slices)}]\nmodels:{text}"


@pytest.mark.slow
@settings(max_examples=drawn(40), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(_layouts(), _layouts())
def test_whatever_runs_and_whatever_is_planned_the_gateway_is_told_just_that(
    tmp_path: Path, before: Layout, after: Layout
) -> None:
    asked = world(tmp_path, _written(before), "digits=10,minilm=5")
    decision = plan(asked, after)
    asked, decision = with_sharing(asked, decision)
    said, notes = body(asked, decision, running(asked.settings))
    assert notes == []
    found = proposal(json.dumps(said).encode(), asked.settings, range(4))
    there = [
        (len(spec.cores), sorted(each.name for each in found.settings.models if spec.name in each.slices))
        for spec in found.settings.slices
    ]
    assert sorted(there) == sorted(after)
    old = {each.name: each for each in asked.settings.slices}
    assert all(old.get(each.name, each) == each for each in found.settings.slices)
    assert all(each.name in old or each.name.startswith("cpu-") for each in found.settings.slices)
    event(f"{min(len(found.by), 3)} states on the way")
    for state in found.by:  # every model takes requests in every state
        routed = {each.model for one in state.slices for each in one.replicas if each.routed}
        assert routed == {"digits", "minilm"}
        cores = [core for one in state.slices for core in one.spec.cores]
        assert len(cores) == len({*cores})
