"""A floor that no served variant reaches is refused at the start, with figures; others hold."""

from math import inf
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from router.settings import SettingsError, load_settings
from router.settings.gateway import read_served
from router.settings.served.floors import accuracy_text
from tests.router.settings.samples import gateway_faults, write_accuracy, write_gateway
from tests.seeds import drawn

KNOWN = {"linear": 0.9641, "cnn": 0.99168}
DIGITS = "models: [{path: models/digits, KEYS}]\n"
MINILM = "models: [{path: models/minilm, KEYS}]\n"


@pytest.fixture(autouse=True)
def accurate(home: Path) -> None:
    write_accuracy(home / "models" / "digits", KNOWN)


def warnings(home: Path, text: str) -> list[str]:
    found = load_settings(write_gateway(home, text)).warnings
    return [str(each).replace(f"{home}/", "") for each in found]


@pytest.mark.parametrize(
    ("keys", "expected"),
    [
        ("accuracy_min: 0.999", "1:46: models[0].accuracy_min: digits reaches at most 0.9916 (cnn); "
         "0.999 cannot be met"),
        ("accuracy_min: 0.99168001", "1:46: models[0].accuracy_min: digits reaches at most 0.9916 (cnn); "
         "0.99168001 cannot be met"),
        ("variants: [linear], accuracy_min: 0.97", "1:66: models[0].accuracy_min: digits reaches at "
         "most 0.9641 (linear); 0.97 cannot be met; served too, cnn (0.9916) would do"),
    ],
)  # fmt: skip
def test_a_floor_out_of_reach_is_refused_with_what_is_reached(home: Path, keys: str, expected: str) -> None:
    assert gateway_faults(home, DIGITS.replace("KEYS", keys)) == [f"penstock.yaml:{expected}"]


def test_a_floor_of_a_tier_is_judged_for_each_model_and_named_with_it(home: Path) -> None:
    text = (
        "tiers: [{name: high, accuracy_min: 0.995}]\nmodels: [{path: models/digits}, {path: models/minilm}]"
    )
    place = "penstock.yaml:1:36: tiers[0].accuracy_min: tier high: "
    assert gateway_faults(home, text) == [
        f"{place}digits reaches at most 0.9916 (cnn); 0.995 cannot be met; "
        "say in models[0].tiers.high what the tier means for this model",
        f"{place}nobody has measured how accurate minilm is; 0.995 cannot be met; "
        "say in models[1].tiers.high what the tier means for this model",
    ]


def test_what_a_tier_means_for_a_model_counts_in_place_of_the_listed_floor(home: Path) -> None:
    text = "tiers: [{name: high, accuracy_min: 0.995}]\n" + DIGITS
    said = load_settings(write_gateway(home, text.replace("KEYS", "tiers: {high: {tolerance: 0}}")))
    assert said.models[0].by_tier["high"].variants == ("cnn",)
    (fault,) = gateway_faults(home, text.replace("KEYS", "tiers: {high: {accuracy_min: 0.993}}"))
    assert fault == (
        "penstock.yaml:2:61: models[0].tiers.high.accuracy_min: tier high: digits reaches at most "
        "0.9916 (cnn); 0.993 cannot be met"
    )


def test_a_floor_that_tiers_only_take_over_is_refused_once(home: Path) -> None:
    text = "tiers: [{name: a}, {name: b, slo_ms: 9}]\n" + DIGITS.replace("KEYS", "accuracy_min: 0.995")
    assert len(gateway_faults(home, text)) == 1


def test_a_floor_that_a_variant_equals_is_met(home: Path) -> None:
    text = DIGITS.replace("KEYS", "accuracy_min: 0.99168")
    assert load_settings(write_gateway(home, text)).models[0].own.variants == ("cnn",)


def test_a_floor_of_which_a_name_is_wrong_is_not_judged(home: Path) -> None:
    (fault,) = gateway_faults(home, DIGITS.replace("KEYS", "accuracy_min: 0.999, variants: [cn]"))
    assert "unknown variant" in fault


def test_a_tolerance_where_nothing_was_measured_is_warned_of(home: Path) -> None:
    assert warnings(home, MINILM.replace("KEYS", "tolerance: 0.1")) == [
        "penstock.yaml:1:43: models[0].tolerance: nobody has measured how accurate the variants of minilm "
        "are: any may answer"
    ]
    assert warnings(home, MINILM.replace("KEYS", "tolerance: 0.1, variants: [fp32]")) == []


def test_a_model_that_is_read_again_has_to_reach_its_floor_still(home: Path) -> None:
    text = DIGITS.replace("KEYS", "accuracy_min: 0.99")
    document = load_settings(write_gateway(home, text)).document
    assert document is not None
    write_accuracy(home / "models" / "digits", {"linear": 0.9, "cnn": 0.95})
    with pytest.raises(SettingsError, match=r"digits reaches at most 0\.95 \(cnn\); 0\.99 cannot be met"):
        read_served(document, 0)


