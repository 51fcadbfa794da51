"""`penstock simulate` where several variants may answer: which did, how accurately, and what is left out."""

import json
from pathlib import Path
from typing import Any

import pytest

from serving.recording import RECORD, RecordedFlow, arrivals_block, flows_block, header
from tests.router.pages import assert_stands_alone, texts
from tests.router.settings.samples import write_accuracy, write_gateway
from tests.router.verbs.simulate.conftest import Simulate, measured, table

CHOOSING = """\
slices: [{name: cpu-a, cores: 1}]
tiers: [{name: gold, accuracy_min: 0.98}, {name: cheap, optimize: cheapest}]
tenants: [{name: shop, tier: gold}]
models:
  - {path: models/digits, slo_ms: 25, optimize: most_accurate}
  - {path: models/minilm, slo_ms: 200, variants: [fp32], tiers: {gold: {accuracy_min: 0}}}
"""
ACCURACY = {"linear": 0.96, "cnn": 0.99}


@pytest.fixture
def choosing(home: Path) -> Path:
    """Of digits cnn carries some 400 rows a second in 25 ms, linear 900."""
    write_gateway(home, CHOOSING)
    write_accuracy(home / "models" / "digits", ACCURACY)
    measured(home, "digits", "cnn", 2200)
    return home


def digits(simulate: Simulate, *arguments: str) -> dict[str, Any]:
    ended = simulate(*arguments, "--json")
    assert ended.exit_code == 0, ended.output
    found: dict[str, Any] = json.loads(ended.stdout)["results"][0]["models"]["digits"]
    return found


@pytest.mark.usefixtures("choosing")
@pytest.mark.slow
def test_the_answers_are_shown_by_variant_with_their_accuracy_and_why_it_was_not_the_best(
    simulate: Simulate,
) -> None:
    calm = digits(simulate, "--rate", "digits=50")
    assert (calm["answers"], calm["accuracy"], calm["downgrades"]) == ({"cnn": 1.0}, 0.99, {})
    busy = digits(simulate, "--rate", "digits=600")
    assert busy["attainment"] > 0.97
    assert set(busy["answers"]) == {"cnn", "linear"}
    assert sum(busy["answers"].values()) == pytest.approx(1)
    mean = sum(share * ACCURACY[name] for name, share in busy["answers"].items())
    assert busy["accuracy"] == pytest.approx(mean)
    assert sum(busy["downgrades"].values()) == pytest.approx(busy["answers"]["linear"], abs=0.1)
    course = busy["series"]
    rows = [sum(each) for each in zip(*busy["answered_rows"].values(), strict=True)]
    assert len(rows) == len(course["start_s"]) == len(course["accuracy"])
    assert sum(rows) * course["bin_s"] == pytest.approx(600 * 2, rel=0.1)
    assert all(0.96 <= each <= 0.99 for each in course["accuracy"])


def test_without_a_choice_nothing_is_said_of_variants(simulate: Simulate) -> None:
    ended = simulate("--rate", "digits=300")
    assert "accuracy" not in ended.stdout
    assert "linear" not in ended.stdout


@pytest.mark.usefixtures("choosing")
@pytest.mark.slow
def test_requests_of_tiers_are_answered_as_their_tiers_say(simulate: Simulate) -> None:
    gold = digits(simulate, "--rate", "digits=600", "--tier", "gold=1")
    assert gold["answers"] == {"cnn": 1.0}
    assert gold["attainment"] < 0.9  # refused rather than answered less accurately
    assert digits(simulate, "--rate", "digits=20", "--tier", "cheap=1")["answers"] == {"linear": 1.0}
    mixed = digits(simulate, "--rate", "digits=60", "--seconds", "20", "--tier", "gold=0.2,cheap=0.5")
    assert mixed["answers"] == {"cnn": pytest.approx(0.5, abs=0.1), "linear": pytest.approx(0.5, abs=0.1)}


@pytest.mark.usefixtures("choosing")
def test_a_tenants_requests_are_of_its_tier_where_they_ask_for_none(simulate: Simulate) -> None:
    assert digits(simulate, "--rate", "shop/digits=600")["answers"] == {"cnn": 1.0}
    asked = ("--rate", "shop/digits=20", "--tier", "cheap=1")
    assert digits(simulate, *asked)["answers"] == {"linear": 1.0}


def test_a_recording_is_played_with_its_tiers(simulate: Simulate, choosing: Path) -> None:
    flows = [RecordedFlow("digits", "default", "", 25_000, tier) for tier in ("gold", "cheap", "gone")]
    records = b"".join(RECORD.pack(number * 20_000, 0, number % 3, 1, 0) for number in range(150))
    file = choosing / "a.arrivals"
    file.write_bytes(header(1) + flows_block(flows) + arrivals_block(0, records))
    ended = simulate("--trace", str(file), "--json")
    assert "note: digits has no tier gone here: requests for it are simulated as for none\n" in ended.stderr
    found = json.loads(ended.stdout)["results"][0]["models"]["digits"]
    assert found["answers"] == {
        "cnn": pytest.approx(2 / 3, abs=0.02),
        "linear": pytest.approx(1 / 3, abs=0.02),
    }


