"""What a chart holds: axes, and marks that lie on them. Values alone, which `drawing` makes a picture of."""

from collections.abc import Callable, Sequence
from math import isfinite, log
from typing import NamedTuple

from router.verbs.report import ticks

DASHED, DOTTED = "4 3", "1 3"


class Axis(NamedTuple):
    """From `low` to `high`, which may be less: such an axis begins at its other end. `at`: where ticks stand,
    None: at nice numbers; `shown`: what stands there."""

    low: float
    high: float
    name: str = ""
    log: bool = False
    at: Sequence[float] | None = None
    shown: Callable[[float], str] = ticks.figure
    grid: bool = True

    def ticks(self) -> list[float]:
        """Return where they stand, inside the axis."""
        low, high = sorted((self.low, self.high))
        if self.at is None:
            return ticks.logarithmic(low, high) if self.log else ticks.linear(low, high)
        return [each for each in self.at if low <= each <= high]

    def part(self, value: float) -> float:
        """Return how far from `low` to `high` a value lies, 0 to 1: outside, the nearer end; nan: nowhere."""
        one, other, value = (
            (map(_log, (self.low, self.high, value))) if self.log else (self.low, self.high, value)
        )
        if not (isfinite(value) and isfinite(one) and isfinite(other)):
            return float("nan")
        return min(max((value - one) / (other - one), 0.0), 1.0) if one != other else 0.5


def _log(value: float) -> float:
    return log(value) if value > 0 else float("nan")


def names(shown: Sequence[str]) -> Axis:
    """Return an axis with a name at each line, from the top. The first line is 0, and a line is 1 high."""
    count = max(len(shown), 1)
    return Axis(count - 0.5, -0.5, at=range(len(shown)), shown=lambda place: shown[int(place)], grid=False)


class Line(NamedTuple):
    """Through places; a gap where one is nan. `dots`: how wide the dots at its places are."""

    xs: Sequence[float]
    ys: Sequence[float]
    colour: str
    label: str = ""
    width: float = 1.5
    dash: str = ""
    dots: float = 0.0


class Stairs(NamedTuple):
    """A height from each edge to the next, so there is one edge more."""

    edges: Sequence[float]
    heights: Sequence[float]
    colour: str
    label: str = ""
    width: float = 1.2


class Area(NamedTuple):
    """Between stairs, from `below`, empty: from the axis."""

    edges: Sequence[float]
    heights: Sequence[float]
    colour: str
    label: str = ""
    below: Sequence[float] = ()
    opacity: float = 1.0


class Rule(NamedTuple):
    """A line all along a chart at a value of the y axis, or `upright` at one of the x axis."""

    at: float
    colour: str
    label: str = ""
    dash: str = DASHED
    upright: bool = False


class Rect(NamedTuple):
    """Between two values of each axis. `said`: lines in its middle; `tip`: what a pointer on it shows."""

    x: tuple[float, float]
    y: tuple[float, float]
    fill: str = "none"
    stroke: str = ""
    opacity: float = 1.0
    dash: str = ""
    said: str = ""
    ink: str = "ink"
    tip: str = ""


class Dot(NamedTuple):
    """A place with a bar of what may be `below` and `above` it. `shape`: dot, cross, star or diamond."""

    x: float
    y: float
    colour: str
    label: str = ""
    below: float = 0.0
    above: float = 0.0
    shape: str = "dot"
    size: float = 3.0
    hollow: bool = False
    tip: str = ""


class Note(NamedTuple):
    """Words beside a place, as many pixels from it as `off` says."""

    x: float
    y: float
    said: str
    anchor: str = "start"
    colour: str = "ink"
    off: tuple[float, float] = (0.0, 0.0)


class Tip(NamedTuple):
    """What a pointer between two values of the x axis shows."""

    low: float
    high: float
    said: str


Mark = Line | Stairs | Area | Rule | Rect | Dot | Note | Tip


class Key(NamedTuple):
    """A line of the legend that no mark's label has."""

    colour: str
    label: str


class Plot(NamedTuple):
    """A chart; later marks lie on earlier ones. `left`: pixels left of it, 0: what its ticks need."""

    title: str
    x: Axis
    y: Axis
    marks: Sequence[Mark]
    keys: Sequence[Key] = ()
    left: float = 0.0


class Plots(NamedTuple):
    """Charts side by side, each `high` pixels."""

    plots: Sequence[Plot]
    high: float


class Words(NamedTuple):
    """Words between charts, over the whole width."""

    text: str
    size: float = 11.0
    bold: bool = False
    colour: str = "ink"
