"""The page: it holds what the tables say, explains every figure, and needs nothing else."""

import html
import re
from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from router.verbs.place.view.page import page
from router.verbs.place.view.shown import PlaceReport
from router.verbs.place.view.tables import COLUMNS, HEADS, flat, render
from serving.policy.placement.terms.problem import PlacementProblem
from tests.router.pages import Page, assert_coloured, assert_stands_alone
from tests.router.verbs.place import samples
from tests.router.verbs.place.samples import CHANGED, FIRST, KEPT, NOTHING, foretold

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def changed() -> str:
    """The page of a plan that is taken."""
    return page(CHANGED)


@pytest.fixture(scope="module")
def missed() -> str:
    """The page of one that a model misses its SLO with."""
    return page(foretold(0.9985, 0.9931, 0.97, 1.0))


def seen(text: str) -> str:
    """The words of a page."""
    plain = re.sub(r"<svg.*?</svg>|<style>.*?</style>|<[^>]*>", " ", text, flags=re.DOTALL)
    return " ".join(html.unescape(plain).split())


def test_the_page_holds_the_sentence_and_the_cells_of_the_tables(changed: str) -> None:
    console = Console(width=200, file=StringIO())
    with console.capture() as capture:
        console.print(render(CHANGED))
    lines = capture.get().splitlines()
    sentence = lines[0]
    assert sentence in seen(changed)
    printed = [
        cell
        for line in lines
        if re.search(r"\d ( ms| %|  .*\d)?", line)
        for cell in re.split(r"\s{2,}", line)
    ]
    cells = Page(changed).cells
    assert len(cells) > 60
    for cell in cells:
        assert cell.replace("\xa0", " ") in printed


def test_every_column_is_explained(changed: str) -> None:
    text = seen(changed)
    for name, meaning in [*HEADS, *((flat(each.title), each.meaning) for each in COLUMNS)]:
        assert re.search(rf"\b{re.escape(name)}\s+{re.escape(meaning)}", text)


@pytest.mark.parametrize("shown", [CHANGED, KEPT, FIRST], ids=["changed", "kept", "first"])
def test_the_page_fetches_nothing_runs_nothing_and_its_pictures_do_not_clash(shown: PlaceReport) -> None:
    text = page(shown)
    assert_stands_alone(text.replace('<a href="#reading">', ""))
    assert 'id="reading"' in text


def test_where_nothing_is_asked_there_is_a_page_that_says_so() -> None:
    text = page(NOTHING)
    assert "no device is needed" in seen(text)
    assert Page(text).cells == []


def test_the_pictures_take_their_colours_from_the_page_which_has_them_for_light_and_dark(missed: str) -> None:
    assert {"ink", "faint", "bad", "good", "model0", "model3"} <= assert_coloured(missed)


def test_before_stands_above_after_where_the_plan_is_taken_and_alone_where_it_is_not(changed: str) -> None:
    assert changed.index(">Before<") < changed.index(">After<")
    assert ">As it is, and stays<" in page(KEPT)
    assert ">The plan<" in page(FIRST)
    assert ">The plan, which breaks a promise<" in page(replace(CHANGED, taken=False, refused=("x",)))


def test_what_does_not_hold_is_said_at_the_top(changed: str) -> None:
    text = page(replace(CHANGED, refused=("digits: 97 % < 99 %",)))
    assert '<p class="refused">digits: 97&nbsp;% &lt; 99&nbsp;%</p>' in text
    assert '<p class="refused">' not in changed


def test_models_that_miss_are_marked(missed: str) -> None:
    assert missed.count('<tr class="missed">') == 1
    assert '<tr class="missed"><td><b>digits</b></td>' in missed


def test_names_are_escaped() -> None:
    demand = samples.demand("<i>x</i>", 100, 100, 300)
    problem = PlacementProblem((demand,), samples.pools(1, 0))
    after = {"gpu-0": (samples.slot(problem, samples.mig("7g.80gb"), demand.model, start=0),)}
    text = page(replace(FIRST, problem=problem, after=after, models=samples.told(problem, after, (0.2,))))
    assert "<i>" not in text


def test_a_large_fleet_makes_no_large_page() -> None:
    assert len(page(samples.large(300))) < 300_000
