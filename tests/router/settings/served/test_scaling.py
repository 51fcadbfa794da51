"""`replicas:` and `scaling:`: what they become, what must fit together, and what `penstock check` says."""

from math import inf
from pathlib import Path

import pytest

from router.settings import Settings, load_settings
from router.settings.served.scaling import span
from router.verbs.plan import plan_lines
from serving.values.objectives import SCALING_POLICIES, ReplicaSpec, ScalingSpec
from tests.router.settings.samples import gateway_faults, write_gateway

TEXT = """\
slices: [{name: cpu, count: 4, price: 0.05}, {name: other, price: 0.01}]
scaling: {policy: hpa, target: 0.6, cost_max_per_hour: 0.17}
models:
  - {path: models/digits, slices: [cpu], replicas: {min: 1, max: 3}}
  - {path: models/minilm, slices: [other]}
"""


def read(home: Path, old: str = "", new: str = "", text: str = TEXT) -> Settings:
    assert old in text
    return load_settings(write_gateway(home, text.replace(old, new, 1)))


def lines(settings: Settings) -> list[str]:
    """Of the plan, those that speak of replicas."""
    return [line.strip() for line in plan_lines(settings) if line.strip().startswith(("replicas", "scaling"))]


@pytest.mark.parametrize(
    ("said", "spec", "line"),
    [
        ("{min: 1, max: 3}", ReplicaSpec(1, 3), "1 to 3 of its 4 slices, as its load asks "
         "for"),
        ("auto", ReplicaSpec(1, None), "1 to 4 of its 4 slices, as its load asks for"),
        ("2", ReplicaSpec(2, 2), "2 of its 4 slices"),
        ("{max: 2}", ReplicaSpec(1, 2), "1 to 2 of its 4 slices, as its load asks for"),
        ("{min: 3}", ReplicaSpec(3, None), "3 to 4 of its 4 slices, as its load asks for"),
        ("{max: 2, priority: 3}", ReplicaSpec(1, 2, 3), "1 to 2 of its 4 slices, as its load asks for; "
         "priority 3"),
        ("{min: 2, max: 2, priority: -1}", ReplicaSpec(2, 2, -1), "2 of its 4 slices; priority -1"),
        ("{}", ReplicaSpec(), "1 to 4 of its 4 slices, as its load asks for"),
        ("{min: 0, max: 1}", ReplicaSpec(0, 1), "0 to 1 of its 4 slices, as its load asks "
         "for; "
         "let go while nobody is likely to ask for it"),
    ],
)  # fmt: skip
def test_replicas_are_bounds_within_the_slices_of_the_model(
    home: Path, said: str, spec: ReplicaSpec, line: str
) -> None:
    settings = read(home, "{min: 1, max: 3}", said)
    assert [model.replicas for model in settings.models] == [spec, None]
    assert lines(settings)[0] == f"replicas: {line}"


def test_scaling_is_read_with_its_units_and_is_slo_without_a_ceiling_where_nothing_is_said(
    home: Path,
) -> None:
    assert read(home).scaling == ScalingSpec("hpa", 0.6, 0.17)
    assert read(home, TEXT.splitlines()[1] + "\n", "").scaling == ScalingSpec("slo", None, inf)
    assert read(home, "policy: hpa", "fair: true, policy: hpa").scaling == ScalingSpec("hpa", 0.6, 0.17, True)


@pytest.mark.parametrize("policy", SCALING_POLICIES)
def test_every_policy_can_be_named(home: Path, policy: str) -> None:
    assert read(home, "policy: hpa, target: 0.6", f"policy: {policy}").scaling.policy == policy


def test_a_file_without_these_keys_has_no_replicas_and_no_line(home: Path) -> None:
    settings = read(home, text="models: [{path: models/digits}]")
    assert (settings.models[0].replicas, settings.scaling, lines(settings)) == (None, ScalingSpec(), [])


