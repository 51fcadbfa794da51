"""`penstock simulate` where devices are not as measured and workers break down; and what slices cost."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.router.verbs.simulate.conftest import Simulate

pytestmark = pytest.mark.in_turn(2)

ASKED = ("--rate", "digits=300")


def outcome(simulate: Simulate, *arguments: str) -> dict[str, Any]:
    ended = simulate(*arguments, "--json")
    assert ended.exit_code == 0, ended.output
    found: dict[str, Any] = json.loads(ended.stdout)
    return found


def result(simulate: Simulate, *arguments: str) -> dict[str, Any]:
    found: dict[str, Any] = outcome(simulate, *ASKED, *arguments)["results"][0]
    return found


WRONG = [
    ("", "batches take what was measured of them, with noise of 5 %; 700 us from the scheduler"),
    ("--noise 0 --overhead-us 0", "batches take what was measured of them; 0 us from the scheduler"),
    ("--noise 0.123", "with noise of 12.3 %"),
    ("--drift 0.2", "up and down by 20 % over 2 s"),  # as long as the run is, which is less than a minute
    ("--interference 0.1", "10 % longer for each other slice that computes"),
    ("--outliers 0.01", "10 times as long for 1 % of them"),
    ("--crash-every 30", "each worker dies every 30 s on average, and loads its models anew"),
    ("--stall-every 30", "each worker stalls for 0.5 s every 30 s on average"),
    ("--stall-every 3 --stall 0.02", "each worker stalls for 0.02 s every 3 s on average"),
]


@pytest.mark.parametrize(("options", "words"), WRONG)
def test_the_table_begins_with_how_devices_fared_and_json_says_it_too(
    simulate: Simulate, options: str, words: str
) -> None:
    ended = simulate(*ASKED, *options.split())
    head = " ".join(ended.stdout.split(" simulated ")[0].split())
    assert words in head[0].lower() + head[1:]
    assert words in outcome(simulate, *ASKED, *options.split())["simulated"]["device"]
    assert ("workers died" in ended.stdout) == ("every" in options)


def test_json_holds_the_conditions_as_numbers(simulate: Simulate) -> None:
    options = "--drift 0.2 --interference 0.1 --outliers 0.01 --crash-every 9 --stall-every 8 --stall 0.7"
    found = outcome(simulate, *ASKED, *options.split(), "--price", "2.5", "--seed", "7")["conditions"]
    assert found["hazards"] == {"crash_mtbf_s": 9, "stall_mtbf_s": 8, "stall_us": 700_000}
    assert found["physics"] == {
        "noise": 0.05, "drift": 0.2, "drift_period_s": 2, "interference": 0.1, "outlier_share": 0.01,
        "outlier_factor": 10, "overhead_us": 700,
    }  # fmt: skip
    assert (found["seeds"], found["price"]) == ([7], 2.5)


@pytest.mark.parametrize("option", ["--outliers 0.05", "--drift 0.9", "--stall-every 0.5", "--noise 1"])
def test_what_goes_wrong_shows_in_the_latencies(simulate: Simulate, option: str) -> None:
    calm = result(simulate)["total"]
    assert result(simulate, *option.split())["total"]["p99_ms"] > 1.2 * calm["p99_ms"]


def test_slices_that_disturb_each_other_compute_longer_for_the_same(simulate: Simulate) -> None:
    calm, disturbed = (
        result(simulate, "--rate", "minilm=50", "--slices", "4", "--interference", share)["total"]
        for share in ("0", "0.3")
    )
    assert disturbed["device_s_per_million"] > 1.1 * calm["device_s_per_million"]


def test_crashes_lose_batches_and_refuse_until_the_models_are_loaded(simulate: Simulate) -> None:
    found = result(simulate, "--crash-every", "0.7", "--seeds", "3")
    assert found["crashes"] > 0 == found["stalls"]
    assert {"no_replica", "worker_lost"} & set(found["total"]["endings"])
    assert found["total"]["attainment"] < 0.9 < result(simulate)["total"]["attainment"]


@pytest.mark.slow
def test_the_same_seed_breaks_the_same_and_every_policy_suffers_the_same(simulate: Simulate) -> None:
    asked = ("--crash-every", "1", "--stall-every", "1", "--seeds", "3", "--policy", "slo,static")
    first = outcome(simulate, *ASKED, *asked)
    assert first == outcome(simulate, *ASKED, *asked)
    slo, static = ((each["crashes"], each["stalls"]) for each in first["results"])
    assert slo == static
    deaths, stalls = slo
    assert (
        f"Within 3 runs each, workers died {deaths} times and stalled {stalls} times."
        in simulate(*ASKED, *asked).stdout
    )


@pytest.mark.slow
def test_capacity_is_that_with_what_goes_wrong(simulate: Simulate) -> None:
    calm, broken = (
        result(simulate, *option, "--capacity", "--attainment", "0.9")["capacity"]["rate"]
        for option in ((), ("--stall-every", "0.5", "--stall", "0.1"))
    )
    assert broken < 0.8 * calm


@pytest.mark.parametrize(
    ("options", "fault"),
    [
        ("--stall 1", "--stall says how long a stall lasts; give --stall-every S, how often, as well"),
        ("--crash-every 0", "'--crash-every'"),
        ("--stall-every 1 --stall 0", "'--stall'"),
        ("--drift 1", "'--drift'"),
        ("--outliers 2", "'--outliers'"),
        ("--interference often", "'--interference'"),
        ("--price -1", "'--price'"),
        ("--crash-every 0.001 --seconds 9999", "faults are too many for a run; at most 1,000,000"),
    ],
)
def test_what_cannot_go_wrong_is_told_with_what_would_be_right(
    simulate: Simulate, options: str, fault: str
) -> None:
    ended = simulate(*ASKED, *options.split())
    assert ended.exit_code == 2
    assert fault in ended.stderr
    assert ended.stdout == ""


def test_a_million_answers_take_the_device_time_that_they_are_charged(simulate: Simulate) -> None:
    (found,) = outcome(simulate, "--rate", "digits=300,minilm=20", "--seeds", "2")["results"]
    for figures in (found["total"], *found["models"].values()):
        per_million = figures["busy"] / figures["goodput"] * 1e6  # of one slice
        assert figures["device_s_per_million"] == pytest.approx(per_million)
        assert figures["cost"] is None


def test_a_price_is_paid_for_each_slice_whole_and_divided_among_its_models(simulate: Simulate) -> None:
    asked = ("--rate", "digits=300,minilm=20", "--slices", "2", "--price", "2.5")
    (found,) = outcome(simulate, *asked)["results"]
    total, digits, minilm = found["total"], found["models"]["digits"], found["models"]["minilm"]
    assert total["cost"]["per_hour"] == pytest.approx(5.0)
    assert digits["cost"]["per_hour"] + minilm["cost"]["per_hour"] == pytest.approx(5.0)
    for figures in (total, digits, minilm):
        per_million = figures["cost"]["per_hour"] / 3600 / figures["goodput"] * 1e6
        assert figures["cost"]["per_million"] == pytest.approx(per_million)


def test_costs_are_columns_where_a_price_is_known(simulate: Simulate, home: Path) -> None:
    assert "cost" not in simulate(*ASKED).stdout
    file = home / "report.html"
    ended = simulate(*ASKED, "--price", "2.5", "--html", str(file))
    head, _, row = (line.split() for line in ended.stdout.splitlines()[2:5])
    assert head[-4:] == ["device", "s/M", "cost/h", "cost/M"]
    device_s, per_hour, per_million = (float(cell.replace(",", "")) for cell in row[-3:])
    assert per_hour == 2.5
    assert device_s > 0 < per_million
    page = file.read_text()
    assert "<dt>price</dt><dd>2.5 for an hour of a slice" in page
    assert re.search(r">cost/M</th>", page)


def test_where_nothing_is_answered_in_time_a_million_answers_have_no_cost(simulate: Simulate) -> None:
    (found,) = outcome(simulate, "--rate", "digits=300,minilm=0", "--price", "1")["results"]
    nothing = found["models"]["minilm"]
    assert (nothing["device_s_per_million"], nothing["cost"]["per_million"]) == (None, None)
