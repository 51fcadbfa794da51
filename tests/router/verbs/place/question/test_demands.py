"""What a placement has to carry follows from rates, settings and profiles; what cannot be is named."""

from dataclasses import replace
from pathlib import Path

import pytest

from router.settings import load_settings
from router.verbs.place.question.demands import Neighbours, demands
from router.verbs.place.question.fleet import pools
from router.verbs.simulate.traffic import SimulateRequestError
from serving.planning.task import AskedRate
from serving.policy.placement.terms.problem import Demand
from serving.profile.curve import Origin
from serving.profile.derived.interference import Slowdown
from serving.profile.files.corun import CoRun, Tenant
from serving.profile.files.store import ProfileStore
from serving.simulation.traffic.traffic import constant
from serving.values.slice_specs import Share
from tests.router.settings.samples import write_deployment
from tests.router.verbs.place.deployments import GATEWAY, H200, HERE, HOST, ROWS, beside, deployment, measured

RATES = {"digits": AskedRate(100.0, constant(2)), "minilm": AskedRate(5.0)}


def asked(
    path: Path, rates: dict[str, AskedRate] | None = None, reserve: float = 0.2
) -> tuple[dict[str, Demand], list[str]]:
    settings = load_settings(path)
    found, notes = demands(settings, RATES if rates is None else rates, pools(settings.devices), reserve)
    return {each.model: each for each in found}, notes


def refusal(path: Path) -> str:
    with pytest.raises(SimulateRequestError) as caught:
        asked(path)
    return str(caught.value)


def test_a_rate_is_in_rows_and_with_its_reserve(tmp_path: Path) -> None:
    found, _ = asked(deployment(tmp_path))
    assert found["digits"].rate == pytest.approx(240)
    assert found["digits"].slo_us == 25_000
    assert found["minilm"].rate == pytest.approx(6)


def test_models_without_a_rate_are_no_demand_and_those_of_rate_zero_need_no_profile(tmp_path: Path) -> None:
    found, _ = asked(write_deployment(tmp_path, HOST + GATEWAY), {"digits": AskedRate(0.0)})
    assert [(each.model, each.rate, each.options) for each in found.values()] == [("digits", 0.0, ())]


def test_an_option_is_what_was_measured_of_the_variant_that_answers(tmp_path: Path) -> None:
    path = deployment(tmp_path)
    measured(tmp_path, "digits", "cnn", Share("cores", 1.0), 1.0)
    options = asked(path)[0]["digits"].options
    assert [str(each.share) for each in options] == ["cores:1", "cores:2", "cores:4"]
    one, two, _ = options
    assert (one.kind, one.variant, one.processes) == (HERE, "linear", 1)
    assert one.curve == tuple((rows, 1000.0 + 1000 * rows) for rows in ROWS)
    assert two.curve == tuple((rows, 1000.0 + 500 * rows) for rows in ROWS)
    assert one.memory_bytes == (1 << 20) + (16 << 10)  # the variant, and what its largest batch takes
    assert one.load_us == 320_000
    assert (one.pressure, one.sensitivity) == (0.0, 0.0)


def test_rows_are_planned_as_of_the_largest_size_and_that_is_said(tmp_path: Path) -> None:
    found, notes = asked(deployment(tmp_path))
    assert found["minilm"].options[0].curve == tuple((rows, 1000.0 + 5000 * rows) for rows in ROWS)
    assert "minilm is planned as if every row were of the largest size, 128 (bytes)" in notes
    assert not any("digits" in note for note in notes)


def test_a_size_beyond_those_that_were_measured_costs_what_the_largest_does(tmp_path: Path) -> None:
    path = deployment(tmp_path)
    measured(tmp_path, "minilm", "fp32", Share("cores", 1.0), 2500, sizes=(64,))
    assert asked(path)[0]["minilm"].options[0].curve == tuple((rows, 1000.0 + 2500 * rows) for rows in ROWS)


@pytest.mark.parametrize(("size", "largest"), [(16, 16), (7, 4), (1, 1)])
def test_batches_are_no_larger_than_their_policy_forms_them(tmp_path: Path, size: int, largest: int) -> None:
    sized = HOST + GATEWAY.replace(
        "default_variant: linear", f"default_variant: linear, batching: {{policy: static, size: {size}}}"
    )
    assert asked(deployment(tmp_path, sized))[0]["digits"].options[0].curve[-1][0] == largest


def test_of_a_profile_of_larger_batches_only_the_smallest_is_as_dear(tmp_path: Path) -> None:
    path = deployment(tmp_path)
    store = ProfileStore(tmp_path / "profiles")
    profile = store.read(HERE, "minilm", "fp32", Share("cores", 1.0))
    assert profile is not None
    large = tuple(replace(point, rows=64 * point.rows) for point in profile.points)
    store.write(replace(profile, points=large))
    assert asked(path)[0]["minilm"].options[0].curve == ((32, 6000.0),)  # batch_max is 32


def test_several_processes_and_other_kinds_are_options_of_their_own(tmp_path: Path) -> None:
    path = deployment(tmp_path, HOST.replace("]", f", {{name: g, kind: {H200}}}]") + GATEWAY)
    instance = Share.parse("mig:2g.35gb")
    profile = measured(tmp_path, "digits", "linear", instance, 100)
    ProfileStore(tmp_path / "profiles").write(replace(profile, share=instance.with_processes(3)))
    one, three = asked(path)[0]["digits"].options[3:]
    assert [(each.kind, str(each.share), each.processes) for each in (one, three)] == [
        (H200, "mig:2g.35gb", 1), (H200, "mig:2g.35gb", 3),
    ]  # fmt: skip
    assert three.memory_bytes == 3 * one.memory_bytes
    assert one.profiled is not None
    assert three.profiled is not None
    assert three.profiled.rate == pytest.approx(3 * one.profiled.rate)