@pytest.mark.parametrize(
    ("old", "new", "line"),
    [
        ("", "", "hpa (target 0.6); 2 to 4 of 5 slices are held, at 0.06 to 0.16 an hour"),
        ("cost_max_per_hour: 0.17", "cost_max_per_hour: 0.07",
         "hpa (target 0.6); 2 to 4 of 5 slices are held, at 0.06 to 0.16 an hour, of which 0.07 may be "
         "spent"),
        (", cost_max_per_hour: 0.17", "", "hpa (target 0.6); 2 to 4 of 5 slices are held, "
         "at 0.06 to 0.16 an hour"),
        ("{min: 1, max: 3}", "2", "hpa (target 0.6); 3 of 5 slices are held, at 0.11 an hour"),
        ("slices: [cpu], replicas: {min: 1, max: 3}", "replicas: {min: 1, max: 5}",
         "hpa (target 0.6); 1 to 5 of 5 slices are held, at 0.01 to 0.21 an hour, of which 0.17 may be "
         "spent"),
    ],
)  # fmt: skip
def test_the_plan_says_what_is_held_at_least_and_at_most_and_what_it_costs(
    home: Path, old: str, new: str, line: str
) -> None:
    assert lines(read(home, old, new))[-1] == f"scaling: {line}"


def test_without_prices_the_plan_counts_slices(home: Path) -> None:
    text = "slices: [{name: a, count: 3}]\nmodels: [{path: models/digits, replicas: auto}]"
    assert lines(read(home, text=text))[-1] == "scaling: slo; 1 to 3 of 3 slices are held"


def test_a_slice_that_a_model_has_for_good_costs_a_scaled_one_nothing_more(home: Path) -> None:
    text = TEXT.replace("slices: [other]", "slices: [other, cpu-1]")
    found = read(home, text=text)
    held = span(found.models, found.slices)
    assert held.least == ("cpu-1", "other")
    assert held.most == ("cpu-1", "cpu-2", "cpu-3", "cpu-4", "other")


def test_the_cheapest_slices_are_the_least_and_the_dearest_the_most(home: Path) -> None:
    text = (
        "slices: [{name: a, price: 3}, {name: b, price: 1}, {name: c, price: 2}]\n"
        "models:\n  - {path: models/digits, replicas: {min: 1, max: 2}, slices: [a, b]}\n"
        "  - {path: models/minilm, replicas: {min: 1, max: 1}, slices: [b, c]}\n"
    )
    found = read(home, text=text)
    held = span(found.models, found.slices)
    assert (held.least, held.cost_least) == (("b", "c"), 3.0)
    assert (held.most, held.cost_most) == (("a", "b", "c"), 6.0)


def test_minimums_are_on_spot_slices_only_where_there_are_too_few_others(home: Path) -> None:
    text = (
        "slices: [{name: a, price: 3}, {name: b, price: 1, spot: true}, {name: c, price: 2, spot: true}]\n"
        "models: [{path: models/digits, replicas: {min: MIN}}]\n"
    )
    for least, names in (("1", ("a",)), ("2", ("a", "b")), ("3", ("a", "b", "c"))):
        found = read(home, text=text.replace("MIN", least))
        assert span(found.models, found.slices).least == names


CROWDED = """\
slices: [{name: a, count: 3}]
models:
  - {path: models/digits, replicas: 2}
  - {path: models/minilm, replicas: {min: 2}}
"""


