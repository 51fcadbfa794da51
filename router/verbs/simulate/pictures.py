"""Pictures of runs over the simulated seconds: latency beside the SLO, what was asked and answered, batches.

For somebody who sees such a thing for the first time: words before symbols, units at every axis.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import pairwise
from math import isnan
from pathlib import Path
from typing import NamedTuple

from router.verbs.report import drawing, numbers
from router.verbs.report.chart import (
    Area,
    Axis,
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
)
from router.verbs.simulate import words
from router.verbs.simulate.runs import Result

_VARIANTS = tuple(f"variant{place}" for place in range(5))  # the most accurate first
_WIDE, _HIGH = 520.0, 150.0  # pixels of a chart with all around it, and of the chart itself


class AxisScale(NamedTuple):
    """The upper ends of the axes (and the lower one of latency), so that pictures of a model compare."""

    low_ms: float
    high_ms: float
    rate: float
    batch_rows: float


def write_svg(results: Sequence[Result], path: Path, footnote: str) -> None:
    """Draw all results side by side, a block of panels for each model. OSError where it cannot be written."""
    heading = words.sentence(results)
    items: list[Plots | Words] = [Words(heading, 14, bold=True)]
    for model in results[0].case.site.served:
        scale = scale_of(results, model.name)
        columns = [_charts(results, each, model.name, scale) for each in results]
        items += [Plots(row, _HIGH) for row in zip(*columns, strict=True)]
    items.append(Words(footnote, colour="faint"))
    wide = _WIDE * max(len(results), 1.5)
    path.write_text(drawing.file(items, wide, heading), encoding="utf-8")


def svg(results: Sequence[Result], result: Result, model: str) -> str:
    """Return one model of one of the results as an `<svg>` element."""
    charts = _charts(results, result, model, scale_of(results, model))
    return drawing.picture([Plots([each], _HIGH) for each in charts], _WIDE, f"{result.case.name}, {model}")


def scale_of(results: Sequence[Result], model: str) -> AxisScale:
    """Return axes that hold a model's figures in all results."""
    series = [result.series[model] for result in results]
    slo_ms = next(each.slo_us for each in results[0].case.site.served if each.name == model) / 1000
    latencies = _known([*(ms for each in series for ms in (*each.p50_ms, *each.p99_ms)), slo_ms])
    return AxisScale(
        low_ms=max(min(latencies) / 1.5, 0.01),
        high_ms=max(latencies) * 1.5,
        rate=1.15 * max(_known(rate for each in series for rate in each.offered), default=1.0) or 1.0,
        batch_rows=1.15 * max(_known(rows for each in series for rows in each.batch_rows), default=1.0),
    )


def _known(values: Iterable[float]) -> list[float]:
    return [value for value in values if not isnan(value)]


def _charts(results: Sequence[Result], result: Result, model: str, scale: AxisScale) -> list[Plot]:
    """Return the charts of a model, one more where several variants may answer."""
    series = result.series[model]
    x = Axis(0, series.start_s[-1] + series.bin_s)
    found = [
        _latency(result, model, scale, x),
        _rates(result, model, scale, x),
        _batches(result, model, scale, x),
    ]
    if any(model in each.chosen for each in results):
        found.append(_variants(result, model, x))
    return [*found[:-1], found[-1]._replace(x=x._replace(name="simulated seconds"))]


def _latency(result: Result, model: str, scale: AxisScale, x: Axis) -> Plot:
    series, figures = result.series[model], result.figures[model]
    slo_ms = next(each.slo_us for each in result.case.site.served if each.name == model) / 1000
    told = (
        f"99 of 100 answers within {numbers.milliseconds(p99)} ms, half within {numbers.milliseconds(p50)} ms"
        for p99, p50 in zip(series.p99_ms, series.p50_ms, strict=True)
    )
    middle_s = [start + series.bin_s / 2 for start in series.start_s]
    marks: list[Mark] = [
        Rect((0, x.high), (slo_ms, scale.high_ms), "bad", opacity=0.08),
        Rule(slo_ms, "ink", f"promised: {slo_ms:g} ms"),
        Line(middle_s, series.p99_ms, "bad", "99 of 100 answers took at most", dots=3.5),
        Line(middle_s, series.p50_ms, "middle", "half of the answers took at most", dots=3.5),
        *_tips(_edges(result, model), told),
    ]
    title = f"{result.case.name}, {model}: {numbers.percent(figures.attainment)} answered in time"
    return Plot(title, x, Axis(scale.low_ms, scale.high_ms, "milliseconds (log)", log=True), marks)


