"""Elements: words that any XML reader can read, and that fit into their room."""

from math import inf, nan
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.verbs.report import svg
from router.verbs.report.colours import COLOURS, plain_style, style
from tests.router.verbs.report.letters import drawn_wide

SENTENCE = "digits and minilm-l6 carry 12,345 rows/s within 25 ms (WMmw @ 99.95 %; p99: 17.3 of 25 ms)"
LETTERS = st.text(st.characters(min_codepoint=32, max_codepoint=126), max_size=60)


@given(st.text(max_size=40))
def test_any_text_becomes_well_formed(text: str) -> None:
    written = svg.picture((10, 10), text, [svg.words((1, 1), text, tip=text)], alone=True)
    tree = ET.fromstring(written)  # noqa: S314 - our own
    if text and text.isprintable():
        assert tree[0].text == text


def test_signs_of_markup_are_escaped() -> None:
    assert svg.said('<b>&"') == "&lt;b&gt;&amp;&quot;"
    assert svg.element("g", id='<b>&"') == '<g id="&lt;b&gt;&amp;&quot;"/>'


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (0.0, "0"),
        (-0.001, "0"),
        (0.25, "0.25"),
        (1.04, "1"),
        (10.0, "10"),
        (1000.06, "1000.1"),
        (-3.5, "-3.5"),
    ],
)
def test_numbers_are_short(value: float, written: str) -> None:
    assert svg.number(value) == written


def test_a_line_has_a_gap_where_there_is_no_number() -> None:
    assert svg.path([(0, 1), (1, 2), (nan, 3), (3, inf), (4, 5), (5, 6)]) == "M0 1L1 2M4 5L5 6"
    assert svg.path([]) == ""


def test_stairs_go_along_and_then_up() -> None:
    assert svg.steps([0, 1, 3], [5, 7]) == [(0, 5), (1, 5), (1, 7), (3, 7)]
    assert svg.steps([0], []) == []


@pytest.mark.parametrize("bold", [False, True])
@given(text=LETTERS)
def test_a_text_is_hardly_ever_drawn_wider_than_is_reckoned(text: str, bold: bool) -> None:
    assert drawn_wide(text, 11, bold) <= 1.12 * svg.wide(text, 11, bold) + 2


def test_a_sentence_is_reckoned_to_a_twentieth() -> None:
    assert drawn_wide(SENTENCE, 11) == pytest.approx(svg.wide(SENTENCE, 11), rel=0.05)


@given(LETTERS, st.floats(0, 400))
def test_a_shortened_text_fits_and_keeps_both_ends(text: str, room: float) -> None:
    cut = svg.shortened(text, room)
    assert svg.wide(cut) <= room or cut in ("…", "")
    if cut != text:
        begun, _, ended = cut.partition("…")
        assert text.startswith(begun)
        assert text.endswith(ended)
        assert len(begun) - len(ended) in (0, 1)


@given(LETTERS, st.floats(50, 400))
def test_lines_hold_all_words_in_order_and_fit(text: str, room: float) -> None:
    found = svg.lines(text, room)
    assert " ".join(found).split() == text.split()
    assert all(svg.wide(line) <= room or " " not in line for line in found)


def test_line_breaks_stay() -> None:
    assert svg.lines("one two\nthree", 1000) == ["one two", "three"]


def test_a_text_without_a_tip_has_none() -> None:
    assert "<title>" not in svg.words((0, 0), "x")
    assert "<title>longer</title>x" in svg.words((0, 0), "x", tip="longer")


def test_a_picture_in_a_page_takes_its_colours_from_there_and_one_alone_brings_them() -> None:
    body = [svg.element("rect", fill="good", stroke="ink")]
    assert "<style>" not in svg.picture((5, 5), "x", body)
    alone = svg.picture((5, 5), "x", body, alone=True)
    light, dark = alone.split("prefers-color-scheme: dark")
    for place, half in enumerate((light, dark)):
        assert f".f-good{{fill:{COLOURS['good'][place]}}}" in half
        assert f".s-ink{{stroke:{COLOURS['ink'][place]}}}" in half


def test_every_colour_is_there_in_the_light_and_in_the_dark() -> None:
    light, dark = style().split("prefers-color-scheme: dark")
    for name in COLOURS:
        assert f"--{name}: " in light
        assert f"--{name}: " in dark
        assert f".f-{name}{{fill:var(--{name})}}" in dark
        assert plain_style().count(f".s-{name}{{") == 2
