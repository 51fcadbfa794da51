"""What `penstock check` says of promises that several variants may keep: with the figures of each."""

from pathlib import Path

import pytest

from router.verbs.check import Report, check
from router.verbs.feasibility import Measured
from serving.profile.curve import Point, Profile
from serving.profile.derived.latency import Latency
from serving.values.slice_specs import SliceSpec
from serving.values.specs import ServedModel
from tests.builders import KIND
from tests.router.settings.samples import DIGITS, write_accuracy, write_deployment, write_gateway, write_model

TEXT = """\
slices: [{name: a, cores: 1, price: 3.6}, {name: b, price: 7.2}]
models:
  - {path: models/digits, slo_ms: 40, NEEDS}
"""

Figures = dict[str, float]


def figures(on_a: Figures, on_b: Figures | None = None) -> Measured:
    """Milliseconds that a row takes, and half as many for each in a batch of 64."""

    def measured(model: ServedModel, slice_spec: SliceSpec, variant: str) -> Latency | None:
        row_ms = (on_a if slice_spec.name == "a" or on_b is None else on_b).get(variant)
        if row_ms is None:
            return None
        points = tuple(Point(0, rows, us, us, 3) for rows, us in ((1, row_ms * 1e3), (64, row_ms * 32e3)))
        return Latency(Profile("m", variant, KIND, points))

    return measured


QUICK = figures({"pooled": 0.1, "linear": 0.2, "cnn": 0.4})


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """digits with three variants: pooled 0.91, linear 0.96, cnn 0.99 accurate."""
    write_deployment(tmp_path)
    folder = write_model(
        tmp_path / "models" / "digits", DIGITS.replace("variants:\n", "variants:\n  - {name: pooled}\n")
    )
    write_accuracy(folder, {"pooled": 0.91, "linear": 0.96, "cnn": 0.99})
    return tmp_path


def report(home: Path, needs: str, measured: Measured = QUICK, tiers: str = "") -> Report:
    text = f"{tiers}{TEXT.replace('NEEDS', needs)}"
    return check(write_gateway(home, text), lambda _: measured)


def test_a_floor_that_quick_variants_keep_is_sound(home: Path) -> None:
    found = report(home, "accuracy_min: 0.95")
    assert (found.errors, found.notes) == ((), ())
    assert found.plan[:2] == (
        "digits: SLO 40 ms, batches of up to 64 rows, on a, b; "
        "variants pooled 0.910, linear 0.960, cnn 0.990 (top-1)",
        "  at least 0.95 accurate, by cnn or linear, the most accurate that the load allows; "
        "99 % within 40 ms",
    )


def test_an_slo_that_nobody_who_keeps_the_floor_meets_is_an_error_with_the_figures_of_each(
    home: Path,
) -> None:
    measured = figures({"pooled": 2, "linear": 50, "cnn": 80}, {"pooled": 3, "linear": 60, "cnn": 70})
    (error,) = report(home, "accuracy_min: 0.95", measured).errors
    assert str(error).removeprefix(f"{home}/") == (
        "penstock.yaml:3:35: models[0].slo_ms: 40 ms is below what one row takes with any variant of digits "
        "at least 0.95 accurate: cnn 70 ms on b, linear 50 ms on a; raise it above 50 ms or lower the "
        "floor to 0.91 (pooled: 3 ms)"
    )


def test_nobody_in_time_without_a_floor_is_told_only_to_raise_the_slo(home: Path) -> None:
    measured = figures({"pooled": 41, "linear": 50, "cnn": 80})
    (error,) = report(home, "optimize: cheapest", measured).errors
    assert error.message.endswith("any variant of digits: cnn 80 ms on a, linear 50 ms on a, pooled 41 ms "
                                  "on a; raise it above 41 ms")  # fmt: skip


def test_one_variant_that_keeps_the_floor_alone_has_to_be_in_time(home: Path) -> None:
    measured = figures({"pooled": 1, "linear": 2, "cnn": 80})
    (error,) = report(home, "tolerance: 0", measured).errors
    assert error.message == (
        "40 ms is below digits cnn's measured 80 ms for one row on slice b; "
        "raise it above 80 ms or lower the floor to 0.96 (linear: 2 ms)"
    )


def test_what_is_not_measured_may_be_in_time(home: Path) -> None:
    found = report(home, "accuracy_min: 0.95", figures({"pooled": 2, "linear": 50}))
    assert found.errors == ()


def test_a_variant_that_never_answers_is_warned_of_where(home: Path) -> None:
    measured = figures({"pooled": 2, "linear": 3, "cnn": 30}, {"pooled": 2, "linear": 3, "cnn": 50})
    found = report(home, "accuracy_min: 0.95", measured)
    (warning,) = [each for each in found.warnings if "cnn" in each.message]
    assert found.errors == ()
    assert warning.message == (
        "40 ms is below digits cnn's measured 50 ms for one row on slice b; it never answers on b"
    )


