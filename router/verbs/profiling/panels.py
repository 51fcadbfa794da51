"""The charts of profiles: throughput and latency, over batches and over shares."""

from collections.abc import Iterator, Sequence
from itertools import cycle
from math import exp

from router.verbs.profiling import words
from router.verbs.profiling.figures import Batch, ShareFigures, ShareScaling, points_of
from router.verbs.report import numbers
from router.verbs.report.chart import DOTTED, Axis, Dot, Line, Mark, Note, Plot, Rule
from serving.profile.curve import Point

SHADES = tuple(f"share{place}" for place in range(5))
"""Colours from little of a device to much."""
HUES = tuple(f"size{place}" for place in range(5))
"""Colours of sizes of rows."""
KNEE = "the knee"
FEW = 5  # shares
_FAR = 6.0  # a promise so many times above all latencies would press them flat
_ROOM = 1.12  # an axis of latencies, times the lowest and the highest

Course = tuple[Sequence[float], Sequence[float]]
"""Places along and up."""


def throughput_by_batch(scaling: ShareScaling) -> Plot:
    """Draw rows a second over rows of a batch, a line for each share."""
    marks: list[Mark] = []
    for share, colour in _shown(scaling):
        dots = [_rate(share, point.rows, 1e6 * point.rows / point.p50_us, colour, _rows(point.rows))
                for point in share.points]  # fmt: skip
        rows, latency_ms = _fitted(scaling, share)
        rates = [1000 * each / ms for each, ms in zip(rows, latency_ms, strict=True)]
        marks += [Line(rows, rates, colour, _name(share)), *dots]
    marks += [_mark(batch.rows, batch.throughput, name, "rows/s") for batch, name in _chosen(scaling)]
    y = Axis(0, 1.05 * _highest(marks), "rows per second")
    return Plot("What a larger batch brings: rows a second", _batches(scaling), y, marks)


def latency_by_batch(scaling: ShareScaling, slo_us: int) -> Plot:
    """Draw milliseconds over rows of a batch, a line for each share, or on one for each size of rows."""
    share = scaling.at_knee or scaling.shares[-1]
    sizes = sorted(share.profile.curves())
    title = "What a larger batch costs: latency"
    marks: list[Mark] = []
    if len(sizes) > 1:
        title += f", on {words.share(share.share)}"
        for size, colour in zip(sizes, cycle(HUES), strict=False):
            course = _fitted(scaling, share) if size == scaling.size else _curve(share, size)
            marks.append(Line(*course, colour, f"rows of up to {size:,}"))
            marks += [_latency(share, point, point.rows, colour) for point in points_of(share.profile, size)]
    else:
        for each, colour in _shown(scaling):
            marks.append(Line(*_fitted(scaling, each), colour, _name(each)))
            marks += [_latency(each, point, point.rows, colour) for point in each.points]
    marks += [_mark(batch.rows, batch.p50_us / 1000, name, "ms") for batch, name in _chosen(scaling)]
    y, rules = _milliseconds(marks, slo_us)
    return Plot(title, _batches(scaling), y, [*rules, *marks])


def throughput_by_share(scaling: ShareScaling, slo_us: int) -> Plot:
    """Draw rows a second over shares, each with the batch that the latency allows."""
    able = [(each, each.within) for each in scaling.shares if each.within]
    amounts, rates = [each.share.amount for each, _ in able], [batch.throughput for _, batch in able]
    top = 1.3 * max(rates, default=1.0)
    marks: list[Mark] = []
    if len(able) > 1:
        slope = rates[0] / amounts[0]
        end = min(amounts[-1], top / slope)
        marks.append(Line([0, end], [0, slope * end], "faint", "if twice the share brought twice as much",
                          dash=DOTTED))  # fmt: skip
    marks.append(Line(amounts, rates, SHADES[2]))
    for each, batch in able:
        tip = f"{words.share(each.share)}, {_rows(batch.rows)}"
        marks.append(_rate(each, each.share.amount, batch.throughput, SHADES[2], tip))
        if len(able) <= FEW:
            marks.append(Note(each.share.amount, batch.throughput, f"batches of {batch.rows:,}", "start",
                              "faint", (10, 14)))  # fmt: skip
    if scaling.knee:
        marks.append(_mark(scaling.knee.amount, scaling.knee.throughput, KNEE, "rows/s"))
    if not able:
        marks.append(Note(scaling.shares[-1].share.amount / 2, top / 2, f"no batch is {words.within(slo_us)}",
                          "middle"))  # fmt: skip
    title = f"What a larger share brings: rows a second {words.within(slo_us)}"
    return Plot(title, _shares(scaling), Axis(0, top, "rows per second", at=None if able else ()), marks)


def latency_by_share(scaling: ShareScaling, slo_us: int) -> Plot:
    """Draw milliseconds over shares: of the smallest batch, and of the knee's."""
    batches = {min(share.points[0].rows for share in scaling.shares): SHADES[1]}
    if scaling.knee:
        batches[scaling.knee.rows] = SHADES[3]
    marks: list[Mark] = []
    for rows, colour in batches.items():
        amounts = [amount for amount in scaling.surface.amounts if _known(scaling, amount, rows)]
        latencies = [scaling.surface.latency_us(amount, rows) / 1000 for amount in amounts]
        marks.append(Line(amounts, latencies, colour, "1 row" if rows == 1 else f"batches of {rows:,}"))
        marks += [
            _latency(each, point, each.share.amount, colour)
            for each in scaling.shares
            for point in each.points
            if point.rows == rows
        ]
    if scaling.knee:
        marks.append(_mark(scaling.knee.amount, scaling.knee.latency_us / 1000, KNEE, "ms"))
    y, rules = _milliseconds(marks, slo_us)
    return Plot("What a larger share spares: latency", _shares(scaling), y, [*rules, *marks])


