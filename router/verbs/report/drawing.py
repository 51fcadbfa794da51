"""Draws charts as a picture in SVG: legends above the charts, so that nothing lies on what is drawn."""

from collections.abc import Iterator, Sequence
from math import isfinite
from typing import NamedTuple

from router.verbs.report import svg
from router.verbs.report.chart import Axis, Plot, Plots, Words
from router.verbs.report.marks import Frame, draw, swatch
from router.verbs.report.svg import TITLE, Letters

_LEFT_MAX = 170.0  # what names at the left of charts may have
_EDGE, _BETWEEN = 20.0, 26.0  # right of the last chart; between charts
_TITLE, _LEGEND, _TICK, _NAME, _GAP = 25.0, 16.0, 17.0, 16.0, 16.0  # heights
_SWATCH, _SPACE = 22.0, 16.0  # widths in a legend
_UNDER = 5.0  # below a legend
_NEAR = 8.0  # between the texts of two ticks
_ROW = 1.35  # sizes of letters, from a line of words to the next


class Placed(NamedTuple):
    """A key of the legend, where it stands."""

    x: float
    line: int
    drawn: object
    label: str


def picture(items: Sequence[Plots | Words], wide: float, name: str) -> str:
    """Return the picture as an element of a page, which has its colours. `name`: what it shows."""
    high, body = _stack(items, wide)
    return svg.picture((wide, high), name, body)


def file(items: Sequence[Plots | Words], wide: float, name: str) -> str:
    """Return the picture as a file of its own."""
    high, body = _stack(items, wide)
    return svg.picture((wide, high), name, body, alone=True) + "\n"


def _stack(items: Sequence[Plots | Words], wide: float) -> tuple[float, list[str]]:
    """Draw one below the other; return how high all of them are, and their elements."""
    needed = [
        _needed(plot) for item in items if isinstance(item, Plots) for plot in item.plots if not plot.left
    ]
    left, top, body = max(needed, default=0.0), 4.0, list[str]()
    for item in items:
        if isinstance(item, Words):
            told = svg.lines(item.text, wide - _EDGE, item.size, item.bold)
            for line, text in enumerate(told):
                how = Letters(item.size, item.colour, bold=item.bold)
                body.append(svg.words((2, top + (line + 0.6) * _ROW * item.size), text, how))
            top += _ROW * item.size * len(told) + 10
        elif item.plots:
            high, drawn = _row(item, (top, wide), left)
            body += drawn
            top += high
    return top, body


def _needed(plot: Plot) -> float:
    """Return the pixels that its ticks need at the left."""
    texts = [svg.wide(plot.y.shown(each)) for each in plot.y.ticks()]
    return min(max(texts, default=0.0), _LEFT_MAX) + 8 + (_NAME if plot.y.name else 0)


def _row(item: Plots, place: tuple[float, float], left: float) -> tuple[float, list[str]]:
    """Draw charts side by side: their axes begin at one height, and are equally wide."""
    top, wide = place
    lefts = [plot.left or left for plot in item.plots]
    room = wide - sum(lefts) - _EDGE - _BETWEEN * (len(lefts) - 1)
    own = room / len(lefts)
    legends = [_legend(plot, own + each) for plot, each in zip(item.plots, lefts, strict=True)]
    lines = max((keys[-1].line + 1 if keys else 0 for keys in legends), default=0)
    legend = _LEGEND * lines + (_UNDER if lines else 0)
    body, x = list[str](), 0.0
    for plot, before, keys in zip(item.plots, lefts, legends, strict=True):
        frame = Frame(plot.x, plot.y, x + before, top + _TITLE + legend, own, item.high)
        body += _titled(plot, (x + 2, top), before + own, keys)
        body += _plot(plot, frame, x)
        x += before + own + _BETWEEN
    ticked = any(plot.x.ticks() for plot in item.plots)
    named = _NAME * max((len(_name(plot.x, own)) for plot in item.plots), default=0)
    return _TITLE + legend + item.high + (_TICK if ticked else 0) + named + _GAP, body


def _name(axis: Axis, room: float) -> list[str]:
    return svg.lines(axis.name, room) if axis.name else []


def _legend(plot: Plot, room: float) -> list[Placed]:
    """Return its keys, in as many lines as they need."""
    labelled = [*plot.keys, *(mark for mark in plot.marks if getattr(mark, "label", ""))]
    found, x, line = list[Placed](), 0.0, 0
    for each in labelled:
        label = str(getattr(each, "label", ""))
        wide = min(_SWATCH + svg.wide(label) + _SPACE, room)
        if x and x + wide - _SPACE > room:
            x, line = 0.0, line + 1
        found.append(Placed(x, line, each, label))
        x += wide
    return found


def _titled(plot: Plot, at: tuple[float, float], room: float, keys: Sequence[Placed]) -> Iterator[str]:
    x, top = at
    text = svg.shortened(plot.title, room, TITLE, bold=True)
    yield svg.words((x, top + 11), text, Letters(TITLE, bold=True), plot.title if text != plot.title else "")
    for key in keys:
        place = (x + key.x, top + _TITLE + (key.line + 0.3) * _LEGEND)
        yield from swatch(key.drawn, place)
        label = svg.shortened(key.label, room - key.x - _SWATCH)
        yield svg.words((place[0] + _SWATCH, place[1]), label, tip=key.label if label != key.label else "")


def _plot(plot: Plot, frame: Frame, outer: float) -> Iterator[str]:
    yield from _up(plot.y, frame, outer)
    yield from _along(plot.x, frame)
    for mark in plot.marks:
        yield from draw(mark, frame)


def _up(axis: Axis, frame: Frame, outer: float) -> Iterator[str]:
    """Draw the ticks at the left, with lines through the chart where the axis has a grid. `outer`: where the
    room left of the chart begins."""
    for value in axis.ticks():
        y = frame.y(value)
        if axis.grid:
            yield _straight((frame.left, y), f"h{svg.number(frame.wide)}", "line")
        full = axis.shown(value)
        text = svg.shortened(full, _LEFT_MAX)
        yield svg.words((frame.left - 6, y), text, Letters(anchor="end"), full if text != full else "")
    if axis.name:
        place = (outer + 9, frame.top + frame.high / 2)
        yield svg.words(place, axis.name, Letters(colour="faint", anchor="middle", turned=True))


def _along(axis: Axis, frame: Frame) -> Iterator[str]:
    """Yield the axis line and the ticks below it. If the texts of ticks would touch, yield only the first of
    them."""
    values = axis.ticks()
    bottom, after = frame.top + frame.high, float("-inf")
    if values:
        yield _straight((frame.left, bottom), f"h{svg.number(frame.wide)}", "faint")
    for value in values:
        x, text = frame.x(value), axis.shown(value)
        half = svg.wide(text) / 2
        if isfinite(x) and x - half >= after:
            after = x + half + _NEAR
            yield _straight((x, bottom), "v4", "faint")
            yield svg.words((x, bottom + 12), text, Letters(anchor="middle"))
    for line, text in enumerate(_name(axis, frame.wide)):
        place = (frame.left, bottom + (_TICK if values else 0) + 11 + line * _NAME)
        yield svg.words(place, text, Letters(colour="faint"))


def _straight(at: tuple[float, float], further: str, colour: str) -> str:
    x, y = at
    return svg.element("path", d=f"M{svg.number(x)} {svg.number(y)}{further}", stroke=colour, stroke_width=1)