def test_a_slice_on_which_nobody_is_in_time_is_warned_of_with_the_figures_of_each(home: Path) -> None:
    measured = figures({"pooled": 2, "linear": 3, "cnn": 4}, {"pooled": 20, "linear": 60, "cnn": 50})
    (warning,) = report(home, "accuracy_min: 0.95", measured).warnings
    assert warning.message == (
        "no variant of digits that may answer is within 40 ms for one row on slice b: cnn 50 ms, linear 60 ms"
    )


def test_a_served_variant_that_may_not_answer_is_late_only_where_it_is_pinned(home: Path) -> None:
    (warning,) = report(home, "accuracy_min: 0.95", figures({"pooled": 90, "linear": 3, "cnn": 4})).warnings
    assert warning.message.endswith("a request that pins this variant will be late")


def test_a_tiers_slo_is_held_against_those_who_keep_its_floor(home: Path) -> None:
    tiers = "tiers: [{name: fast, slo_ms: 1}, {name: best, tolerance: 0}]\n"
    measured = figures({"pooled": 0.5, "linear": 2, "cnn": 4})
    (error,) = report(home, "accuracy_min: 0.95, tiers: {fast: {percentile: 90}}", measured, tiers).errors
    assert str(error).removeprefix(f"{home}/") == (
        "penstock.yaml:1:30: tiers[0].slo_ms: tier fast: 1 ms is below what one row takes with any variant "
        "of digits at least 0.95 accurate: cnn 4 ms on a, linear 2 ms on a; raise it above 2 ms or lower the "
        "floor to 0.91 (pooled: 0.5 ms)"
    )
    found = report(home, "accuracy_min: 0.95, tiers: {fast: {accuracy_min: 0.9}}", measured, tiers)
    assert found.errors == ()
    assert {(each.where, each.message.partition(" 1 ms")[0]) for each in found.warnings} == {
        ("tiers[0].slo_ms", "tier fast:")
    }


def test_a_floor_of_a_tier_that_only_late_variants_keep_is_placed_at_that_floor(home: Path) -> None:
    tiers = "tiers: [{name: best, tolerance: 0}]\n"
    error = report(home, "", figures({"pooled": 1, "linear": 2, "cnn": 80}), tiers).errors[0]
    assert error.where == "tiers[0].tolerance"
    assert error.message.startswith("tier best: 40 ms is below digits cnn's measured 80 ms")


def test_tiers_that_leave_the_slo_and_the_floor_to_the_model_are_not_judged_again(home: Path) -> None:
    measured = figures({"pooled": 50, "linear": 50, "cnn": 80})
    assert len(report(home, "tolerance: 1", measured, "tiers: [{name: a}, {name: b}]\n").errors) == 1


def test_a_limit_below_what_every_variant_costs_is_an_error_with_the_figures_of_each(home: Path) -> None:
    # half of a millisecond a row, in full batches of 64: but those take 64 ms, and the SLO is 40 ms
    (error,) = report(home, "accuracy_min: 0.95, cost_max: 0.09").errors
    assert error.where == "models[0].cost_max"
    assert error.message == (
        "a million rows of digits cost more with each variant that may answer (cnn 0.2 on a, linear 0.1 "
        "on a); raise it above 0.1, or lower the floor"
    )


def test_who_costs_too_much_beside_one_who_does_not_is_a_warning(home: Path) -> None:
    found = report(home, "accuracy_min: 0.95, cost_max: 0.15")
    assert found.errors == ()
    (warning,) = [each for each in found.warnings if each.where == "models[0].cost_max"]
    assert warning.message == "a million rows of digits cost more with cnn 0.2 on a: these never answer"


def test_batches_that_the_slo_forbids_are_not_counted_on(home: Path) -> None:
    # a batch of 64 rows takes 32 times a row, which is beyond the SLO: the best that fits is smaller
    measured = figures({"pooled": 1, "linear": 30, "cnn": 30})
    found = report(home, "accuracy_min: 0.95, cost_max: 16", measured)
    assert "cnn 30 on a, linear 30 on a" in found.errors[0].message


def test_a_slice_without_a_price_bounds_nothing(home: Path) -> None:
    text = TEXT.replace(", price: 7.2", "").replace("NEEDS", "accuracy_min: 0.95, cost_max: 0.001")
    assert check(write_gateway(home, text), lambda _: QUICK).errors == ()


@pytest.mark.parametrize("needs", ["optimize: cheapest", "cost_max: 5"])
def test_how_low_answers_may_get_without_a_floor_is_noted(home: Path, needs: str) -> None:
    assert report(home, needs).notes == (
        "digits: answers may be those of pooled, accurate 0.91, as no floor is stated; "
        "accuracy_min or tolerance sets one",
    )
    tiers = "tiers: [{name: low, optimize: cheapest}]\n"
    (note,) = report(home, "default_variant: cnn", tiers=tiers).notes
    assert note.startswith("digits, tier low: answers may be those of pooled")
    assert report(home, "accuracy_min: 0", tiers=tiers).notes == ()


