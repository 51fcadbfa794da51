"""The tables on terminals of any width, of fleets of any size; `tests/goldens/place.txt` has them whole."""

import re
from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from router.verbs.place.view.shown import PlaceReport
from router.verbs.place.view.tables import LAYOUTS, MODELS, render
from serving.policy.placement.terms.problem import PlacementProblem
from tests.router.verbs.place import samples
from tests.router.verbs.place.samples import CHANGED, FIRST, KEPT, foretold


def printed(shown: PlaceReport, width: int = 200) -> str:
    """As the terminal has it."""
    text = StringIO()
    Console(width=width, file=text).print(render(shown))
    return text.getvalue()


def cells(text: str, first: str) -> list[str]:
    """Of the line that begins so."""
    (line,) = [each for each in text.splitlines() if each.startswith(first)]
    return re.split(r"\s{2,}", line.strip())


@pytest.mark.parametrize("shown", [CHANGED, KEPT, FIRST], ids=["changed", "kept", "first"])
def test_the_tables_fit_into_a_terminal_of_80_columns(shown: PlaceReport) -> None:
    text = printed(shown, 80)
    assert max(map(len, text.splitlines())) <= 80
    assert "…" not in text
    if shown is not KEPT:
        assert cells(text, "gpu-0 ")[:3] == ["gpu-0", "2g.20gb", "0"]
    assert cells(text, "minilm ")[-2:] == ["99.85 %", "60"]


def test_a_column_for_positions_is_there_only_where_something_has_one() -> None:
    problem = samples.FLEET
    after = {"node-0": (samples.slot(problem, samples.cores(2), "digits"),)}
    shown = replace(FIRST, after=after, models=samples.told(problem, after, (0.0, 0.0, 1.0, 0.0)))
    assert cells(printed(shown), "devices ") == [
        "devices", "slice", "model", "batch", "rows/s", "profiled", "of asked",
    ]  # fmt: skip


def test_a_large_fleet_is_told_in_short_with_devices_that_are_alike_counted() -> None:
    text = printed(samples.large(300), 80)
    assert len(text.splitlines()) < 2 * LAYOUTS + 40
    assert re.search(r"^\d+ like gpu-\d+ +4g\.40gb ", text, re.MULTILINE)
    assert re.search(r"^and \d+ rarer layouts of \d+ devices$", text, re.MULTILINE)
    assert "free: 5 of gpu, 3 of node" in text


def test_slices_of_a_device_that_are_alike_are_one_line() -> None:
    problem = samples.FLEET
    small = samples.mig("1g.10gb")
    after = {
        "gpu-0": (
            *(samples.slot(problem, small, "digits", start=start) for start in (0, 1, 6)),
            samples.slot(problem, small, "minilm", start=2),
        ),
        "node-0": (samples.slot(problem, samples.cores(2), "digits"),) * 5,
    }
    text = printed(replace(FIRST, after=after, models=samples.told(problem, after, (1.0, 0.0, 1.0, 0.0))))
    assert cells(text, "gpu-0 ")[:4] == ["gpu-0", "3 x 1g.10gb", "0,1,6", "digits fp16"]
    assert cells(text, "node-0 ")[:3] == ["node-0", "5 x 2 cores", "digits int8"]


def test_a_few_devices_that_are_alike_are_named() -> None:
    problem = samples.FLEET
    slots = (samples.slot(problem, samples.mig("7g.80gb"), "digits", start=0),)
    after = {"gpu-0": slots, "gpu-1": slots, "gpu-3": slots}
    text = printed(replace(FIRST, after=after, models=samples.told(problem, after, (0.0, 0.0, 1.0, 0.0))))
    assert "3 like gpu-0: gpu-0, gpu-1, gpu-3\n" in text


def test_of_many_models_those_with_the_least_to_spare_are_shown() -> None:
    demands = tuple(samples.demand(f"model-{number:03}", 10, 100, 300) for number in range(2 * MODELS))
    problem = PlacementProblem(demands, samples.FLEET.pools)
    models = samples.told(problem, {}, tuple(1 - number / 1000 for number in range(2 * MODELS)))
    text = printed(replace(FIRST, problem=problem, after={}, models=models))
    assert f"and {MODELS} models with more to spare" in text
    assert f"model-{2 * MODELS - 1:03}  " in text
    assert "model-000 " not in text


def test_names_are_shown_as_they_are_even_where_they_look_like_markup() -> None:
    demand = samples.demand("[bold]x[/]", 100, 100, 300)
    problem = PlacementProblem((demand,), samples.pools(1, 0))
    after = {"gpu-0": (samples.slot(problem, samples.mig("7g.80gb"), demand.model, start=0),)}
    shown = replace(FIRST, problem=problem, after=after, models=samples.told(problem, after, (0.2,)))
    assert printed(shown).count("[bold]x[/]") == 3


def test_models_that_fall_short_stand_out() -> None:
    text = StringIO()
    console = Console(width=100, file=text, force_terminal=True, color_system="standard")
    console.print(render(foretold(0.9985, 0.9931, 0.97, 1.0)))
    lines = [line for line in text.getvalue().splitlines() if "97.0 %" in line and "14,000" in line]
    assert [line.startswith("\x1b[1m") for line in lines] == [True]
