"""Pictures of runs over the simulated seconds: latency beside the SLO, what was asked and answered, batches.

For somebody who sees such a thing for the first time: words before symbols, units at every axis.
"""

from collections.abc import Iterable, Sequence
from math import isnan
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from router.report import numbers
from router.report.svg import STYLE, inline
from router.simulate import words
from router.simulate.runs import Result

if TYPE_CHECKING:  # matplotlib takes half a second that a table need not wait for
    from matplotlib.axes import Axes

GREY, GREEN, RED, BLUE = "#8c8c8c", "#2a7f62", "#c8442f", "#3b5b92"
_VARIANTS = ("#2a7f62", "#8fbf7f", "#e0b64b", "#d98244", "#a8503c")  # the most accurate first
_WIDTH, _HEIGHT = 5.2, 2.3  # inches of a panel


class AxisScale(NamedTuple):
    """The upper ends of the axes (and the lower one of latency), so that pictures of a model compare."""

    low_ms: float
    high_ms: float
    rate: float
    batch_rows: float


def write_png(results: Sequence[Result], path: Path, footnote: str) -> None:
    """All results side by side, a block of panels for each model. OSError where it cannot be written."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    models = [model.name for model in results[0].case.site.served]
    with mpl.rc_context(STYLE):
        heights = {model: _panels(results, model) for model in models}
        size = (_WIDTH * max(len(results), 1.5), _HEIGHT * sum(heights.values()) + 1.0)
        figure = Figure(figsize=size, layout="constrained")
        grid = figure.subplots(sum(heights.values()), len(results), squeeze=False)
        row = 0
        for model, height in heights.items():
            scale = scale_of(results, model)
            for column, result in enumerate(results):
                _draw([grid[row + number][column] for number in range(height)], result, model, scale)
            row += height
        figure.suptitle(words.sentence(results), fontweight="bold", wrap=True)
        figure.supxlabel(footnote, fontsize=7.5, wrap=True)
        figure.savefig(path, dpi=110, format="png")


def svg(results: Sequence[Result], result: Result, model: str, name: str) -> str:
    """One model of one of the results as an `<svg>` element, whose ids begin with `name`: a page has many."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(STYLE):
        height = _panels(results, model)
        figure = Figure(figsize=(_WIDTH, _HEIGHT * height), layout="constrained")
        _draw(figure.subplots(height, 1).tolist(), result, model, scale_of(results, model))
        return inline(figure, name)


def _panels(results: Sequence[Result], model: str) -> int:
    """One more where several variants may answer."""
    return 4 if any(model in result.chosen for result in results) else 3


def scale_of(results: Sequence[Result], model: str) -> AxisScale:
    """Axes that hold a model's figures in all results."""
    series = [result.series[model] for result in results]
    slo_ms = next(each.slo_us for each in results[0].case.site.served if each.name == model) / 1000
    latencies = _known([*(ms for each in series for ms in (*each.p50_ms, *each.p99_ms)), slo_ms])
    return AxisScale(
        low_ms=max(min(latencies) / 1.5, 0.01),
        high_ms=max(latencies) * 4,  # room for the legend
        rate=1.15 * max(_known(rate for each in series for rate in each.offered), default=1.0) or 1.0,
        batch_rows=1.15 * max(_known(rows for each in series for rows in each.batch_rows), default=1.0),
    )


def _known(values: Iterable[float]) -> list[float]:
    return [value for value in values if not isnan(value)]


def _draw(panels: "Sequence[Axes]", result: Result, model: str, scale: AxisScale) -> None:
    latency, rates, batches, *variants = panels
    _latency(latency, result, model, scale)
    _rates(rates, result, model, scale)
    _batches(batches, result, model, scale)
    for axes in variants:
        _variants(axes, result, model)
    panels[-1].set_xlabel("simulated seconds")