def _rates(result: Result, model: str, scale: AxisScale, x: Axis) -> Plot:
    series, figures, edges = result.series[model], result.figures[model], _edges(result, model)
    told = (
        f"asked {numbers.rate(asked)}/s, {numbers.rate(answered)}/s answered in time"
        for asked, answered in zip(series.offered, series.in_time, strict=True)
    )
    marks: list[Mark] = [
        Area(edges, series.in_time, "good", f"answered in time: {numbers.rate(figures.goodput)}/s",
             opacity=0.4),
        Stairs(edges, series.offered, "ink", f"asked: {numbers.rate(figures.offered_rate)}/s"),
        *_tips(edges, told),
    ]  # fmt: skip
    y = Axis(0, scale.rate, "requests per second")
    return Plot("what was asked, and what was answered in time", x, y, marks)


def _batches(result: Result, model: str, scale: AxisScale, x: Axis) -> Plot:
    series, figures, edges = result.series[model], result.figures[model], _edges(result, model)
    marks: list[Mark] = [
        Stairs(edges, series.batch_rows, "faint", f"mean {words.rows(figures.batch_rows)} rows", width=1.5),
        *_tips(edges, (f"{words.rows(each)} rows in a batch" for each in series.batch_rows)),
    ]
    y = Axis(0, scale.batch_rows, "rows in a batch")
    return Plot("how many rows were computed together", x, y, marks)


def _variants(result: Result, model: str, x: Axis) -> Plot:
    """Draw the rows of each second, by the variant that answered; where one alone is served, its name."""
    course, choice, edges = result.courses[model], result.choices[model], _edges(result, model)
    below = [0.0] * (len(edges) - 1)
    marks: list[Mark] = []
    for number, (name, rates) in enumerate(course.rates.items()):
        top = [low + rate for low, rate in zip(below, rates, strict=True)]
        share = numbers.percent(choice.shares.get(name, 0.0))
        told = f"{name} ({words.accuracy(result.accuracy(model, name))}): {share}"
        if any(rates):
            marks.append(Area(edges, top, _VARIANTS[number % len(_VARIANTS)], told, below))
        below = top
    high = 1.15 * max(below) or 1.0
    if course.rates:
        marks += _tips(edges, _answerers(course.rates))
    else:
        served = ", ".join(choice.shares) or "nothing"
        marks.append(Note(x.high / 2, high / 2, f"{served} alone answered", "middle"))
    title = f"which variant answered, accuracy {words.accuracy(choice.accuracy)} in the mean"
    at = None if course.rates else ()
    return Plot(title, x, Axis(0, high, "rows per second", at=at), marks)


def _answerers(rates: Mapping[str, Sequence[float]]) -> Iterator[str]:
    """Yield how many rows a second each variant answered, bin by bin."""
    for found in zip(*rates.values(), strict=True):
        pairs = zip(rates, found, strict=True)
        yield ", ".join(f"{name} {numbers.rate(each)} rows/s" for name, each in pairs)


def _edges(result: Result, model: str) -> list[float]:
    series = result.series[model]
    return [*series.start_s, series.start_s[-1] + series.bin_s]


def _tips(edges: Sequence[float], told: Iterable[str]) -> Iterator[Tip]:
    for (start, end), text in zip(pairwise(edges), told, strict=True):
        yield Tip(start, end, f"{start:.4g} to {end:.4g} s: {text}")
