"""Charts: axes put values where they belong, marks are drawn there, and nothing that is no number is."""

import re
from itertools import pairwise
from math import inf, isnan, nan
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.verbs.report import drawing
from router.verbs.report.chart import (
    Area,
    Axis,
    Dot,
    Key,
    Line,
    Mark,
    Note,
    Plot,
    Plots,
    Rect,
    Rule,
    Stairs,
    Tip,
    Words,
    names,
)
from tests.router.pages import SVG, texts

NAME = '<b>&"'
UNIT, LOG = Axis(0, 10, "seconds"), Axis(1, 100, log=True)
ANY = st.floats(allow_nan=True, allow_infinity=True)


def picture(*marks: Mark, x: Axis = UNIT, y: Axis = UNIT, title: str = "title") -> str:
    """Of one chart."""
    return drawing.picture([Plots([Plot(title, x, y, marks)], 100)], 500, "name")


def tree(written: str) -> ET.Element:
    return ET.fromstring(written)  # noqa: S314 - our own


def circles(written: str) -> list[tuple[float, float]]:
    return [
        (float(each.attrib["cx"]), float(each.attrib["cy"])) for each in tree(written).iter(f"{SVG}circle")
    ]


def test_a_linear_axis_puts_values_in_proportion() -> None:
    assert [UNIT.part(each) for each in (0, 2.5, 10)] == [0, 0.25, 1]


def test_a_logarithmic_axis_puts_equal_ratios_equally_far_apart() -> None:
    assert [round(LOG.part(each), 9) for each in (1, 10, 100)] == [0, 0.5, 1]


def test_what_lies_outside_is_at_the_nearer_end_and_no_number_is_nowhere() -> None:
    assert (UNIT.part(-5), UNIT.part(1e12), LOG.part(0.001)) == (0, 1, 0)
    assert all(isnan(each) for each in (UNIT.part(nan), UNIT.part(inf), LOG.part(0), LOG.part(-1)))


@given(ANY, ANY, ANY, st.booleans())
def test_values_lie_inside_the_chart_or_nowhere(low: float, high: float, value: float, log: bool) -> None:
    part = Axis(low, high, log=log).part(value)
    assert isnan(part) or 0 <= part <= 1


def test_names_stand_one_below_the_other() -> None:
    axis = names(["a", "b", "c"])
    assert [axis.part(place) for place in (0, 1, 2)] == pytest.approx([5 / 6, 1 / 2, 1 / 6])
    assert [axis.shown(each) for each in axis.ticks()] == ["a", "b", "c"]
    assert names([]).ticks() == []


def test_own_ticks_outside_are_left_out() -> None:
    assert Axis(1, 10, log=True, at=(1, 2, 4, 8, 16)).ticks() == [1, 2, 4, 8]
    assert names(["a"])._replace(at=(0, 1)).ticks() == [0]


def test_a_picture_has_a_role_and_a_name_and_no_script() -> None:
    found = tree(picture())
    assert found.attrib["role"] == "img"
    assert found[0].tag == f"{SVG}title"
    assert found[0].text == "name"
    assert not {each.tag for each in found.iter()} - {
        f"{SVG}{tag}" for tag in ("svg", "title", "text", "path")
    }


def test_names_are_escaped_wherever_they_stand() -> None:
    marks = (
        Line([0, 1], [0, 1], "ink", NAME), Note(1, 1, NAME), Dot(1, 1, "ink", tip=NAME),
        Rect((0, 1), (0, 1), "ink", said=NAME, tip=NAME), Tip(0, 1, NAME), Rule(1, "ink", NAME),
    )  # fmt: skip
    written = picture(*marks, y=names([NAME]), title=NAME)
    assert "<b>" not in written
    assert texts(written).count(NAME) == 6
    assert [each.text for each in tree(written).iter(f"{SVG}title")].count(NAME) == 4


@pytest.mark.parametrize(
    "mark",
    [
        Line([], [], "ink"),
        Line([0, 1], [nan, nan], "ink", dots=3),
        Stairs([0], [], "ink"),
        Area([0], [], "ink"),
        Area([0, 1, 2], [nan, nan], "ink"),
        Dot(nan, 1, "ink"),
        Dot(1, inf, "ink"),
        Note(1, nan, "x"),
        Rect((0, nan), (0, 1), "ink"),
    ],
)
def test_what_has_no_numbers_is_not_drawn(mark: Mark) -> None:
    written = picture(mark)
    drawn = [each for each in tree(written).iter(f"{SVG}path") if each.attrib.get("d")]
    assert len(drawn) == len([each for each in tree(picture()).iter(f"{SVG}path") if each.attrib.get("d")])
    assert not re.search(r"nan|inf", written)
    assert not circles(written)


@given(st.lists(st.tuples(ANY, ANY), max_size=8), ANY, ANY, st.booleans())
def test_whatever_the_values_the_picture_is_well_formed(
    places: list[tuple[float, float]], low: float, high: float, log: bool
) -> None:
    xs, ys = [x for x, _ in places], [y for _, y in places]
    marks: list[Mark] = [
        Line(xs, ys, "ink", dots=2),
        Stairs([*xs, 1.0], ys, "ink"),
        Area([*xs, 1.0], ys, "ink"),
    ]
    marks += [Dot(x, y, "ink", below=abs(y), above=abs(x)) for x, y in places]
    marks += [Rect((x, y), (y, x), "ink") for x, y in places]
    written = picture(*marks, x=Axis(low, high), y=Axis(low, high, log=log))
    tree(written)
    assert not re.search(r'[ "ML](nan|inf|-inf)', written)