@pytest.mark.parametrize(
    ("text", "old", "new", "expected"),
    [
        (TEXT, "{min: 1, max: 3}", "{min: 3, max: 2}",
         "4:66: models[0].replicas.max: below the minimum; got 2, expected 3 or more"),
        (TEXT, "max: 3}", "max: 5}", "4:66: models[0].replicas.max: more than there are slices; got 5, "
         "expected at "
         "most 4: digits may use 4 slices (cpu-1, cpu-2, cpu-3, cpu-4), with one replica on each"),
        (TEXT, "{min: 1, max: 3}", "{min: 6}", "4:58: models[0].replicas.min: more than there are slices; "
         "got "
         "6, "
         "expected at most 4: digits may use 4 slices (cpu-1, cpu-2, cpu-3, cpu-4), with one replica on "
         "each"),
        (TEXT, "slices: [cpu], replicas: {min: 1, max: 3}", "slices: [cpu-2], replicas: 2",
         "4:54: models[0].replicas: more than there are slices; got 2, expected at most 1: digits may use "
         "slice "
         "cpu-2, with one replica on each"),
        (TEXT, "{min: 1, max: 3}", "0", "4:52: models[0].replicas: no replicas; got 0, "
         "expected 1 or more; {min: 0} lets go of a model that nobody asks for"),
        (TEXT, "{min: 1, max: 3}", "-2", "4:52: models[0].replicas: no replicas; got -2, "
         "expected 1 or more; {min: 0} lets go of a model that nobody asks for"),
        (TEXT, "{min: 1, max: 3}", "some", "4:52: models[0].replicas: not a number of replicas; got 'some', "
         "expected auto, a number such as 2, or {min: 1, max: 4}"),
        (TEXT, "{min: 1, max: 3}", "true", "4:52: models[0].replicas: not a number of replicas; got true, "
         "expected auto, a number such as 2, or {min: 1, max: 4}"),
        (TEXT, "max: 3}", "maximum: 3}", "4:61: models[0].replicas.maximum: unknown key; got 'maximum', "
         "expected min, max or priority (did you mean max?)"),
        (TEXT, "min: 1", "min: -1", "4:58: models[0].replicas.min: too small; got -1, expected 0 or more"),
        (TEXT, "max: 3", "max: 1.5", "4:66: models[0].replicas.max: not a whole number; got 1.5, "
         "expected a whole number"),
        (TEXT, "count: 4, ", "count: 4, memory_mb: 500, ",
         "4:52: models[0].replicas: digits may be on 4 slices (cpu-1, cpu-2, cpu-3, cpu-4) with memory_mb: "
         "there models are loaded when they are asked for; expected slices without it, or no `replicas`"),
        (TEXT, "policy: hpa", "policy: hpb", "2:19: scaling.policy: unknown scaling policy; got 'hpb', "
         "expected slo, hpa, keda, ray_serve, aiad, mark, inferline, infaas or fixed (did you mean hpa?)"),
        (TEXT, "policy: hpa", "policy: fixed", "2:26: scaling.target: policy fixed aims at no number; got "
         "0.6, "
         "expected policy: hpa, keda, ray_serve, aiad, mark, inferline or infaas beside it"),
        (TEXT, "policy: hpa, ", "", "2:11: scaling.target: policy slo, which is the default, aims at no "
         "number; "
         "got 0.6, expected policy: hpa, keda, ray_serve, aiad, mark, inferline or infaas beside it"),
        (TEXT, "target: 0.6", "target: 70", "2:32: scaling.target: more than all of the slices' time, of "
         "which hpa aims at a share; got 70, expected above 0 and at most 1, such as 0.7"),
        (TEXT, "target: 0.6", "target: 0", "2:32: scaling.target: too small; got 0, expected a number above "
         "0"),
        (TEXT, "0.17", "0.05", "2:56: scaling.cost_max_per_hour: below what the least costs (2 slices "
         "(cpu-1, "
         "other)); got 0.05, expected 0.06 or more, or smaller minimums"),
        (TEXT, "cost_max_per_hour", "cost_max", "2:37: scaling.cost_max: unknown key; got 'cost_max', "
         "expected "
         "policy, target, cost_max_per_hour or fair (did you mean cost_max_per_hour?)"),
        ("scaling: {cost_max_per_hour: 1}\nmodels: [{path: models/digits, replicas: 1}]", "", "",
         "1:30: scaling.cost_max_per_hour: no slice has a price, so there is nothing to limit; expected "
         "`prices:` "
         "with what an hour of a core costs, beside `slices:`"),
        (CROWDED, "", "", "4:37: models[1].replicas: only one model with `replicas` gets batches on a "
         "slice, and "
         "there are too few: at least minilm 2 and digits 2, that is 4, on 3 slices (a-1, a-2, a-3); "
         "expected smaller minimums, or 1 more"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_with_its_place_and_remedy(
    home: Path, text: str, old: str, new: str, expected: str
) -> None:
    assert old in text
    assert gateway_faults(home, text.replace(old, new, 1)) == [f"penstock.yaml:{expected}"]


def test_minimums_that_just_fit_are_sound(home: Path) -> None:
    settings = read(home, "min: 2", "min: 1", CROWDED)
    assert lines(settings)[-1] == "scaling: slo; 3 of 3 slices are held"


def test_scaling_without_any_replicas_is_warned_of(home: Path) -> None:
    (warning,) = read(home, ", replicas: {min: 1, max: 3}", "").warnings
    assert (warning.line, warning.where) == (2, "scaling")
    assert warning.message == (
        "no model has `replicas:`, so nothing is scaled; expected replicas: auto of one of them"
    )