@pytest.mark.parametrize(
    ("share", "text"), [(0.998324958123953, "0.9983"), (0.99999, "0.9999"), (0.57, "0.57"), (1.0, "1")]
)  # fmt: skip
def test_an_accuracy_is_never_shown_as_more_than_it_is(share: float, text: str) -> None:
    assert accuracy_text(share) == text


PRICED = "slices: [{name: a, cores: 1, price: 0.7}, {name: b}]\n"


@pytest.mark.parametrize(
    ("slices", "expected"),
    [
        ("[b]", "error 2:42: models[0].cost_max: no slice of digits has a price (b); expected a key `price` "
         "there, what an hour of the slice costs"),
        ("[a, b]", "warning 2:42: models[0].cost_max: b has no price: what digits computes there "
         "costs nothing"),
        ("[a]", ""),
    ],
)  # fmt: skip
def test_a_limit_of_cost_needs_prices_to_count_by(home: Path, slices: str, expected: str) -> None:
    text = PRICED + DIGITS.replace("KEYS", f"cost_max: 2, slices: {slices}")
    if expected.startswith("error"):
        found = [f"error {fault.removeprefix('penstock.yaml:')}" for fault in gateway_faults(home, text)]
    else:
        found = [f"warning {each.removeprefix('penstock.yaml:')}" for each in warnings(home, text)]
    assert [each for each in found if "stays idle" not in each] == ([expected] if expected else [])


def test_a_slice_that_is_not_there_is_not_missed_twice(home: Path) -> None:
    (fault,) = gateway_faults(home, PRICED + DIGITS.replace("KEYS", "cost_max: 2, slices: [c]"))
    assert "models[0].slices[0]: unknown slice" in fault


def test_a_tiers_limit_of_cost_needs_a_price_on_every_model(home: Path) -> None:
    text = "tiers: [{name: t, cost_max: 2}]\n" + PRICED + DIGITS.replace("KEYS", "slices: [b]")
    assert gateway_faults(home, text) == [
        "penstock.yaml:1:29: tiers[0].cost_max: tier t: no slice of digits has a price (b); expected a key "
        "`price` there, what an hour of the slice costs"
    ]


shares = st.none() | st.integers(0, 10).map(lambda tenths: tenths / 10)
floors: st.SearchStrategy[dict[str, float]] = st.one_of(
    st.just({}),
    st.fixed_dictionaries({"accuracy_min": st.integers(0, 10).map(lambda tenths: tenths / 10)}),
    st.fixed_dictionaries({"tolerance": st.integers(0, 10).map(lambda tenths: tenths / 10)}),
)


@pytest.mark.slow
@settings(max_examples=drawn(100), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    linear=shares,
    cnn=shares,
    stated=st.tuples(floors, floors, floors),
    served=st.sampled_from(["all", "[cnn]"]),
)
def test_every_floor_is_kept_by_whoever_may_answer_or_is_refused(
    home: Path,
    linear: float | None,
    cnn: float | None,
    stated: tuple[dict[str, float], dict[str, float], dict[str, float]],
    served: str,
) -> None:
    own, listed, entry = stated
    table = {"linear": linear, "cnn": cnn}
    write_accuracy(
        home / "models" / "digits", {name: each for name, each in table.items() if each is not None}
    )
    here = {name: each for name, each in table.items() if served == "all" or name == "cnn"}
    best = max((each for each in here.values() if each is not None), default=0.0)

    def least(*stated: dict[str, float]) -> float:
        floor = next((each for each in stated if each), {})
        if "tolerance" in floor:
            return max(best - floor["tolerance"], 0.0)
        return floor.get("accuracy_min", 0.0)

    def reached(floor: float) -> bool:
        return not floor or any(each is not None and each >= floor - 1e-9 for each in here.values())

    expected = {"": least(own), "t": least(entry, listed, own)}
    body = {"path": "models/digits", "variants": served, "tiers": {"t": entry}, **own}
    text = f"tiers: [{flow({'name': 't', **listed})}]\nmodels: [{flow(body)}]\n"
    if not all(map(reached, expected.values())):
        assert all("cannot be met" in fault for fault in gateway_faults(home, text))
        return
    (model,) = load_settings(write_gateway(home, text)).models
    for tier, objective in (("", model.own), ("t", model.by_tier["t"])):
        assert objective.accuracy_min == pytest.approx(expected[tier])
        assert objective.variants
        assert objective.cost_max == inf
        if model.needs.chooses or tier:
            accuracies = [table[name] for name in objective.variants if objective.accuracy_min]
            assert all(each is not None and each >= expected[tier] - 1e-9 for each in accuracies)


def flow(value: object) -> str:
    """YAML in flow style, of names and numbers."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {flow(each)}" for key, each in value.items()) + "}"
    return str(value)
