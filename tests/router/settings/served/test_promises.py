"""Tiers and needs: what the keys become, and the one sentence for each way to get them wrong."""

from pathlib import Path

import pytest

from router.settings import Settings, load_model, load_settings
from router.settings.repository import serve_alone
from router.settings.values.schema import TIER_COUNT_MAX
from serving.values.objectives import Needs
from serving.values.slice_specs import SliceSpec
from serving.values.specs import TenantSpec
from tests.router.settings.samples import (
    DIGITS,
    gateway_fault,
    gateway_faults,
    write_accuracy,
    write_gateway,
    write_model,
)
from tests.router.settings.test_mutations import SHARED

TEXT = """\
slices: [{name: a, cores: 1, price: 0.7}]
tiers:
  - {name: best, tolerance: 0}
  - {name: frugal, slo_ms: 80, percentile: 95, accuracy_min: 0.9, cost_max: 2.5, optimize: cheapest}
models:
  - path: models/digits
    slo_ms: 40
    accuracy_min: 0.96
    tiers: {frugal: {tolerance: 0.03}}
  - {path: models/minilm, tiers: {frugal: {accuracy_min: 0}}}
tenants: [{name: shop, tier: best}]
"""


@pytest.fixture(autouse=True)
def accurate(home: Path) -> None:
    """Of the digits variants: linear 0.964, cnn 0.9912."""
    write_accuracy(home / "models" / "digits", {"linear": 0.964, "cnn": 0.9912})


def read(home: Path, old: str = "", new: str = "", text: str = TEXT) -> Settings:
    assert old in text
    return load_settings(write_gateway(home, text.replace(old, new, 1)))


def test_tiers_are_read_in_their_order_with_what_they_leave_open(home: Path) -> None:
    settings = read(home)
    assert settings.tiers == (
        Needs("best", tolerance=0.0),
        Needs("frugal", 80_000, 95.0, 0.9, cost_max=2.5, optimize="cheapest"),
    )
    assert settings.tenants == (TenantSpec("shop", tier="best"),)
    assert settings.slices[0].price == 0.7


def test_a_model_has_every_tier_with_its_own_entry_over_the_listed_one(home: Path) -> None:
    digits, minilm = read(home).models
    best = Needs("best", tolerance=0.0)
    assert digits.needs == Needs(accuracy_min=0.96)
    assert digits.tiers == (best, Needs("frugal", 80_000, 95.0, None, 0.03, 2.5, "cheapest"))
    assert minilm.needs == Needs()
    assert minilm.tiers == (best, Needs("frugal", 80_000, 95.0, 0.0, None, 2.5, "cheapest"))


def test_a_model_of_which_nothing_is_stated_is_answered_by_its_own_variant(home: Path) -> None:
    (model,) = read(home, text="models: [{path: models/digits}]").models
    assert (model.needs, model.tiers, model.selection) == (Needs(), (), None)
    assert model.own.variants == ("cnn",)


def test_needs_that_choose_need_no_default_among_the_served_variants(home: Path) -> None:
    text = "models: [{path: models/digits, variants: [linear], optimize: cheapest}]"
    (model,) = read(home, text=text).models
    assert (model.default_variant, model.own.variants) == ("", ("linear",))


def test_a_model_and_a_tier_may_state_for_how_many_rows_their_slo_is(home: Path) -> None:
    text = "{name: frugal, slo_rows: 2}, {name: best, slo_ms: 7}"
    models = "models: [{path: models/digits, slo_ms: 40, slo_rows: 8, tiers: {best: {slo_rows: 3}}}]"
    (model,) = read(home, text=f"tiers: [{text}]\n{models}").models
    objectives = (model.own, model.by_tier["frugal"], model.by_tier["best"])
    assert [(each.slo_us, each.slo_rows) for each in objectives] == [(40_000, 8), (40_000, 2), (7_000, 3)]
    assert [each.due_us(16) for each in objectives] == [80_000, 320_000, 42_000]


