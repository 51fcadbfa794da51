"""The tables on the terminal."""

import re
from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from router.place.shown import PlaceReport
from router.place.tables import LAYOUTS, MODELS, render
from serving.policy.placement.problem import PlacementProblem
from tests.router.place import samples
from tests.router.place.samples import CHANGED, FIRST, KEPT, NOTHING, foretold


def printed(shown: PlaceReport, width: int = 200) -> str:
    """As the terminal has it."""
    text = StringIO()
    Console(width=width, file=text).print(render(shown))
    return text.getvalue()


def cells(text: str, first: str) -> list[str]:
    """Of the line that begins so."""
    (line,) = [each for each in text.splitlines() if each.startswith(first)]
    return re.split(r"\s{2,}", line.strip())


def test_the_first_line_says_it_all() -> None:
    assert printed(CHANGED).startswith("3 of 6 devices carry 4 models with 20 % in reserve, for 3.20 an hour")


def test_each_slice_is_listed_with_where_it_begins_what_runs_there_and_what_that_carries() -> None:
    text = printed(CHANGED)
    table = text[text.index("\ndevices ") + 1 : text.index("free:")].splitlines()[2:]
    assert [re.split(r"\s{2,}", line.strip()) for line in table] == [
        ["gpu-0", "2g.20gb", "0", "bert-large-uncased fp16", "16", "201", "-", "155 %"],
        ["1g.10gb", "2", "digits fp16", "32", "1,802", "-", "12.8 %"],
        ["simple fp16", "32", "3,604", "-", "90.0 %"],
        ["3g.40gb", "4", "minilm fp16", "32", "1,157", "-", "101 %"],
        ["gpu-2", "7g.80gb", "0", "digits fp16", "32", "17,093", "-", "122 %"],
        ["node-1", "8 cores", "minilm int8", "8", "258", "-", "22.4 %"],
        ["4 cores", "digits int8", "8", "555", "-", "3.9 %"],
        ["simple int8", "32", "1,561", "-", "39.0 %"],
        ["1 core", "digits int8", "1", "99.2", "-", "0.7 %"],
    ]
    assert "free: 2 of gpu, node-0" in text


def test_each_model_is_listed_with_what_is_asked_and_promised_of_it_and_what_is_predicted() -> None:
    text = printed(CHANGED)
    assert cells(text, "minilm") == [
        "minilm", "1,150", "1,415", "23.0 %", "2", "2 of 2", "100", "99.85 %", "60",
    ]  # fmt: skip
    assert cells(text, "digits") == ["digits", "14,000", "19,549", "39.6 %", "4", "3", "25", "99.58 %", "15"]


def test_what_changes_is_told_with_the_reason_and_the_steps() -> None:
    text = printed(CHANGED)
    assert f"The plan is taken: {CHANGED.reason}." in text
    assert "  1. make 8 cores (node-1); make 4 cores (node-1)\n" in text
    assert "  6. remove 7g.80gb (gpu-0)\n" in text
    text = printed(KEPT)
    assert f"was found and is not taken: {KEPT.reason}." in text
    assert "Steps" not in text
    assert "2g.20gb" not in text  # it is what stays that is listed


def test_baselines_are_compared_by_devices_and_cost() -> None:
    text = printed(CHANGED)
    assert cells(text, "ParvaGPU") == ["ParvaGPU", "3", "+35.9 %"]
    assert cells(text, "first-fit") == ["first-fit decreasing", "4", "+81.2 %"]
    cheaper = replace(CHANGED, baselines={"one": (1, CHANGED.cost / 2), "same": (3, CHANGED.cost)})
    assert cells(printed(cheaper), "one") == ["one", "1", "-50.0 %"]
    assert cells(printed(cheaper), "same") == ["same", "3", "0 %"]
    assert "algorithm" not in printed(replace(CHANGED, baselines={}))


def test_notes_come_last() -> None:
    assert printed(CHANGED).endswith(
        "note: all figures of minilm are of rows of the largest size, up to 512\n"
    )


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


def test_where_nothing_is_asked_or_placed_there_are_no_tables() -> None:
    assert printed(NOTHING) == (
        "Nothing is asked of any model, and no device is needed.\n\n"
        "The plan is taken: nothing is in place yet.\n"
        "0 replicas start, 0 end, 0 stay; 0 devices before, 0 after.\n\n"
        "note: all figures of minilm are of rows of the largest size, up to 512\n"
    )


def test_models_that_fall_short_stand_out() -> None:
    text = StringIO()
    console = Console(width=100, file=text, force_terminal=True, color_system="standard")
    console.print(render(foretold(0.9985, 0.9931, 0.97, 1.0)))
    lines = [line for line in text.getvalue().splitlines() if "97.0 %" in line and "14,000" in line]
    assert [line.startswith("\x1b[1m") for line in lines] == [True]