def test_the_plan_says_of_each_tier_what_it_promises(home: Path) -> None:
    tiers = (
        "tiers: [{name: t, slo_ms: 80.5, percentile: 95, optimize: balanced, cost_max: 9}, {name: same}]\n"
    )
    assert report(home, "", tiers=tiers).plan[1:] == (
        "  tier t: by cnn, linear or pooled, balanced between accurate and cheap, a million rows for at most "
        "9; 95 % within 80.5 ms",
    )
    found = report(home, "variants: [cnn], percentile: 90", tiers="tiers: [{name: best, tolerance: 0}]\n")
    assert found.plan[1] == "  by cnn alone; 90 % within 40 ms"


def test_the_plan_says_how_answers_are_made_of_several(home: Path) -> None:
    chosen = "selection: {policy: exp3, members: [cnn, linear]}"
    assert report(home, f"accuracy_min: 0.95, {chosen}").plan[1:] == (
        "  at least 0.95 accurate, by its selection; 99 % within 40 ms",
        "  selection: learnt from feedback (exp3) of cnn, linear, by SCORES",
    )


def test_of_a_selection_the_members_have_to_be_in_time(home: Path) -> None:
    chosen = "selection: {policy: exp3, members: [cnn, linear]}"
    (error,) = report(home, chosen, figures({"pooled": 1, "linear": 50, "cnn": 80})).errors
    assert "any variant of digits: cnn 80 ms on a, linear 50 ms on a; raise it above 50 ms" in error.message
    found = report(home, chosen, figures({"pooled": 1, "linear": 2, "cnn": 80}))
    assert found.errors == ()
    assert all("no variant of digits" not in each.message for each in found.warnings)


def test_the_plan_names_the_tier_of_a_tenant(home: Path) -> None:
    tiers = "tiers: [{name: low}]\ntenants: [{name: jobs, tier: low}]\n"
    line = "tenants: jobs (weight 1, priority 0, tier low), default (weight 1, priority 0)"
    assert line in report(home, "", tiers=tiers).plan


def test_from_how_many_rows_on_a_request_is_late_is_noted_where_a_batch_may_hold_as_many(home: Path) -> None:
    measured = figures({"pooled": 1, "linear": 2, "cnn": 20})
    (note,) = report(home, "default_variant: cnn", measured).notes
    # 1 row takes 20 ms, 64 take 640: of 40 ms a slice computes 3 rows in one batch, of half of them 1
    assert note == (
        "digits: a request of 7 or more rows cannot be answered within 40 ms, by what was measured on a, b: "
        "it is answered late and counted as late; `slo_rows: 1` would state slo_ms for each row of a request"
    )
    for needs in ("default_variant: cnn, slo_rows: 6", "default_variant: pooled", "default_variant: linear"):
        assert not [each for each in report(home, needs, measured).notes if "late" in each]


def test_an_slo_for_more_rows_than_can_be_answered_within_it_is_warned_of_where_it_is_stated(
    home: Path,
) -> None:
    measured = figures({"pooled": 1, "linear": 2, "cnn": 20}, {"pooled": 1, "linear": 2, "cnn": 10})
    (warning,) = report(home, "default_variant: cnn, slo_rows: 64", measured).warnings
    assert str(warning).removeprefix(f"{home}/") == (
        "penstock.yaml:3:71: models[0].slo_rows: digits answers at most 10 rows of a request within 40 ms, "
        "by what was measured on a, b; lower slo_rows to 1, or raise slo_ms"
    )
    tiers = "tiers: [{name: all, slo_rows: 64}]\n"
    (warning,) = report(home, "default_variant: cnn, slo_rows: 2", measured, tiers).warnings
    assert warning.where == "tiers[0].slo_rows"
    assert warning.message.startswith("tier all: digits answers at most ")


def test_rows_that_the_model_file_states_are_held_against_what_was_measured_too(home: Path) -> None:
    file = home / "models" / "digits" / "model.yaml"
    file.write_text(file.read_text() + "slo_rows: 64\n")
    (warning,) = report(home, "default_variant: cnn", figures({"pooled": 1, "linear": 2, "cnn": 20})).warnings
    assert warning.where == "models[0].slo_ms"
    assert "lower slo_rows of its model.yaml to 1" in warning.message
    tiers = "tiers: [{name: all, slo_ms: 41}]\n"
    found = report(home, "default_variant: cnn", figures({"pooled": 1, "linear": 2, "cnn": 20}), tiers)
    assert {each.where for each in found.warnings} == {"models[0].slo_ms", "tiers[0].slo_ms"}


def test_of_a_slice_that_was_not_measured_nobody_knows_how_many_rows_are_in_time(home: Path) -> None:
    found = report(home, "default_variant: cnn", figures({"cnn": 20}, {"linear": 2}))
    assert not [note for note in found.notes if "answered late" in note]


def test_the_plan_says_for_how_many_rows_an_slo_is_stated(home: Path) -> None:
    tiers = "tiers: [{name: bulk, slo_rows: 32}]\n"
    plan = report(home, "default_variant: cnn, slo_rows: 1", tiers=tiers).plan
    assert plan[0].startswith("digits: SLO 40 ms for each row, batches of up to 64 rows")
    assert plan[1] == "  tier bulk: by cnn alone; 99 % within 40 ms for each 32 rows"