def test_a_model_file_may_state_for_how_many_rows_its_slo_is(home: Path) -> None:
    folder = home / "models" / "digits"
    write_model(folder, DIGITS + "slo_rows: 4\n")
    entries = ("{path: models/digits}", "{path: models/digits, slo_rows: 2}")
    found = [read(home, text=f"models: [{entry}]").models[0] for entry in entries]
    alone = serve_alone(load_model(folder), [SliceSpec("x", (0,))])
    assert [each.own.slo_rows for each in (*found, alone)] == [4, 2, 4]
    assert [each.own.parts(9) for each in (*found, alone)] == [3, 5, 3]


@pytest.mark.parametrize("text", ["", "tiers:\n", "tiers: []\n"])
def test_without_a_list_there_are_no_tiers(home: Path, text: str) -> None:
    assert read(home, text=f"{text}models: [{{path: models/digits}}]").tiers == ()


def test_a_tier_that_a_model_names_but_says_nothing_of_is_as_listed(home: Path) -> None:
    settings = read(home, "{frugal: {tolerance: 0.03}}", "{best: }")
    assert settings.models[0].tiers == settings.tiers


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("accuracy_min: 0.96", "accuracy_min: 96",
         "8:19: models[0].accuracy_min: too large; got 96, expected 1 or less"),
        ("accuracy_min: 0.96", "accuracy_min: -0.1",
         "8:19: models[0].accuracy_min: too small; got -0.1, expected 0 or more"),
        ("accuracy_min: 0.96", "accuracy_min: .nan",
         "8:19: models[0].accuracy_min: not a finite number; got nan, expected a finite number"),
        ("tolerance: 0.03", "tolerance: 2",
         "9:33: models[0].tiers.frugal.tolerance: too large; got 2, expected 1 or less"),
        ("accuracy_min: 0.96", "accuracy_min: 0.96\n    tolerance: 0.1",
         "9:5: models[0].tolerance: a floor beside that of accuracy_min; got 0.1, "
         "expected one of the two keys"),
        ("tolerance: 0}", "tolerance: 0, accuracy_min: 0}",
         "3:18: tiers[0].tolerance: a floor beside that of accuracy_min; got 0, "
         "expected one of the two keys"),
        ("models:\n", "  - {name: best, tolerance: 0.5}\nmodels:\n",
         "5:12: tiers[2].name: 'best' is listed twice; list each tier once"),
        ("{frugal: {tol", "{fugal: {tol", "9:13: models[0].tiers.fugal: unknown tier; got 'fugal', "
         "expected best or frugal (did you mean frugal?)"),
        ("tier: best", "tier: beast", "11:30: tenants[0].tier: unknown tier; got 'beast', "
         "expected best or frugal (did you mean best?)"),
        ("percentile: 95", "percentile: 49.9", "4:44: tiers[1].percentile: too small; got 49.9, "
         "expected 50 or more"),
        ("percentile: 95", "percentile: 100", "4:44: tiers[1].percentile: too large; got 100, "
         "expected 99.999 or less"),
        ("cost_max: 2.5", "cost_max: 0", "4:77: tiers[1].cost_max: too small; got 0, "
         "expected a number above 0"),
        ("optimize: cheapest", "optimize: cheap", "4:92: tiers[1].optimize: unknown aim; got 'cheap', "
         "expected most_accurate, balanced or cheapest (did you mean cheapest?)"),
        ("slo_ms: 80", "slo_rows: 0", "4:30: tiers[1].slo_rows: too small; got 0, expected 1 or more"),
        ("slo_ms: 80", "slo_rows: 1.5", "4:30: tiers[1].slo_rows: not a whole number; got 1.5, "
         "expected a whole number"),
        ("slo_ms: 80", "slo_ms: 0", "4:28: tiers[1].slo_ms: too small; got 0, expected 0.001 or more"),
        ("tolerance: 0}", "tolerence: 0}", "3:18: tiers[0].tolerence: unknown key; got 'tolerence', expected "
         "slo_ms, slo_rows, percentile, accuracy_min, tolerance, cost_max, optimize or name "
         "(did you mean tolerance?)"),
        ("{tolerance: 0.03}", "{tolerence: 0}", "9:22: models[0].tiers.frugal.tolerence: unknown key; got "
         "'tolerence', expected slo_ms, slo_rows, percentile, accuracy_min, tolerance, cost_max or optimize "
         "(did you mean tolerance?)"),
        ("{frugal: {tolerance: 0.03}}", "{frugal: 3}", "9:21: models[0].tiers.frugal: not a mapping; got 3, "
         "expected keys and values (key: value)"),
        ("{frugal: {tolerance: 0.03}}", "[frugal]", "9:12: models[0].tiers: not a mapping; got a list of 1, "
         "expected keys and values (key: value)"),
        ("price: 0.7", "price: -1", "1:37: slices[0].price: too small; got -1, expected 0 or more"),
        ("name: best, ", "", "3:5: tiers[0].name: this key is required"),
        ("accuracy_min: 0.96", "accuracy_min: 0.96\n    default_variant: cnn",
         "9:5: models[0].default_variant: with accuracy_min the gateway chooses which variant answers; "
         "got 'cnn', expected no default_variant or no accuracy_min"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_with_its_place_and_remedy(home: Path, old: str, new: str, expected: str) -> None:
    assert old in TEXT
    assert gateway_faults(home, TEXT.replace(old, new, 1)) == [f"penstock.yaml:{expected}"]


def test_a_tier_where_none_are_listed_is_told_where_they_are(home: Path) -> None:
    (fault,) = gateway_faults(home, "models: [{path: models/digits, tiers: {best: {tolerance: 0}}}]")
    assert fault == (
        "penstock.yaml:1:40: models[0].tiers.best: unknown tier; got 'best', "
        "expected one that `tiers:` lists, a key beside `models:`"
    )


def test_a_faulty_tier_hides_no_fault_of_who_names_it_and_causes_none(home: Path) -> None:
    text = TEXT.replace("tolerance: 0}", "tolerance: x}").replace("tier: best", "tier: bets")
    assert [fault.split(": ")[1] for fault in gateway_faults(home, text)] == [
        "tiers[0].tolerance",
        "tenants[0].tier",
    ]


def test_a_tier_that_chooses_beside_a_default_variant_is_no_contradiction(home: Path) -> None:
    text = TEXT.replace("accuracy_min: 0.96", "default_variant: linear")
    model = load_settings(write_gateway(home, text)).models[0]
    assert model.own.variants == ("linear",)
    assert model.by_tier["best"].variants == ("cnn",)


def test_there_are_at_most_as_many_tiers_as_metrics_can_bear(home: Path) -> None:
    listed = ", ".join(f"{{name: t{number}}}" for number in range(TIER_COUNT_MAX + 1))
    (fault,) = gateway_faults(home, f"models: [{{path: models/digits}}]\ntiers: [{listed}]")
    expected = f"too many; got a list of {TIER_COUNT_MAX + 1}, expected at most {TIER_COUNT_MAX} entries"
    assert fault == f"penstock.yaml:2:8: tiers: {expected}"


def test_a_default_variant_that_the_sample_has_is_refused_beside_a_floor(home: Path) -> None:
    fault = gateway_fault(
        home, "    slo_ms: 40\n", "    slo_ms: 40\n    tolerance: 0.1\n    optimize: balanced\n"
    )
    assert "with tolerance and optimize the gateway chooses" in fault
    assert fault.endswith("got 'linear', expected no default_variant or no tolerance or optimize")


def test_the_text_that_is_mutated_is_sound(home: Path) -> None:
    settings = load_settings(write_gateway(home, SHARED))
    assert settings.models[0].selection is not None
    assert [each.tier for each in settings.models[1].tiers] == ["best", "low"]
