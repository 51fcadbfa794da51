"""`penstock simulate`, end to end: what it prints, what it refuses, and with which exit code."""

import json
from pathlib import Path
from typing import Any

import pytest

from serving.recording import RECORD, RecordedFlow, arrivals_block, flows_block, header
from serving.simulation.results.series import ENDINGS
from tests.router.settings.samples import write_gateway
from tests.router.verbs.simulate.conftest import GATEWAY, Simulate, table


def results(simulate: Simulate, *arguments: str) -> list[dict[str, Any]]:
    ended = simulate(*arguments, "--json")
    assert ended.exit_code == 0, ended.output
    found: list[dict[str, Any]] = json.loads(ended.stdout)["results"]
    return found


def test_policies_are_compared_row_by_row_with_a_sentence_that_says_what_to_see(simulate: Simulate) -> None:
    ended = simulate("--rate", "digits=1800,minilm=5", "--policy", "slo,static")
    assert ended.exit_code == 0, ended.output
    assert [" ".join(row.split()[: 1 + (row[1] != " ")]) for row in table(ended.stdout)] == [
        "slo all", "digits", "minilm", "static all", "digits", "minilm",
    ]  # fmt: skip
    assert "of the requests in time" in ended.stdout
    assert "of static's digits requests" in ended.stdout
    assert "Not answered in time, of all requests:" in ended.stdout
    assert ended.stderr == ""  # no progress where nobody watches


def test_json_holds_every_figure_and_nothing_else_is_printed(simulate: Simulate) -> None:
    (found,) = results(simulate, "--rate", "digits=300,minilm=0")
    assert set(found) == {
        "name", "config", "policy", "capacity", "busy_slices", "crashes", "stalls", "not_simulated",
        "held_slices", "losses", "total", "models",
    }  # fmt: skip
    assert (found["name"], found["policy"], found["capacity"]) == ("slo", None, None)
    digits, minilm = found["models"]["digits"], found["models"]["minilm"]
    assert digits["offered_rate"] == pytest.approx(300, rel=0.2)
    assert digits["goodput"] == pytest.approx(digits["attainment"] * digits["offered_rate"])
    assert digits["slo_ms"] == 25
    assert 1 < digits["p50_ms"] <= digits["p99_ms"]
    assert digits["requests"] == sum(digits["endings"].values()) == found["total"]["requests"]
    assert set(digits["endings"]) <= set(ENDINGS)
    assert 0 < found["busy_slices"]["cpu-a"] <= 1
    assert (minilm["requests"], minilm["attainment"], minilm["p99_ms"]) == (0, None, None)
    course = digits["series"]
    assert {len(values) for name, values in course.items() if name != "bin_s"} == {len(course["start_s"])}
    assert sum(course["offered"]) * course["bin_s"] == pytest.approx(300 * 2, rel=0.2)


def test_the_same_seed_gives_the_same_figures_and_another_gives_others(simulate: Simulate) -> None:
    asked = ("--rate", "digits=mmpp(100,900,dwell=0.3)", "--noise", "0.3")
    first = results(simulate, *asked)
    assert first == results(simulate, *asked)
    assert first != results(simulate, *asked, "--seed", "2")


def test_all_seeds_count(simulate: Simulate) -> None:
    (found,) = results(simulate, "--rate", "digits=300", "--seeds", "4")
    assert len(found["total"]["attainment_by_seed"]) == 4
    assert found["total"]["requests"] == pytest.approx(4 * 300 * 1.8, rel=0.1)  # a tenth is warming up


@pytest.mark.slow
def test_more_slices_and_more_devices_carry_more(simulate: Simulate) -> None:
    asked = ("--rate", "digits=2500")
    attainments = [
        results(simulate, *asked, *extra)[0]["total"]["attainment"]
        for extra in ((), ("--slices", "2"), ("--devices", "4"))
    ]
    assert attainments == sorted(attainments)
    assert attainments[0] < 0.6
    assert attainments[2] > 0.99
    (found,) = results(simulate, *asked, "--devices", "2")
    assert set(found["busy_slices"]) == {"cpu-a.1", "cpu-a.2"}


def test_rows_sizes_and_popularity_make_requests_dearer_or_rarer(simulate: Simulate) -> None:
    def busy(*extra: str) -> float:
        return float(results(simulate, "--rate", "minilm=20", *extra)[0]["total"]["busy"])

    assert busy("--rows", "minilm=4") > 2 * busy()
    assert busy("--sizes", "minilm=64") < 0.8 * busy()
    (found,) = results(simulate, "--rate", "all=100", "--zipf", "2")
    digits, minilm = (found["models"][name]["requests"] for name in ("digits", "minilm"))
    assert digits / minilm == pytest.approx(4, rel=0.5)


def test_settings_files_are_compared_by_their_names(simulate: Simulate, home: Path) -> None:
    (home / "tight.yaml").write_text(GATEWAY.replace("slo_ms: 25", "slo_ms: 2.5"))
    asked = ("--rate", "digits=300")
    loose, tight = results(simulate, str(home / "tight.yaml"), *asked)
    assert (loose["name"], tight["name"]) == ("penstock", "tight")
    assert tight["total"]["attainment"] < loose["total"]["attainment"]


def test_a_recording_is_played_as_it_came_and_what_is_missing_of_it_is_told(
    simulate: Simulate, home: Path
) -> None:
    flows = (RecordedFlow("minilm", "default", "", 200_000), RecordedFlow("digits", "shop", "", 25_000))
    records = [(number * 10_000, 0, number % 2, 1, 99) for number in range(200)]
    content = (
        header(1) + flows_block(flows) + arrivals_block(0, b"".join(RECORD.pack(*row) for row in records))
    )
    file = home / "a.arrivals"
    file.write_bytes(content[:-1])
    ended = simulate("--trace", str(file), "--json")
    assert ended.exit_code == 0, ended.output
    assert "199 requests of it are read" in ended.stderr
    (found,) = json.loads(ended.stdout)["results"]
    assert {name: model["slo_ms"] for name, model in found["models"].items()} == {"digits": 25, "minilm": 200}
    assert found["total"]["requests"] == 199 - 20  # a tenth of the time is warming up
    assert found["total"]["offered_rate"] == pytest.approx(100, rel=0.02)


