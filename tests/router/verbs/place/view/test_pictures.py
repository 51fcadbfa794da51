"""The pictures: devices to scale, labels that can be read, and room for them."""

from dataclasses import replace
from math import nan
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from router.verbs.place.view import panels, words
from router.verbs.place.view.figures import Layout, layouts
from router.verbs.place.view.panels import HUES, gaps, hues, pieces
from router.verbs.place.view.pictures import write_svg
from router.verbs.place.view.shown import PlaceReport
from router.verbs.report.chart import Rect
from router.verbs.report.colours import COLOURS
from router.verbs.report.svg import SMALL
from serving.policy.placement.terms.problem import Parts, PlacementProblem
from tests.router.pages import texts
from tests.router.verbs.place import samples
from tests.router.verbs.place.samples import CHANGED, FLEET, KEPT, NOTHING, foretold, lacking
from tests.router.verbs.report.letters import drawn_wide


def luminance(colour: str) -> float:
    """Relative, of WCAG 2."""
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    """Of WCAG 2, 1 to 21."""
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


def test_labels_can_be_read_on_the_colour_of_every_model_in_the_light_and_in_the_dark() -> None:
    for place in (0, 1):
        assert min(contrast(COLOURS["ink"][place], COLOURS[hue][place]) for hue in HUES) >= 4.5
        assert len({COLOURS[hue][place] for hue in HUES}) == len(HUES)


def test_models_have_colours_of_their_own_as_long_as_there_are_any() -> None:
    names = [f"m{number}" for number in range(10)]
    found = hues(names)
    assert len({found[name] for name in names[:8]}) == 8
    assert found["m8"] == found["m0"]


def of_device(name: str) -> Layout:
    """That of the sample."""
    return next(each for each in layouts(FLEET, CHANGED.after) if each.devices == (name,))


def test_mig_instances_lie_where_they_begin_and_what_is_free_is_where_nothing_lies() -> None:
    layout = of_device("gpu-0")
    assert [(piece.start, piece.width) for piece in pieces(layout)] == [(0, 0.25), (0.25, 0.125), (0.5, 0.5)]
    assert list(gaps(layout)) == [(0.375, 0.125)]


def test_amounts_lie_one_after_the_other_the_largest_first() -> None:
    layout = of_device("node-1")
    assert [(piece.start, piece.width) for piece in pieces(layout)] == [
        (0, 0.5), (0.5, 0.25), (0.75, 0.0625),
    ]  # fmt: skip
    assert list(gaps(layout)) == [(0.8125, 0.1875)]


def test_a_device_with_nothing_on_it_is_all_free_and_a_full_one_has_no_gap() -> None:
    assert list(gaps(Layout(FLEET.pools[0], ("gpu-3",)))) == [(0.0, 1)]
    assert list(gaps(of_device("gpu-2"))) == []


NAME = "a-model-with-a-long-name"


def narrow(count: int, width: float = 1.0) -> Layout:
    """A machine with slices of one core of a model, of `count` cores."""
    problem = PlacementProblem((samples.demand(NAME, 1, 100, 300),), samples.pools(0, 1))
    pool = replace(problem.pools[0], division=Parts("cores", float(count)))
    return Layout(pool, ("node-0",), (samples.slot(problem, samples.cores(1), NAME),) * int(count * width))


@pytest.mark.parametrize("count", [1, 2, 3, 4, 6, 8, 16])
def test_labels_are_no_wider_than_their_slices(count: int) -> None:
    plot = panels.devices("", [narrow(count)], hues([NAME]), 640.0)
    labels = [mark.said for mark in plot.marks if isinstance(mark, Rect) and mark.said]
    assert len(labels) == (count if count <= 8 else 0)
    for label in labels:
        for line in label.split("\n"):
            assert drawn_wide(line) <= 640 / count
        assert 1.2 * SMALL * len(label.split("\n")) <= panels.BAR


@pytest.mark.parametrize(
    ("count", "label"),
    [
        (1, f"{NAME}\n1 core, batches of 16"),
        (4, f"{NAME}\n1 core, batches of 16"),
        (5, "a-model-w…ong-name"),
        (8, "a-mod…name"),
        (16, ""),
    ],
)
def test_the_narrower_a_slice_the_shorter_its_label(count: int, label: str) -> None:
    (piece, *_) = pieces(narrow(count))
    (band,) = panels.bands(piece, True, 640.0)
    assert band.label == label


def test_models_that_there_is_no_room_to_name_are_named_above() -> None:
    for count, found in ((1, []), (16, [NAME])):
        plot = panels.devices("", [narrow(count)], hues([NAME]), 640.0)
        assert [each.label for each in plot.keys] == found
        assert panels.unnamed([narrow(count)], 640.0) == found


@pytest.mark.slow
@pytest.mark.parametrize(
    "shown",
    [KEPT, NOTHING, lacking(), foretold(nan, nan, nan, nan), foretold(0.0, 0.5, 1.0, 1.0)],
    ids=["kept", "nothing", "lacking", "not-predicted", "late"],
)
def test_the_picture_is_well_formed_and_says_what_is_to_be_seen(shown: PlaceReport, tmp_path: Path) -> None:
    file = tmp_path / "picture.svg"
    write_svg(shown, file, "a footnote")
    found = texts(file.read_text())
    assert " ".join(found).startswith(words.sentence(shown))
    assert "a footnote" in " ".join(found)
    assert ("What is carried, of what is asked" in found) == bool(shown.models)


@pytest.mark.slow
def test_a_fleet_without_devices_or_prices_has_a_picture_too(tmp_path: Path) -> None:
    empty = replace(NOTHING, problem=PlacementProblem((), ()), priced=False)
    write_svg(empty, tmp_path / "empty.svg", "")
    assert "How many devices it takes" in texts((tmp_path / "empty.svg").read_text())


@pytest.mark.slow
def test_the_picture_of_a_large_fleet_is_no_larger_than_a_page(tmp_path: Path) -> None:
    file = tmp_path / "large.svg"
    write_svg(samples.large(300), file, "")
    assert float(ET.fromstring(file.read_text()).attrib["height"]) < 2_000  # noqa: S314 - our own
    assert file.stat().st_size < 60_000