def test_dots_lie_where_axes_and_ticks_say() -> None:
    (dot, low, high) = circles(picture(Dot(5, 5, "ink"), Dot(0, 0, "ink"), Dot(10, 10, "ink")))
    assert dot == pytest.approx(((low[0] + high[0]) / 2, (low[1] + high[1]) / 2), abs=0.1)
    assert (low[1] - high[1], low[0] < high[0]) == (100, True)


def test_an_area_has_a_block_for_each_run_of_numbers() -> None:
    written = picture(Area([0, 1, 2, 3, 4], [1, 2, nan, 3], "good", opacity=0.4))
    (d,) = [each.attrib["d"] for each in tree(written).iter(f"{SVG}path") if each.attrib.get("fill-opacity")]
    assert d.count("M") == d.count("z") == 2


def test_shapes_and_bars_of_dots() -> None:
    def paths(**how: object) -> int:
        return len([*tree(picture(Dot(5, 5, "ink", **how))).iter(f"{SVG}path")])  # type: ignore[arg-type]

    plain = paths()
    assert paths(above=1.0) == plain + 1
    assert [paths(shape=shape) - plain for shape in ("dot", "cross", "star", "diamond")] == [0, 1, 1, 1]
    assert 'class="f-paper s-ink"' in picture(Dot(5, 5, "ink", hollow=True))


def test_a_legend_has_each_label_once_above_the_chart() -> None:
    marks: list[Mark] = [
        Line([0, 1], [0, 1], "ink", "lines"),
        Dot(1, 1, "knee", "the knee"),
        Rule(1, "bad", "promised"),
    ]
    plot = Plot("title", UNIT, UNIT, marks, keys=[Key("good", "a key")])
    written = drawing.picture([Plots([plot], 100)], 500, "name")
    found = texts(written)
    assert [found.count(each) for each in ("lines", "the knee", "promised", "a key")] == [1, 1, 1, 1]
    heights = {each.text: float(each.attrib["y"]) for each in tree(written).iter(f"{SVG}text")}
    top_tick = heights["10"]
    assert max(heights[each] for each in ("lines", "the knee", "promised", "a key")) < top_tick


def test_a_long_legend_goes_on_in_the_next_line_inside_the_picture() -> None:
    labels = [f"share number {place} of a device" for place in range(7)]
    written = picture(*(Line([0, 1], [0, place], "ink", label) for place, label in enumerate(labels)))
    keys = [each for each in tree(written).iter(f"{SVG}text") if each.text in labels]
    assert len(keys) == 7
    assert len({each.attrib["y"] for each in keys}) > 1
    assert all(float(each.attrib["x"]) < 400 for each in keys)


def test_a_long_name_is_cut_and_has_all_of_it_as_its_title() -> None:
    name = "a-model-with-a-name-that-no-picture-has-room-for-" * 3
    written = picture(y=names([name]))
    (cut,) = [each for each in texts(written) if "…" in each]
    assert len(cut) < len(name)
    assert name in [each.text for each in tree(written).iter(f"{SVG}title")]


def test_ticks_whose_texts_would_touch_are_left_out() -> None:
    crowded = Axis(0, 1000, at=range(0, 1000, 5))
    written = picture(x=crowded, y=names(["a"]))
    xs = sorted(
        float(each.attrib["x"]) for each in tree(written).iter(f"{SVG}text") if (each.text or "").isdigit()
    )
    assert 5 < len(xs) < 30
    assert min(after - before for before, after in pairwise(xs)) > 15


def test_charts_side_by_side_are_equally_wide_and_begin_at_one_height() -> None:
    one = Plot("one", UNIT, Axis(0, 1e6), [Dot(0, 0, "ink"), Dot(10, 1e6, "ink")])
    other = Plot("other", UNIT, UNIT, [Rule(5, "ink", "label"), Dot(0, 0, "ink"), Dot(10, 10, "ink")])
    a, b, c, d = sorted(circles(drawing.picture([Plots([one, other], 80)], 900, "name")))
    assert b[0] - a[0] == pytest.approx(d[0] - c[0], abs=0.2)
    assert (a[1], b[1]) == (c[1], d[1])
    assert a[1] - b[1] == 80


def test_words_are_broken_into_lines_and_make_room() -> None:
    long = "many words that do not fit into one line of it " * 6
    short, tall = (
        float(tree(drawing.picture([Words(text)], 400, "")).attrib["height"]) for text in ("x", long)
    )
    assert tall > short + 40
    assert " ".join(texts(drawing.picture([Words(long)], 400, ""))) == long.strip()


def test_the_bar_of_a_dot_that_goes_below_a_logarithmic_axis_ends_at_its_foot() -> None:
    written = picture(Dot(5, 10, "ink", below=20, above=0), y=LOG)
    assert re.search(r'd="M[\d.]+ [\d.]+V[\d.]+M', written)
    assert "nan" not in written