@pytest.mark.slow
def test_capacity_is_a_rate_at_which_the_aim_is_kept_and_little_above_it_is_not(simulate: Simulate) -> None:
    (found,) = results(simulate, "--rate", "digits=100", "--capacity", "--require", "capacity>=300")
    capacity = found["capacity"]
    assert capacity["surely_above"] <= capacity["rate"] <= capacity["surely_below"]
    below, above = (
        results(simulate, "--rate", f"digits={share * capacity['rate']}", "--seconds", "20")[0]["total"]
        for share in (0.85, 1.15)
    )
    assert below["attainment"] >= 0.99 > above["attainment"]


REQUIREMENTS = [
    ("attainment>=0.99", 0), ("attainment>=99%", 0), ("digits.p99_ms<25", 0), ("busy>0,busy<=100%", 0),
    ("goodput > 250", 0), ("digits.attainment<0.5", 1), ("p50_ms<=0.5", 1), ("attainment>=0.9,busy<1%", 1),
]  # fmt: skip


@pytest.mark.parametrize(("requirement", "code"), REQUIREMENTS)
def test_what_is_required_decides_the_exit_code(simulate: Simulate, requirement: str, code: int) -> None:
    ended = simulate("--rate", "digits=300", "--require", requirement)
    assert ended.exit_code == code
    assert ("not met: " + requirement.split(",")[-1] in ended.stderr) == bool(code)


def test_a_latency_of_no_answers_meets_nothing(simulate: Simulate) -> None:
    ended = simulate("--rate", "digits=300,minilm=0", "--require", "minilm.p99_ms<1000")
    assert ended.exit_code == 1
    assert "not met: minilm.p99_ms<1000 (slo: nan)" in ended.stderr


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        ((), "what is asked? Give --rate MODEL=REQUESTS_A_SECOND"),
        (("--rate", "digits"), "expected MODEL=RATE, such as digits=50"),
        (("--rate", "dijits=5"), "got 'dijits', expected digits or minilm (did you mean digits?)"),
        (("--rate", "digits=0"), "no request comes in the simulated time"),
        (("--rate", "digits=5,digits=6"), "digits is given more than once"),
        (("--rate", "digits=fast"), "'fast' is no rate; expected requests a second (300)"),
        (("--rate", "digits=flash(5)"), "peak must be given; expected something like flash("),
        (("--rate", "digits=minutes@absent.txt"), "cannot read absent.txt"),
        (("--rate", "shop/digits=5"), "unknown tenant; got 'shop', expected default"),
        (("--rate", "digits=5", "--policy", "sol"), "unknown policy; got 'sol'"),
        (("--rate", "digits=5", "--policy", "slo:eager"), "slo has no mode 'eager'; expected latency or"),
        (("--rate", "digits=5", "--slices", "2", "--devices", "2"), "give one of them"),
        (("--rate", "digits=5", "--rows", "minilm=4"), "a model without a rate; got 'minilm'"),
        (("--rate", "digits=5", "--rows", "digits=0"), "'0' is no mix"),
        (("--rate", "digits=5", "--sizes", "digits=64"), "does not depend on a size"),
        (("--rate", "digits=5", "--require", "attainmnet>=1"), "(did you mean attainment?)"),
        (("--rate", "digits=5", "--require", "digit.busy<1"), "unknown model; got 'digit'"),
        (("--rate", "digits=5", "--require", "attainment>=99"), "attainment is a share from 0 to 1"),
        (("--rate", "digits=5", "--require", "capacity>=99"), "needs --capacity"),
        (("--rate", "digits=5", "--require", "well"), "expected something like 'attainment>=0.99'"),
        (("--rate", "digits=5", "--svg", "absent/x.svg"), "there is no folder absent"),
        (("--trace", "absent.trace"), "absent.trace"),
        (("--trace", "x", "--rate", "digits=5"), "--trace brings its own requests; leave out --rate"),
        (("--rate", "digits=5", "--seconds", "0"), "'--seconds'"),
    ],
)
def test_what_cannot_be_simulated_is_told_in_a_sentence(
    simulate: Simulate, arguments: tuple[str, ...], fault: str
) -> None:
    ended = simulate(*arguments)
    assert ended.exit_code == 2
    assert fault in ended.stderr
    assert ended.stdout == ""


def test_a_model_that_was_never_measured_is_named_with_the_way_to_measure_it(
    simulate: Simulate, home: Path
) -> None:
    write_gateway(home, GATEWAY.replace("variants: [fp32]", "variants: [int8], default_variant: int8"))
    assert simulate("--rate", "digits=5").exit_code == 0  # minilm is not asked for
    ended = simulate("--rate", "digits=5,minilm=5")
    assert ended.exit_code == 2
    assert "never measured: minilm int8 on slice cpu-a" in ended.stderr
    assert f"Start `penstock serve --config {home / 'penstock.yaml'}` once" in ended.stderr


def test_faults_of_the_settings_are_reported_as_check_does(simulate: Simulate, home: Path) -> None:
    write_gateway(home, GATEWAY.replace("slo_ms: 25", "slo_sm: 25"))
    ended = simulate("--rate", "digits=5")
    assert ended.exit_code == 2
    assert "penstock.yaml:3:27" in ended.stderr
