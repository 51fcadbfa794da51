"""Draws what lies on a chart, and the pictures of a legend."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from math import cos, isfinite, nan, pi, sin
from typing import NamedTuple

from router.verbs.report import svg
from router.verbs.report.chart import Area, Axis, Dot, Key, Line, Mark, Note, Rect, Rule, Stairs, Tip
from router.verbs.report.svg import SMALL, Letters, element, number, path

_CAP = 2.0  # half of the ends of a bar
_ROW = 1.2 * SMALL  # from a line in a rectangle to the next


class Frame(NamedTuple):
    """Where a chart's axes lie in the picture."""

    along: Axis
    up: Axis
    left: float
    top: float
    wide: float
    high: float

    def x(self, value: float) -> float:
        """Return pixels from the left."""
        return self.left + self.wide * self.along.part(value)

    def y(self, value: float) -> float:
        """Return pixels from above."""
        return self.top + self.high * (1 - self.up.part(value))

    def places(self, xs: Sequence[float], ys: Sequence[float]) -> list[tuple[float, float]]:
        """Return pixels of each pair."""
        return [(self.x(x), self.y(y)) for x, y in zip(xs, ys, strict=True)]


def draw(mark: Mark, frame: Frame) -> Iterator[str]:
    """Yield its elements; none of what lies nowhere."""
    match mark:
        case Line():
            yield from _line(mark, frame)
        case Stairs():
            places = svg.steps([*map(frame.x, mark.edges)], [*map(frame.y, mark.heights)])
            yield _stroke(path(places), mark.colour, mark.width)
        case Area():
            yield from _area(mark, frame)
        case Rule():
            yield _rule(mark, frame)
        case Rect():
            yield from _rect(mark, frame)
        case Dot():
            yield from _dot(mark, frame)
        case Note():
            yield from _note(mark, frame)
        case Tip():
            x, wide = frame.x(mark.low), frame.x(mark.high) - frame.x(mark.low)
            yield element("rect", *svg.title(mark.said), fill="ink", kind="tip", x=x, y=frame.top, width=wide,
                          height=frame.high)  # fmt: skip


def swatch(drawn: object, at: tuple[float, float]) -> Iterator[str]:
    """Yield what stands before a label: a short line, a small area or the dot itself."""
    x, y = at
    match drawn:
        case Dot():
            yield _shape(drawn, (x + 8, y))
        case Line() | Stairs() | Rule():
            dash, width = getattr(drawn, "dash", ""), getattr(drawn, "width", 1.2)
            yield _stroke(f"M{number(x)} {number(y)}h16", drawn.colour, width, dash)
        case Area() | Key():
            yield element("rect", fill=drawn.colour, x=x, y=y - 4.5, width=16, height=9, rx=1.5,
                          fill_opacity=_seen(getattr(drawn, "opacity", 1.0)))  # fmt: skip


def _stroke(d: str, colour: str, width: float, dash: str = "") -> str:
    return element("path", d=d, fill="none", stroke=colour, stroke_width=width, stroke_dasharray=dash or None,
                   stroke_linejoin="round")  # fmt: skip


def _line(mark: Line, frame: Frame) -> Iterator[str]:
    places = frame.places(mark.xs, mark.ys)
    if mark.width:
        yield _stroke(path(places), mark.colour, mark.width, mark.dash)
    if mark.dots:
        d = "".join(f"M{number(x)} {number(y)}h0" for x, y in places if isfinite(x) and isfinite(y))
        yield element(
            "path", d=d, fill="none", stroke=mark.colour, stroke_width=mark.dots, stroke_linecap="round"
        )


