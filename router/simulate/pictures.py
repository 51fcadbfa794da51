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
_PANELS = 3
_WIDTH, _HEIGHT = 5.2, 2.3  # inches of a panel


class Scale(NamedTuple):
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
        size = (_WIDTH * max(len(results), 1.5), _HEIGHT * _PANELS * len(models) + 1.0)
        figure = Figure(figsize=size, layout="constrained")
        grid = figure.subplots(_PANELS * len(models), len(results), squeeze=False)
        for row, model in enumerate(models):
            scale = scale_of(results, model)
            for column, result in enumerate(results):
                panels = [grid[_PANELS * row + number][column] for number in range(_PANELS)]
                _draw(panels, result, model, scale)
        figure.suptitle(words.sentence(results), fontweight="bold", wrap=True)
        figure.supxlabel(footnote, fontsize=7.5, wrap=True)
        figure.savefig(path, dpi=110, format="png")


def svg(result: Result, model: str, scale: Scale, name: str) -> str:
    """One model of one result as an `<svg>` element, whose ids begin with `name`: a page has many."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(_WIDTH, _HEIGHT * _PANELS), layout="constrained")
        _draw(figure.subplots(_PANELS, 1).tolist(), result, model, scale)
        return inline(figure, name)


def scale_of(results: Sequence[Result], model: str) -> Scale:
    """Axes that hold a model's figures in all results."""
    series = [result.series[model] for result in results]
    slo_ms = next(each.slo_us for each in results[0].case.site.served if each.name == model) / 1000
    latencies = _known([*(ms for each in series for ms in (*each.p50_ms, *each.p99_ms)), slo_ms])
    return Scale(
        low_ms=max(min(latencies) / 1.5, 0.01),
        high_ms=max(latencies) * 4,  # room for the legend
        rate=1.15 * max(_known(rate for each in series for rate in each.offered), default=1.0) or 1.0,
        batch_rows=1.15 * max(_known(rows for each in series for rows in each.batch_rows), default=1.0),
    )


def _known(values: Iterable[float]) -> list[float]:
    return [value for value in values if not isnan(value)]


def _draw(panels: "Sequence[Axes]", result: Result, model: str, scale: Scale) -> None:
    latency, rates, batches = panels
    _latency(latency, result, model, scale)
    _rates(rates, result, model, scale)
    _batches(batches, result, model, scale)
    batches.set_xlabel("simulated seconds")


def _latency(axes: "Axes", result: Result, model: str, scale: Scale) -> None:
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


def _rates(axes: "Axes", result: Result, model: str, scale: Scale) -> None:
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


def _batches(axes: "Axes", result: Result, model: str, scale: Scale) -> None:
    series, figures = result.series[model], result.figures[model]
    edges = [*series.start_s, series.start_s[-1] + series.bin_s]
    axes.stairs(series.batch_rows, edges, baseline=None, color=GREY, lw=1.4,
                label=f"mean {words.rows(figures.batch_rows)} rows")  # fmt: skip
    axes.set_ylim(0, scale.batch_rows)
    axes.set_ylabel("rows in a batch")
    axes.set_title("how many rows were computed together", loc="left")
    _frame(axes, edges[-1])


def _frame(axes: "Axes", seconds: float) -> None:
    axes.set_xlim(0, seconds)
    axes.grid(axis="y", alpha=0.25)
    axes.legend(fontsize=7.5, frameon=True, framealpha=0.85, edgecolor="none", loc="best")
