"""The fleets that solvers of placement are measured by, and what is told of them."""

from pathlib import Path

import pytest

from loadtests.placing import fleets, placement
from loadtests.placing.placement import Line, Result, measure, row
from serving.policy.placement.solvers.bound import lower_bound
from serving.policy.placement.terms.problem import Demand, Option, PlacementProblem
from serving.values.slice_specs import Share

PROFILE = """Mig instance,Batch size,Workload Number,Throughput,Latency
1,1,1,50.0,0.02
1,4,1,40.0,0.1
1,2,2,100.0,0.04
7,1,1,0,0
7,8,1,1000.0,0.008
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "prof_data").mkdir()
    (tmp_path / "SLO").mkdir()
    for model in ("bert", "vgg16"):
        (tmp_path / "prof_data" / f"{model}.csv").write_text(PROFILE)
    (tmp_path / "SLO" / "SLO_req_rate.csv").write_text("19,353\n46,N/A\n")
    (tmp_path / "SLO" / "SLO_latency.csv").write_text("200,300.5\n100,N/A\n")
    return tmp_path


def test_curves_are_rows_over_throughput_and_never_fall(folder: Path) -> None:
    found = fleets.measured(folder)
    assert list(found) == ["bert", "vgg16"]
    assert [(each.share.label, each.processes, each.curve) for each in found["bert"]] == [
        ("1g.10gb", 1, ((1, 20_000.0), (4, 100_000.0))),
        ("1g.10gb", 2, ((2, 20_000.0),)),
        ("7g.80gb", 1, ((8, 8_000.0),)),
    ]


def test_a_smaller_batch_takes_no_longer_than_a_larger_one(folder: Path) -> None:
    (folder / "prof_data" / "bert.csv").write_text(PROFILE.replace("4,1,40.0", "4,1,400.0"))
    assert fleets.measured(folder)["bert"][0].curve == ((1, 10_000.0), (4, 10_000.0))


def test_scenarios_leave_out_models_that_are_not_asked_for(folder: Path) -> None:
    first, second = (fleets.scenario(folder, number, processes_max=1) for number in (1, 2))
    assert [(each.model, each.rate, each.slo_us) for each in first] == [
        ("bert", 19.0, 200_000.0),
        ("vgg16", 353.0, 300_500.0),
    ]
    assert [each.model for each in second] == ["bert"]
    assert {way.processes for each in first for way in each.options} == {1}


def test_large_fleets_come_to_so_many_devices_and_are_the_same_each_time() -> None:
    models = fleets.drawn(7, 3)
    demands = fleets.large(7, 20, 50.0, models)
    assert lower_bound(fleets.fleet(demands, 500)) == pytest.approx(50.0, rel=1e-4)
    assert demands == fleets.large(7, 20, 50.0, fleets.drawn(7, 3))


@pytest.mark.slow
def test_each_solver_is_asked_for_what_it_is_not_too_slow_for(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = fleets.fleet(fleets.large(7, 5, 8.0, fleets.drawn(7, 3)), 30)
    line = measure("five", problem)
    assert list(line.results) == list(placement.SOLVERS)
    best = line.results["exact"]
    assert best.proved
    assert line.bound <= line.whole <= best.devices
    assert all(best.devices <= result.devices <= 30 for result in line.results.values())
    monkeypatch.setattr(placement, "SOLVERS", {"exact": (placement.exact, 4)})
    assert measure("five", problem).results == {}


def test_a_solver_that_carries_too_little_is_an_error() -> None:
    way = Option("a100", Share.parse("mig:7g.80gb"), "v", ((1, 1000.0),))
    problem = PlacementProblem((Demand("a", 5_000.0, 1e6, (way,)),), fleets.fleet((), 2).pools)
    with pytest.raises(ValueError, match="does not carry"):
        measure("small", problem)


def test_a_row_has_devices_proof_and_excess() -> None:
    text = row(Line("S1", 10.0, 11.0, {"exact": Result(12, True, 0.5), "ParvaGPU": Result(13, False, 2.0)}))
    assert text.split() == [
        "S1",
        "10.0",
        "11",
        "12*",
        "+20.0%",
        "0.50",
        "s",
        "-",
        "13",
        "+30.0%",
        "2.00",
        "s",
        "-",
        "-",
    ]


def test_without_data_there_are_large_fleets_of_drawn_models_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placement, "SIZES", ((3, 4.0),))
    assert [name for name, _ in placement.problems(None)] == ["3 demands"]