def test_what_is_predicted_and_not_measured_is_said(tmp_path: Path) -> None:
    path = deployment(tmp_path)
    store = ProfileStore(tmp_path / "profiles")
    profile = store.read(HERE, "digits", "linear", Share("cores", 2.0))
    assert profile is not None
    store.write(replace(profile, share=Share("cores", 3.0), origin=Origin(error=0.1)))
    assert f"digits was not measured on cores:3 of {HERE}: that is predicted" in asked(path)[1]


def test_a_damaged_profile_is_named(tmp_path: Path) -> None:
    path = deployment(tmp_path)
    (tmp_path / "profiles" / HERE / "digits.cnn.json").write_text("{")
    (tmp_path / "profiles" / "local" / HERE).mkdir(parents=True)
    (tmp_path / "profiles" / "local" / HERE / "digits.linear.json").write_text("{")
    (note,) = (note for note in asked(path)[1] if "ignored" in note)
    assert "local" in note  # the other is of a variant that does not answer


def tenant(model: str, rows: int, size: int = 0) -> Tenant:
    return Tenant(model, "linear" if model == "digits" else "fp32", Share("cores", 1.0), rows, size)


def test_pressure_and_sensitivity_follow_from_co_runs(tmp_path: Path) -> None:
    path = deployment(tmp_path)
    beside(tmp_path, tenant("digits", 8), tenant("minilm", 16, 128), 1.5)
    beside(tmp_path, tenant("minilm", 16, 128), tenant("digits", 8), 1.1)
    found, _ = asked(path)
    digits, minilm = found["digits"].options[0], found["minilm"].options[0]
    assert 1 + digits.sensitivity * minilm.pressure == pytest.approx(1.5)
    assert 1 + minilm.sensitivity * digits.pressure == pytest.approx(1.1)


def test_both_numbers_are_those_of_the_fitted_model() -> None:
    tenants = [tenant("digits", 1), tenant("digits", 8), tenant("minilm", 4, 128)]
    runs = [
        CoRun(one, (other,), 100.0, 100.0 + 7 * place * (number + 1), 5)
        for place, one in enumerate(tenants)
        for number, other in enumerate(tenants)
    ]
    fit = Slowdown.fit(runs)
    for each in (*tenants, tenant("digits", 3), Tenant("new", "x", Share("cores", 2.0), 9)):
        pressure, sensitivity = Neighbours(runs).of(each)
        for other in tenants:
            assert 1 + sensitivity * fit.pressure[other] == pytest.approx(fit.factor(each, [other]))
            assert 1 + fit.sensitivity[other] * pressure == pytest.approx(fit.factor(other, [each]))


def test_neighbours_that_never_slowed_anyone_press_on_nobody() -> None:
    quiet = CoRun(tenant("digits", 1), (tenant("digits", 8),), 100.0, 99.0, 5)
    assert Neighbours([quiet]).of(tenant("digits", 1)) == (0.0, 0.0)
    assert Neighbours([]).of(tenant("digits", 1)) == (0.0, 0.0)


def test_models_that_were_never_measured_there_are_named_with_the_command_that_measures_them(
    tmp_path: Path,
) -> None:
    both = f"devices: [{{name: h, kind: cpu-other, cores: 2}}, {{name: g, kind: {H200}, divide: mig}}]\n"
    first, second = refusal(deployment(tmp_path, both + GATEWAY)).splitlines()
    command = "penstock profile digits --variant linear"
    assert first == (
        f"digits (linear) was never measured on cpu-other, {H200}: measure it there with "
        f"`{command} --shares 1,2` or `{command} --device cuda:0 --shares mig:1g.18gb,mig:3g.71gb`"
    )
    assert second.startswith("minilm (fp32) was never measured on")


def test_shares_that_no_device_has_to_give_are_no_way_to_run_a_model(tmp_path: Path) -> None:
    path = write_deployment(tmp_path, HOST.replace("cores: 4", "cores: 1") + GATEWAY)
    for cores in (2.0, 4.0):
        measured(tmp_path, "digits", "linear", Share("cores", cores), 1000)
    measured(tmp_path, "minilm", "fp32", Share("cores", 1.0), 1000, sizes=(128,))
    said = (
        f"digits (linear) was measured on cores:2 of {HERE}, cores:4 of {HERE} only, which no device here has"
    )
    assert refusal(path).startswith(f"{said} to give: measure it there with `penstock profile digits")
    assert len(refusal(path).splitlines()) == 1


def test_an_slo_that_even_one_row_misses_is_named_with_one_that_would_do(tmp_path: Path) -> None:
    text = HOST + GATEWAY.replace("slo_ms: 200", "slo_ms: 4")
    assert refusal(deployment(tmp_path, text)) == (
        "minilm (fp32) keeps its SLO of 4 ms nowhere: a batch may take 1.8 ms of it, and one row alone takes "
        f"2.25 ms at least, on cores:4 of {HERE}; an slo_ms of 5 would do"
    )
    exactly = HOST + GATEWAY.replace("slo_ms: 200", "slo_ms: 5")
    assert asked(deployment(tmp_path, exactly))[0]["minilm"].offers
