"""What the simulator foretells of a placement: held against `penstock simulate` and against arithmetic."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from math import isnan
from pathlib import Path

import pytest

from router.verbs.place.question.asked import ask
from router.verbs.place.question.rates import RunningGateway
from router.verbs.simulate.cases import SimulatedDeployment, cases
from router.verbs.simulate.runs import Conditions, play
from router.verbs.simulate.traffic import DrawnTraffic, Shape, read_loads
from serving.planning.predicting import PHYSICS, Foretold, Prediction, predict
from serving.planning.task import AskedRate, PlanningTask
from serving.policy.placement.terms.plan import Placement, Slot
from serving.policy.placement.terms.problem import Instances
from serving.profile.files.corun import Tenant
from serving.simulation.devices.faults import Hazards
from serving.simulation.traffic.traffic import constant
from serving.values.slice_specs import Share
from tests.planning.worlds import on_each, on_one, option, question, resident, slot
from tests.router.verbs.place.deployments import GATEWAY, HOST, beside, deployment, four_cores

OVERHEAD_MS = PHYSICS.overhead_us / 1000


def digits(path: Path) -> PlanningTask:
    """Return the task of 50 requests a second for digits."""
    return ask(path, ["digits=50"], 0.0, RunningGateway(), None).planning


def foretold(
    rates: Mapping[str, float], slots: Sequence[Slot], seconds: float = 2.0, seed: int = 1
) -> Mapping[str, Foretold]:
    return predict(question(rates, len(slots)), on_each(slots), seconds, seed).models


@pytest.mark.slow
def test_what_the_slices_can_carry_is_in_time_and_what_they_cannot_is_not() -> None:
    one = [slot(resident("a"))]
    light, heavy = foretold({"a": 300.0}, one)["a"], foretold({"a": 2000.0}, one)["a"]
    assert light.attainment == 1.0
    assert light.goodput == pytest.approx(300, rel=0.1)
    assert heavy.offered == pytest.approx(2000, rel=0.1)
    assert heavy.goodput == pytest.approx(1000, rel=0.15)  # a row takes 1 ms, in batches of any size
    assert heavy.attainment == pytest.approx(heavy.goodput / heavy.offered)
    twice = foretold({"a": 1500.0}, one * 2)["a"]
    assert twice.attainment > 0.99


@pytest.mark.slow
def test_it_foretells_what_penstock_simulate_does(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    four_cores(monkeypatch)
    path = deployment(tmp_path)
    asked = ask(path, ["digits=300,minilm=40"], 0.0, RunningGateway(), None).planning
    found = predict(asked, asked.current, 20.0, 1).models
    traffic = DrawnTraffic(read_loads(["digits=300,minilm=40"]), Shape(20.0))
    (case,) = cases([path], [], SimulatedDeployment(), traffic)
    conditions = Conditions(PHYSICS, Hazards(0.0, 0.0, 1), (1, 2, 3))
    simulated = play(case, traffic, conditions, lambda _what, _seconds: None)
    for model, ours in found.items():
        theirs = simulated.figures[model]
        assert ours.attainment == pytest.approx(theirs.attainment, abs=0.02)
        assert ours.p50_ms == pytest.approx(theirs.p50_ms, rel=0.15)
        assert ours.p99_ms == pytest.approx(theirs.p99_ms, rel=0.25)
        assert ours.goodput == pytest.approx(theirs.goodput, rel=0.1)
    busy = predict(asked, asked.current, 20.0, 1).busy
    assert list(busy) == ["host/cores:1", "host/cores:2"]
    assert list(busy.values()) == pytest.approx(list(simulated.busy.values()), abs=0.05)


@pytest.mark.slow
def test_the_same_seed_is_the_same_prediction_and_another_is_not() -> None:
    asked, placement = question({"a": 300.0, "b": 100.0}), on_one([slot(resident("a"), resident("b"))])
    first = predict(asked, placement, 2.0, 1)
    assert predict(asked, placement, 2.0, 1) == first
    assert predict(asked, placement, 2.0, 2) != first


def test_a_models_requests_are_the_same_whoever_else_is_there() -> None:
    alone = foretold({"a": 300.0}, [slot(resident("a"))])["a"]
    beside_b = foretold({"a": 300.0, "b": 50.0}, [slot(resident("a")), slot(resident("b"))])["a"]
    assert (beside_b.requests, beside_b.offered) == (alone.requests, alone.offered)


def test_a_slice_is_busy_for_as_long_as_its_batches_take() -> None:
    asked = question({"a": 400.0, "b": 10.0}, 2)
    found = predict(asked, on_each([slot(resident("a")), slot(resident("b"))]), 6.0, 1)
    assert set(found.busy) == {"d-0/cores:1", "d-1/cores:1"}
    assert found.busy["d-0/cores:1"] == pytest.approx(0.4, abs=0.05)
    assert found.busy["d-1/cores:1"] < 0.05


def test_neighbours_make_batches_longer_where_shares_do_not_isolate() -> None:
    loud = option(pressure=1.0, sensitivity=0.8)
    placement = on_one([slot(resident("a", loud)), slot(resident("b", loud))])
    rates = {"a": 50.0, "b": 50.0}
    slowed = predict(question(rates), placement, 4.0, 1)
    isolated = predict(question(rates, division=Instances(())), placement, 4.0, 1)
    assert slowed.models["a"].p50_ms - 0.7 == pytest.approx(
        1.8 * (isolated.models["a"].p50_ms - 0.7), rel=0.1
    )
    assert slowed.busy["d-0/cores:1"] == pytest.approx(1.8 * isolated.busy["d-0/cores:1"], rel=0.1)


@pytest.mark.slow
def test_measured_co_runs_reach_the_prediction(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    four_cores(monkeypatch)
    path = deployment(tmp_path)
    before = ask(path, ["digits=20,minilm=5"], 0.0, RunningGateway(), None).planning
    one, other = (
        Tenant("digits", "linear", Share("cores", 1.0), 8),
        Tenant("minilm", "fp32", Share("cores", 2.0), 16, 128),
    )
    beside(tmp_path, one, other, 2.0)
    after = ask(path, ["digits=20,minilm=5"], 0.0, RunningGateway(), None).planning
    quiet, loud = (predict(each, each.current, 4.0, 1).models["digits"].p50_ms for each in (before, after))
    assert loud > quiet + 1.5  # a row takes 2 ms, now 4


def test_a_replica_of_several_processes_computes_as_many_batches_at_once() -> None:
    rates = {"a": 1600.0}
    single, double = (
        foretold(rates, [slot(resident("a", option(processes=processes)))])["a"] for processes in (1, 2)
    )
    assert single.attainment < 0.8
    assert double.attainment > 0.99


def test_requests_of_several_rows_take_as_much_longer() -> None:
    asked = question({"a": 100.0})
    rows = replace(asked, rates={"a": AskedRate(100.0, constant(4))})
    placement = on_one([slot(resident("a"))])
    assert predict(rows, placement, 4.0, 1).busy["d-0/cores:1"] == pytest.approx(0.4, abs=0.06)


@pytest.mark.slow
def test_far_more_than_can_be_carried_is_no_far_longer_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("serving.planning.parts.WORK_MAX", 200_000.0)
    for rate in (1e5, 1e9):
        found = foretold({"a": rate}, [slot(resident("a"))])["a"]
        assert found.requests < 25_000
        assert found.offered == pytest.approx(rate, rel=0.1)
        assert found.attainment < 0.05


@pytest.mark.parametrize("rate", [1e-9, 1e-3])
def test_what_is_hardly_ever_asked_for_may_have_no_figures(rate: float) -> None:
    found = foretold({"a": rate}, [slot(resident("a"))])["a"]
    assert isnan(found.attainment) == (found.requests == 0)


def test_requests_larger_than_any_batch_are_served_in_pieces() -> None:
    asked = replace(question({"a": 5.0}, slo_ms=500), rates={"a": AskedRate(5.0, constant(20))})
    found = predict(asked, on_one([slot(resident("a"))]), 2.0, 1)
    assert found.models["a"].attainment == 1.0


def test_a_model_without_a_replica_has_nothing_in_time() -> None:
    found = foretold({"a": 50.0, "b": 20.0}, [slot(resident("a"))])
    assert found["a"].attainment == 1.0
    assert (found["b"].offered, found["b"].attainment, found["b"].goodput) == (20.0, 0.0, 0.0)
    assert isnan(found["b"].p99_ms)


@pytest.mark.parametrize("placement", [{}, on_one([slot(resident("a"))])])
def test_where_nothing_is_asked_nothing_is_foretold(placement: Placement) -> None:
    found = predict(question({"a": 0.0}), placement, 2.0, 1)
    assert found.models == {}
    assert all(share == 0 for share in found.busy.values())
    assert predict(question({}), {}, 2.0, 1) == Prediction({}, {})


def test_idle_models_of_a_slice_are_no_matter() -> None:
    found = foretold({"a": 100.0, "b": 0.0}, [slot(resident("a"), resident("b"))])
    assert set(found) == {"a"}
    assert found["a"].attainment == 1.0


def test_progress_comes_to_one() -> None:
    told: list[tuple[str, float]] = []
    asked = question({"a": 300.0, "b": 100.0}, 2)
    predict(
        asked, on_each([slot(resident("a")), slot(resident("b"))]), 6.0, 1, lambda *each: told.append(each)
    )
    assert sum(share for _, share in told) == pytest.approx(1.0)
    assert all(share >= 0 for _, share in told)
    assert list(dict.fromkeys(what for what, _ in told)) == ["a", "b"]


@pytest.mark.slow
def test_a_part_of_many_replicas_foretells_what_becomes_of_all(monkeypatch: pytest.MonkeyPatch) -> None:
    rates = {"a": 16 * 200.0}
    asked, placement = question(rates, 16), on_each([slot(resident("a", option(4000.0)))] * 16)
    whole = predict(asked, placement, 2.0, 1)
    monkeypatch.setattr("serving.planning.parts.WORK_MAX", 50_000.0)
    part = predict(asked, placement, 2.0, 1)
    assert not whole.scaled
    assert part.scaled == ("of a 0.5 of the rate and of the replicas was simulated",)
    assert (whole.models["a"].share, part.models["a"].share) == (1.0, 0.5)
    assert len(part.busy) == 8
    assert part.models["a"].offered == pytest.approx(16 * 200, rel=0.05)
    assert part.models["a"].goodput == pytest.approx(whole.models["a"].goodput, rel=0.05)
    assert part.models["a"].attainment == pytest.approx(whole.models["a"].attainment, abs=0.01)
    assert list(part.busy.values()) == pytest.approx([0.8] * 8, abs=0.08)


def test_models_that_were_left_out_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    rates = {"a": 500.0, "b": 400.0, "c": 300.0}
    asked, placement = question(rates, 3), on_each([slot(resident(model)) for model in "abc"])
    monkeypatch.setattr("serving.planning.parts.WORK_MAX", 10_000.0)
    found = predict(asked, placement, 2.0, 1)
    assert (set(found.models), found.left_out) == ({"a"}, ("b", "c"))
    assert found.scaled == ("2 models were not simulated, as that would take too long",)


def test_batches_are_formed_as_the_settings_say(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    four_cores(monkeypatch)
    patient = "default_variant: linear, batching: {policy: static, size: 16, delay_ms: 10}"
    soon, late = (
        predict(asked, asked.current, 2.0, 1).models["digits"]
        for gateway in (GATEWAY, GATEWAY.replace("default_variant: linear", patient))
        for asked in [digits(deployment(tmp_path, HOST + gateway))]
    )
    assert soon.p50_ms < 4
    assert late.p50_ms > 10


def test_what_is_foretold_is_of_the_placed_variant_whatever_else_may_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    four_cores(monkeypatch)
    tiers = "tiers: [{name: low, optimize: cheapest, slo_ms: 1}]\n"
    chosen = GATEWAY.replace("default_variant: linear", "accuracy_min: 0.9")
    fixed, free = (
        predict(asked, asked.current, 2.0, 1).models["digits"]
        for gateway in (GATEWAY, tiers + chosen)
        for asked in [digits(deployment(tmp_path, HOST + gateway))]
    )
    assert free == fixed