def _latency(axes: "Axes", result: Result, model: str, scale: AxisScale) -> None:
    from matplotlib.ticker import LogLocator, NullLocator

    series, figures = result.series[model], result.figures[model]
    slo_ms = next(each.slo_us for each in result.case.site.served if each.name == model) / 1000
    middle_s = [start + series.bin_s / 2 for start in series.start_s]
    axes.axhspan(slo_ms, scale.high_ms, color=RED, alpha=0.07, lw=0)
    axes.axhline(slo_ms, color="black", ls="--", lw=1, label=f"promised: {slo_ms:g} ms")
    axes.plot(
        middle_s, series.p99_ms, color=RED, marker=".", ms=3, lw=1.2, label="99 of 100 answers took at most"
    )
    axes.plot(
        middle_s,
        series.p50_ms,
        color=BLUE,
        marker=".",
        ms=3,
        lw=1.2,
        label="half of the answers took at most",
    )
    axes.set_yscale("log")
    axes.set_ylim(scale.low_ms, scale.high_ms)
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(lambda ms, _: f"{ms:,g}")
    axes.set_ylabel("milliseconds (log)")
    axes.set_title(
        f"{result.case.name}, {model}: {numbers.percent(figures.attainment)} answered in time",
        loc="left",
        fontweight="bold",
    )
    _frame(axes, series.start_s[-1] + series.bin_s)


def _rates(axes: "Axes", result: Result, model: str, scale: AxisScale) -> None:
    series, figures = result.series[model], result.figures[model]
    edges = [*series.start_s, series.start_s[-1] + series.bin_s]
    axes.stairs(series.in_time, edges, fill=True, color=GREEN, alpha=0.4, lw=0,
                label=f"answered in time: {numbers.rate(figures.goodput)}/s")  # fmt: skip
    axes.stairs(series.offered, edges, baseline=None, color="black", lw=1,
                label=f"asked: {numbers.rate(figures.offered_rate)}/s")  # fmt: skip
    axes.set_ylim(0, scale.rate)
    axes.set_ylabel("requests per second")
    axes.set_title("what was asked, and what was answered in time", loc="left")
    _frame(axes, edges[-1])


def _batches(axes: "Axes", result: Result, model: str, scale: AxisScale) -> None:
    series, figures = result.series[model], result.figures[model]
    edges = [*series.start_s, series.start_s[-1] + series.bin_s]
    axes.stairs(series.batch_rows, edges, baseline=None, color=GREY, lw=1.4,
                label=f"mean {words.rows(figures.batch_rows)} rows")  # fmt: skip
    axes.set_ylim(0, scale.batch_rows)
    axes.set_ylabel("rows in a batch")
    axes.set_title("how many rows were computed together", loc="left")
    _frame(axes, edges[-1])


def _variants(axes: "Axes", result: Result, model: str) -> None:
    """The rows of each second, by who answered them; where one variant is served nothing is drawn."""
    series, course, choice = result.series[model], result.courses[model], result.choices[model]
    edges = [*series.start_s, series.start_s[-1] + series.bin_s]
    below = [0.0] * len(series.start_s)
    for number, (name, rates) in enumerate(course.rates.items()):
        top = [low + rate for low, rate in zip(below, rates, strict=True)]
        share = numbers.percent(choice.shares.get(name, 0.0))
        told = f"{name} ({words.accuracy(result.accuracy(model, name))}): {share}"
        color = _VARIANTS[number % len(_VARIANTS)]
        if any(rates):
            axes.stairs(top, edges, baseline=below, fill=True, color=color, lw=0, label=told)
        below = top
    if not course.rates:
        served = ", ".join(choice.shares) or "nothing"
        axes.text(0.5, 0.5, f"{served} alone answered", transform=axes.transAxes, ha="center")
    axes.set_ylim(0, 1.15 * max(below) or 1.0)
    axes.set_ylabel("rows per second")
    axes.set_title(
        f"which variant answered, accuracy {words.accuracy(choice.accuracy)} in the mean", loc="left"
    )
    _frame(axes, edges[-1])


def _frame(axes: "Axes", seconds: float) -> None:
    axes.set_xlim(0, seconds)
    axes.grid(axis="y", alpha=0.25)
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize=7.5, frameon=True, framealpha=0.85, edgecolor="none", loc="best")