def _known(scaling: ShareScaling, amount: float, rows: int) -> bool:
    known = scaling.surface.rows_at(amount)
    return known is not None and known[0] <= rows <= known[1]


def _shown(scaling: ShareScaling) -> list[tuple[ShareFigures, str]]:
    """Return the shares to draw lines of, and their colours: more than FEW lines could not be told apart."""
    shares, last = scaling.shares, len(scaling.shares) - 1
    places = {round(step * last / (FEW - 1)) for step in range(FEW)} if last >= FEW else set(range(last + 1))
    if last >= FEW and scaling.at_knee:
        knee = shares.index(scaling.at_knee)
        nearest = min(places - {0, last}, key=lambda place: abs(place - knee))
        places = places - {nearest} | {knee}
    chosen = [shares[place] for place in sorted(places)]
    step = (len(SHADES) - 1) / max(len(chosen) - 1, 1)
    return [(each, SHADES[len(SHADES) - 1 - round(step * back)])
            for back, each in zip(range(len(chosen) - 1, -1, -1), chosen, strict=True)]  # fmt: skip


def _name(share: ShareFigures) -> str:
    return words.share(share.share) + (" (predicted)" if share.profile.predicted else "")


def _rows(count: int) -> str:
    return "1 row" if count == 1 else f"{count:,} rows"


def _rate(share: ShareFigures, x: float, rate: float, colour: str, tip: str) -> Dot:
    """Return a dot with the noise up and down."""
    bar = share.margin * rate
    told = f"{_name(share)}, {tip}: {numbers.rate(rate)} rows/s"
    return Dot(x, rate, colour, below=bar, above=bar, hollow=share.profile.predicted, tip=told)


def _latency(share: ShareFigures, point: Point, x: float, colour: str) -> Dot:
    """Return a dot with a bar up to the p99; a prediction has its error in both directions."""
    ms, error = point.p50_us / 1000, share.profile.origin.error
    below, above = (error * ms, error * ms) if error else (0.0, max(point.p99_us / 1000 - ms, 0.0))
    tip = f"{_name(share)}, {_rows(point.rows)}: {numbers.milliseconds(ms)} ms"
    return Dot(x, ms, colour, below=below, above=above, hollow=share.profile.predicted, tip=tip)


def _fitted(scaling: ShareScaling, share: ShareFigures) -> Course:
    """Return milliseconds over rows, as the surface has them."""
    rows, log_us = scaling.surface.curves[scaling.surface.amounts.index(share.share.amount)]
    return rows, [exp(each) / 1000 for each in log_us]


def _curve(share: ShareFigures, size: int) -> Course:
    """Return the curve of another size than the largest."""
    curve = share.profile.curves()[size]
    return curve.rows, [us / 1000 for us in curve.latency_us]


def _chosen(scaling: ShareScaling) -> list[tuple[Batch, str]]:
    """Return the batch to run at the knee, or on the only share; none where no batch is within the
    latency."""
    share = scaling.at_knee or scaling.shares[-1]
    return [(share.within, KNEE if scaling.knee else "the batch to run")] if share.within else []


def _mark(x: float, y: float, name: str, unit: str) -> Dot:
    shape, size = ("star", 8.5) if name == KNEE else ("diamond", 6.0)
    return Dot(x, y, "knee", name, shape=shape, size=size, tip=f"{name}: {numbers.rate(y)} {unit}")


def _batches(scaling: ShareScaling) -> Axis:
    """Return an axis with powers of two, as far as batches are measured."""
    smallest = min(share.points[0].rows for share in scaling.shares)
    largest = max(share.points[-1].rows for share in scaling.shares)
    powers = [1 << power for power in range(largest.bit_length())]
    return Axis(smallest / 1.2, largest * 1.2, "rows in a batch", log=True, at=powers)


def _shares(scaling: ShareScaling) -> Axis:
    amounts = scaling.surface.amounts
    few = sum(each.within is not None for each in scaling.shares) <= FEW
    end = (1.25 if few else 1.08) * amounts[-1]  # few have words beside their dots
    return Axis(0, end, words.AXIS[scaling.surface.kind], at=amounts, shown=lambda each: f"{each:g}")


def _milliseconds(marks: Sequence[Mark], slo_us: int) -> tuple[Axis, list[Mark]]:
    """Return a logarithmic axis, with what a batch may take where that is anywhere near."""
    heights, half_ms = [*_heights(marks)], slo_us / 2000
    near = half_ms < _FAR * max(heights)
    heights += [half_ms] if near else []
    axis = Axis(min(heights) / _ROOM, max(heights) * _ROOM, "milliseconds (log)", log=True)
    rule = Rule(half_ms, "bad", f"half of {slo_us / 1000:,g} ms: two must fit")
    return axis, [rule] if near else []


def _highest(marks: Sequence[Mark]) -> float:
    return max(_heights(marks), default=1.0)


def _heights(marks: Sequence[Mark]) -> Iterator[float]:
    """Yield how far up and down lines and dots reach, above 0."""
    for mark in marks:
        found = mark.ys if isinstance(mark, Line) else ()
        found = (mark.y - mark.below, mark.y, mark.y + mark.above) if isinstance(mark, Dot) else found
        yield from (each for each in found if each > 0)
