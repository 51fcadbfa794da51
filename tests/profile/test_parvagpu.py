"""What ParvaGPU measured on A100s (SC 2024): rows known from it, and that few points are enough. Each promise
has a twin on generated models, which always runs."""

from collections.abc import Mapping
from math import inf, log
from pathlib import Path
from statistics import median

import pytest

from serving.profile.derived.fewshot import next_point, predict
from serving.profile.derived.knee import knee90, kneedle
from serving.profile.derived.surface import Place, Surface
from tests.profile.surfaces import AMOUNTS, Measured, generated, parvagpu, surface

GOLDEN = {  # at 8 rows: first with 90 % of the largest throughput, Kneedle, most throughput per slice
    "densenet121": (3, 3, 1),
    "mobilenetv2": (3, 3, 1),
    "bert": (4, 4, 1),
    "vgg16": (7, 3, 3),
    "resnet50": (7, 4, 1),
}
POINTS = 8
REGRET = 0.05

Models = Mapping[str, Measured]


@pytest.fixture(scope="module")
def measured(parvagpu_files: dict[str, Path]) -> Models:
    return {name: parvagpu(file) for name, file in parvagpu_files.items()}


def drawn() -> Models:
    return {f"generated{seed}": generated(seed) for seed in range(11)}


def rules(found: Surface, rows: int) -> tuple[float, float, float]:
    rates = [found.throughput(amount, rows) for amount in AMOUNTS]
    each = [rate / amount for rate, amount in zip(rates, AMOUNTS, strict=True)]
    places = knee90(AMOUNTS, rates), kneedle(AMOUNTS, rates), each.index(max(each))
    return AMOUNTS[places[0]], AMOUNTS[places[1]], AMOUNTS[places[2]]


@pytest.mark.parametrize("model", GOLDEN)
def test_the_rules_name_the_known_slices(measured: Models, model: str) -> None:
    assert rules(surface(measured[model]), 8) == GOLDEN[model]


def test_the_three_rules_agree_on_no_model(measured: Models) -> None:
    assert all(len(set(rules(surface(each), 8))) > 1 for each in measured.values())


def test_the_rules_name_the_corner_of_a_roofline() -> None:
    """The twin: throughput that grows with the slice and stops at one of them."""
    for corner in AMOUNTS[1:-1]:
        found = surface({(amount, rows): rows / min(amount, corner) for amount in AMOUNTS for rows in (1, 8)})
        assert rules(found, 8)[:2] == (corner, corner)


def test_every_surface_is_sound(measured: Models) -> None:
    assert all(surface(each).sound for each in measured.values())


def test_every_generated_surface_is_sound() -> None:
    assert all(surface(each).sound for each in drawn().values())


def regret(models: Models, model: str, limit_us: float = inf) -> float:
    """How far the best of the points that were asked for stays behind the best of all, in throughput per
    slice; the other models are known."""
    known, others = models[model], [surface(each) for name, each in models.items() if name != model]
    asked: list[Place] = []
    for _ in range(POINTS):
        place = next_point([(*each, known[each]) for each in asked], others, [*known], limit_us)
        assert place is not None
        asked.append(place)

    def worth(place: Place) -> float:
        return place[1] / known[place] / place[0] if known[place] <= limit_us else 0.0

    return 1 - max(map(worth, asked)) / max(map(worth, known))


def limits(models: Models) -> dict[str, float]:
    """Half an SLO: ten times as long as one row takes on the whole device."""
    return {name: 10 * each[7.0, 1] for name, each in models.items()}


def good(models: Models) -> int:
    return sum(regret(models, model) <= REGRET for model in models)


def good_in_time(models: Models) -> int:
    return sum(regret(models, model, limit_us) <= REGRET for model, limit_us in limits(models).items())


@pytest.mark.slow
def test_eight_points_find_the_best_throughput_per_slice(measured: Models) -> None:
    assert good(measured) >= 9
    assert good_in_time(measured) >= 9


@pytest.mark.slow
def test_eight_points_find_the_best_throughput_per_slice_of_generated_models() -> None:
    assert good(drawn()) >= 9
    assert good_in_time(drawn()) >= 9


def off(models: Models, model: str, seen: list[Place]) -> tuple[float, float]:
    """Root mean square error in log latency where nothing was measured, and the error that was promised."""
    known, others = models[model], [surface(each) for name, each in models.items() if name != model]
    found = predict([(*each, known[each]) for each in seen], others, [*known], "mig")
    missed = [log(found.surface.latency_us(*each) / known[each]) ** 2 for each in known if each not in seen]
    return (sum(missed) / len(missed)) ** 0.5, found.error


SPREAD = [(1.0, 1), (1.0, 16), (3.0, 8), (7.0, 1), (7.0, 16)]
ONE_SIZE = [(7.0, 1), (7.0, 8), (7.0, 16), (7.0, 32)]
"""All other slice sizes are unmeasured."""


@pytest.mark.parametrize(("seen", "usual"), [(SPREAD, 0.15), (ONE_SIZE, 0.20)])
def test_a_few_points_and_other_models_predict_the_rest_as_well_as_promised(
    measured: Models, seen: list[Place], usual: float
) -> None:
    errors = [off(measured, model, seen) for model in measured]
    assert median(error for error, _ in errors) <= usual
    assert sum(error <= 2 * promised for error, promised in errors) >= 10


@pytest.mark.parametrize(("seen", "usual"), [(SPREAD, 0.15), (ONE_SIZE, 0.20)])
def test_a_few_points_predict_generated_models_as_well_as_promised(seen: list[Place], usual: float) -> None:
    errors = [off(drawn(), model, seen) for model in drawn()]
    assert median(error for error, _ in errors) <= usual
    assert sum(error <= 2 * promised for error, promised in errors) >= 10
