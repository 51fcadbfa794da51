"""Pictures of a placement: devices cut into slices, before and after; what each model is carried and answered
in time; what it costs.

For somebody who sees such a thing for the first time: words before symbols, units at every axis.
"""

import textwrap
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from router.place import panels, words
from router.place.figures import free, layouts, used, worst
from router.place.panels import BAR_IN, FAINT, INK, LINE_IN, PAPER, Price
from router.place.shown import PlaceReport
from router.report.svg import STYLE, inline
from serving.policy.placement.plan import Placement, cost

if TYPE_CHECKING:  # matplotlib takes half a second that a table need not wait for
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_READING = (
    "A bar is a device, cut into slices to scale. MIG instances lie on its memory slices (ticks, from 0), "
    "other shares have no place of their own. Dashed: free. Models above each other on a slice compute in "
    "turns."
)
_STYLE: dict[Any, Any] = {
    **STYLE,
    "text.color": INK,
    "axes.edgecolor": FAINT,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "xtick.labelsize": 7.5,
    "hatch.color": FAINT,
    "legend.facecolor": PAPER,
}
_WIDE, _LEFT, _RIGHT = 10.8, 1.9, 0.35  # inches
_DEVICE = _WIDE - _LEFT - _RIGHT
_NAMES = 0.1 + 0.18 * panels.NAMED_LINES  # below a block, where models are named there
_ABOVE, _BELOW, _TICKS = 0.34, 0.1, 0.5  # of a block's axes: for a title, a gap, and ticks with their meaning
_LETTERS = 190  # in a line of the whole width
BARS, LINES = 24, 24
"""At most, devices (alike ones are one bar) and models in a picture."""


class PictureBlock(NamedTuple):
    """Axes side by side, of one height in inches; each is drawn by a function. `below_in`: left free."""

    high_in: float
    drawn: Sequence[Callable[["Axes"], None]]
    below_in: float = _BELOW


def write_png(shown: PlaceReport, path: Path, footnote: str) -> None:
    """All pictures, one below the other, with what to see. OSError where it cannot be written."""
    import matplotlib as mpl

    heading = textwrap.fill(words.sentence(shown), _LETTERS - 70)
    footing = textwrap.fill(f"{reading(shown)} {footnote}", _LETTERS)
    above_in, below_in = 0.25 + 0.2 * len(heading.split("\n")), 0.2 + 0.14 * len(footing.split("\n"))
    with mpl.rc_context(_STYLE):
        figure = _draw([*_devices(shown), *_figures(shown)], above_in, below_in)
        high = figure.get_figheight()
        figure.text(0.01, 1 - 0.12 / high, heading, va="top", fontsize=10.5, fontweight="bold")
        figure.text(0.01, 0.1 / high, footing, va="bottom", fontsize=7.5, color=FAINT)
        figure.savefig(path, dpi=110, format="png")


def reading(shown: PlaceReport) -> str:
    """Return how to read the picture of devices."""
    many = len(shown.problem.demands) > len(panels.HUES)
    return _READING + (f" Colours repeat after {len(panels.HUES)} models." if many else "")


def svg_devices(shown: PlaceReport, name: str) -> str:
    """Return the devices as an `<svg>` element, whose ids begin with `name`: a page has many."""
    return _svg(list(_devices(shown)), name)


def svg_figures(shown: PlaceReport, name: str) -> str:
    """Models and costs, likewise."""
    return _svg(list(_figures(shown)), name)


def _svg(blocks: Sequence[PictureBlock], name: str) -> str:
    import matplotlib as mpl

    with mpl.rc_context(_STYLE):
        return inline(_draw(blocks, 0, 0), name, panels.COLOURS)


def _draw(blocks: Sequence[PictureBlock], above_in: float, below_in: float) -> "Figure":
    """One below the other, with so much room above and below all of them."""
    from matplotlib.figure import Figure

    high = above_in + below_in + sum(_ABOVE + block.high_in + block.below_in for block in blocks)
    figure = Figure(figsize=(_WIDE, high))
    top = high - above_in
    for block in blocks:
        top -= _ABOVE + block.high_in
        wide = (_WIDE - _LEFT - _RIGHT * len(block.drawn)) / len(block.drawn)
        for place, draw in enumerate(block.drawn):
            left = _LEFT + place * (wide + _RIGHT)
            draw(figure.add_axes((left / _WIDE, top / high, wide / _WIDE, block.high_in / high)))
        top -= block.below_in
    return figure


def _devices(shown: PlaceReport) -> Iterator[PictureBlock]:
    """Before above after; one block where nothing was there, or nothing changes."""
    if shown.before and not shown.kept:
        yield _bars(shown, shown.before, "Before")
    title = "As it is, and stays" if shown.kept else "After" if shown.before else "The plan"
    yield _bars(shown, shown.after, "The plan, which breaks a promise" if shown.refused else title)


def _bars(shown: PlaceReport, placement: Placement, title: str) -> PictureBlock:
    """In the order of the devices; where they are too many, without the rarest layouts."""
    found, unused = layouts(shown.problem, placement), free(shown.problem, placement)
    kept = sorted(found, key=lambda each: -each.count)[: max(BARS - len(unused), 1)]
    if dropped := len(found) - len(kept):
        count = sum(each.count for each in found) - sum(each.count for each in kept)
        title += f" ({words.counted(dropped, 'rarer layout')} of {words.counted(count, 'device')} left out)"
    place = {name: number for number, name in enumerate(shown.problem.pool_of)}
    lines = sorted([*kept, *unused], key=lambda each: place[each.devices[0]])
    colours = panels.hues([each.model for each in shown.problem.demands])

    def draw(axes: "Axes") -> None:
        panels.devices(axes, lines, colours, _DEVICE)
        axes.set_title(title, loc="left", fontweight="bold")

    below_in = _NAMES if panels.unnamed(lines, _DEVICE) else _BELOW
    return PictureBlock(BAR_IN * max(len(lines), 1), [draw], below_in)


def _figures(shown: PlaceReport) -> Iterator[PictureBlock]:
    models = worst(shown.models, LINES)
    if models:
        draws = [partial(panels.carried, shown=models, reserve=shown.reserve),
                 partial(panels.attained, shown=models, aim=shown.attainment)]  # fmt: skip
        yield PictureBlock(LINE_IN * len(models), draws, _TICKS)
    prices = list(_prices(shown))
    title = "What it costs an hour" if shown.priced else "How many devices it takes"
    least = words.money(shown.bound) if shown.priced else f"{shown.bound:.4g} devices"
    draw = partial(panels.costs, prices=prices, title=title, bound=shown.bound, least=least)
    yield PictureBlock(LINE_IN * len(prices), [draw], _TICKS)


def _prices(shown: PlaceReport) -> Iterator[Price]:
    """Of the placements that are told of."""
    placements = {"before": shown.before} if shown.before and not shown.kept else {}
    placements["as it stays" if shown.kept else "the plan"] = shown.after
    if shown.kept:
        placements["the plan, not taken"] = shown.plan.placement
    for name, placement in placements.items():
        paid = cost(shown.problem, placement)
        yield Price(name, paid, _price(shown, used(placement), paid), placement is shown.after)


def _price(shown: PlaceReport, count: int, paid: float) -> str:
    told = words.counted(count, "device")
    return f"{words.money(paid)} ({told})" if shown.priced else told