def test_a_variant_that_was_never_measured_is_left_out_with_a_note(
    simulate: Simulate, choosing: Path
) -> None:
    for file in (choosing / "profiles" / "local").rglob("*linear*"):
        file.unlink()
    ended = simulate("--rate", "digits=50", "--json")
    assert "note: digits linear was never measured on slice cpu-a: it answers nothing there" in ended.stderr
    assert json.loads(ended.stdout)["results"][0]["models"]["digits"]["answers"] == {"cnn": 1.0}


def test_the_best_variant_must_have_been_measured(simulate: Simulate, choosing: Path) -> None:
    for file in (choosing / "profiles" / "local").rglob("*cnn*"):
        file.unlink()
    ended = simulate("--rate", "digits=50")
    assert ended.exit_code == 2
    assert "never measured: digits cnn on slice cpu-a" in ended.stderr


@pytest.mark.slow
def test_settings_with_a_choice_are_compared_with_one_variant_alone(
    simulate: Simulate, choosing: Path
) -> None:
    alone = CHOOSING.replace(", optimize: most_accurate", ", variants: [cnn], default_variant: cnn")
    (choosing / "alone.yaml").write_text(alone)
    page, picture = choosing / "x.html", choosing / "x.svg"
    ended = simulate(
        str(choosing / "alone.yaml"), "--rate", "digits=600", "--html", str(page), "--svg", str(picture)
    )
    assert ended.exit_code == 0, ended.output
    lines = [line.split() for line in table(ended.stdout)]
    assert [(line[0], line[-1] == "0.99") for line in lines] == [("penstock", False), ("alone", True)]
    text = page.read_text()
    assert_stands_alone(text)
    assert "Which variants answered" in text
    assert "cnn alone answered" in text
    assert "cnn alone answered" in texts(picture.read_text())


def test_a_slices_own_price_counts_for_costs_and_for_what_a_tier_may_cost(
    simulate: Simulate, choosing: Path
) -> None:
    priced = CHOOSING.replace("cores: 1}]", "cores: 1, price: 3.6}]")
    dear = (1000 + 2200 * 8) / 8 / 1e6 * 1e-3 * 1e6  # of a million rows of cnn in batches of 8
    write_gateway(choosing, priced.replace("optimize: cheapest", f"cost_max: {0.75 * dear:.3g}"))
    found = digits(simulate, "--rate", "digits=20", "--tier", "cheap=1")
    assert found["answers"] == {"linear": 1.0}
    assert found["cost"]["per_hour"] == pytest.approx(3.6)
    write_gateway(choosing, priced.replace("optimize: cheapest", f"cost_max: {5 * dear:.3g}"))
    assert digits(simulate, "--rate", "digits=20", "--tier", "cheap=1")["answers"] == {"cnn": 1.0}


@pytest.mark.usefixtures("choosing")
@pytest.mark.parametrize(("requirement", "code"), [("digits.accuracy>=0.99", 1), ("accuracy>=96.5%", 0)])
def test_an_accuracy_can_be_required(simulate: Simulate, requirement: str, code: int) -> None:
    assert simulate("--rate", "digits=600", "--require", requirement).exit_code == code


@pytest.mark.usefixtures("choosing")
@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        (("--tier", "gol=1"), "unknown tier; got 'gol', expected gold or cheap (did you mean gold?)"),
        (("--tier", "gold"), "--tier: expected TIER=SHARE, each tier once, such as gold=0.2; got 'gold'"),
        (("--tier", "gold=nan"), "got 'gold=nan'"),
        (("--tier", "gold=-0.1"), "got 'gold=-0.1'"),
        (("--tier", "gold=0.1,gold=0.2"), "got 'gold=0.2'"),
        (("--tier", "gold=0.7,cheap=0.7"), "add up to 1.4; expected at most 1"),
        (("--require", "accuracy>=97"), "accuracy is a share from 0 to 1"),
    ],
)
def test_a_tier_or_a_requirement_that_is_none_is_told(
    simulate: Simulate, arguments: tuple[str, ...], fault: str
) -> None:
    ended = simulate("--rate", "digits=5", *arguments)
    assert ended.exit_code == 2
    assert fault in ended.stderr


@pytest.mark.usefixtures("choosing")
def test_an_accuracy_is_required_of_one_model(simulate: Simulate) -> None:
    ended = simulate("--rate", "digits=5,minilm=5", "--require", "accuracy>=0.9")
    assert "accuracy is that of one model, such as digits.accuracy" in ended.stderr


def test_an_answer_made_of_several_is_not_simulated_and_that_is_told(
    simulate: Simulate, choosing: Path
) -> None:
    learning = "selection: {policy: exp3, members: [cnn, linear], output: SCORES}"
    write_gateway(choosing, CHOOSING.replace("optimize: most_accurate", learning))
    ended = simulate("--rate", "digits=5")
    assert ended.exit_code == 0, ended.output
    first = " ".join(ended.stdout.split("Batches take")[0].split())
    assert "the exp3 of digits: each request is computed once" in first