def _area(mark: Area, frame: Frame) -> Iterator[str]:
    """Yield one block for each run of heights without nan."""
    edges = [*map(frame.x, mark.edges)]
    below = [*map(frame.y, mark.below or [frame.up.low] * len(mark.heights))]
    tops = [*map(frame.y, mark.heights)]
    known = [isfinite(top) and isfinite(bottom) for top, bottom in zip(tops, below, strict=True)]
    found, place = "", 0
    for inside, run in groupby(known):
        begun, place = place, place + len([*run])
        if inside:
            own = edges[begun : place + 1]
            ahead, back = svg.steps(own, tops[begun:place]), svg.steps(own, below[begun:place])
            found += path([*ahead, *reversed(back)]) + "z"
    if found:
        yield element("path", d=found, fill=mark.colour, fill_opacity=_seen(mark.opacity))


def _seen(opacity: float) -> float | None:
    return None if opacity == 1 else opacity


def _rule(mark: Rule, frame: Frame) -> str:
    if mark.upright:
        d = f"M{number(frame.x(mark.at))} {number(frame.top)}v{number(frame.high)}"
    else:
        d = f"M{number(frame.left)} {number(frame.y(mark.at))}h{number(frame.wide)}"
    return _stroke(d, mark.colour, 1.2, mark.dash)


def _rect(mark: Rect, frame: Frame) -> Iterator[str]:
    (left, right), (top, bottom) = sorted(map(frame.x, mark.x)), sorted(map(frame.y, mark.y))
    if not isfinite(right - left + bottom - top):
        return
    yield element(
        "rect", *svg.title(mark.tip), fill=mark.fill, stroke=mark.stroke, x=left, y=top, width=right - left,
        height=bottom - top, fill_opacity=_seen(mark.opacity),
        stroke_dasharray=mark.dash or None,
    )  # fmt: skip
    told = mark.said.split("\n") if mark.said else []
    for line, text in enumerate(told):
        y = (top + bottom) / 2 + (line - (len(told) - 1) / 2) * _ROW
        yield svg.words(((left + right) / 2, y), text, Letters(colour=mark.ink, anchor="middle"), mark.tip)


def _dot(mark: Dot, frame: Frame) -> Iterator[str]:
    x, y = frame.x(mark.x), frame.y(mark.y)
    if not (isfinite(x) and isfinite(y)):
        return
    if mark.below or mark.above:
        low, high = frame.y(mark.y - mark.below), frame.y(mark.y + mark.above)
        low = low if isfinite(low) else frame.top + frame.high
        ends = (low, high) if mark.below and mark.above else (low,) if mark.below else (high,)
        caps = "".join(f"M{number(x - _CAP)} {number(end)}h{number(2 * _CAP)}" for end in ends)
        yield _stroke(f"M{number(x)} {number(low)}V{number(high)}{caps}", mark.colour, 1)
    yield _shape(mark, (x, y))


def _shape(mark: Dot, at: tuple[float, float]) -> str:
    told, size, (x, y) = svg.title(mark.tip), mark.size, at
    fill = "paper" if mark.hollow else mark.colour
    if mark.shape == "dot":
        return element("circle", *told, fill=fill, stroke=mark.colour, cx=x, cy=y, r=size)
    if mark.shape == "cross":
        ends = [
            (x - size, y - size),
            (x + size, y + size),
            (nan, nan),
            (x - size, y + size),
            (x + size, y - size),
        ]
        return element("path", *told, d=path(ends), fill="none", stroke=mark.colour, stroke_width=2.5)
    radii = [size, 0.42 * size] * 5 if mark.shape == "star" else [size] * 4
    turn = 2 * pi / len(radii)
    places = [(x + r * sin(turn * n), y - r * cos(turn * n)) for n, r in enumerate(radii)]
    return element("path", *told, d=path(places) + "z", fill=fill, stroke="ink", stroke_width=0.6)


def _note(mark: Note, frame: Frame) -> Iterator[str]:
    x, y = frame.x(mark.x) + mark.off[0], frame.y(mark.y) + mark.off[1]
    if isfinite(x) and isfinite(y):
        yield svg.words((x, y), mark.said, Letters(colour=mark.colour, anchor=mark.anchor))
