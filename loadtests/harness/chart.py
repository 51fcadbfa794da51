"""A report as a picture, for somebody who sees such a thing for the first time."""

from pathlib import Path
from typing import TYPE_CHECKING

from loadtests.harness.pictures import drawn
from loadtests.harness.report import IN_TIME, LATE, Report, Summary

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_OFFERED, _GOOD, _LATE = "#8c8c8c", "#2a7f62", "#c8442f"
_ANSWERED = {IN_TIME: _GOOD, LATE: "#e2a33b"}
_OTHERS = ("#c8442f", "#5b6fb5", "#8c5a9e", "#4d9db0", "#7a5230", "#3c3c3c")


def draw(report: Report, path: Path, title: str) -> None:
    """Write the PNG; each load gets a column of three panels over the same seconds."""
    columns = len(report.loads)
    with drawn(max(7.5, 5.6 * columns), 9.2, path) as figure:
        grid = figure.subplots(3, columns, squeeze=False, sharex=True)
        for number, summary in enumerate(report.loads):
            _latency(grid[0][number], summary)
            _rates(grid[1][number], summary)
            _outcomes(grid[2][number], summary)
            grid[2][number].set_xlabel("seconds since the start (when the request was due)")
        verdict = "".join(f"\nVOID: {reason}" for reason in report.voids)
        figure.suptitle(title + verdict, color=_LATE if report.voids else "black", wrap=True)
        figure.supxlabel(_footnote(report), fontsize=7.5, wrap=True)


def _latency(axes: "Axes", summary: Summary) -> None:
    series = summary.series
    axes.plot(
        series.start_s, series.p99_ms, color=_LATE, marker=".", ms=3, label="99 of 100 took at most (p99)"
    )
    axes.plot(
        series.start_s, series.p50_ms, color=_OFFERED, marker=".", ms=3, label="half took at most (p50)"
    )
    if summary.slo_ms is not None:
        axes.axhline(summary.slo_ms, color="black", ls="--", lw=1, label=f"promised: {summary.slo_ms:g} ms")
    axes.set_yscale("log")
    axes.set_ylabel("latency of answers, ms (log scale)")
    axes.set_title(
        f"{summary.name}: {summary.attainment:.2%} of {summary.offered} requests answered in time",
        loc="left", fontweight="bold",
    )  # fmt: skip
    _legend(axes)


def _rates(axes: "Axes", summary: Summary) -> None:
    series = summary.series
    axes.plot(series.start_s, series.offered, color=_OFFERED, label=f"offered, {summary.offered_rate:.0f}/s")
    label = f"answered in time (goodput), {summary.goodput:.0f}/s"
    axes.fill_between(series.start_s, series.goodput, color=_GOOD, alpha=0.35, lw=0, label=label)
    axes.set_ylim(bottom=0)
    axes.set_ylabel("requests per second")
    axes.set_title("what was asked, and what was answered in time", loc="left")
    _legend(axes)


def _outcomes(axes: "Axes", summary: Summary) -> None:
    """Stack the outcomes from the bottom: first the answers in time, then the others, the most frequent
    first."""
    answered = [one for name in _ANSWERED for one in summary.outcomes if one.outcome == name]
    others = [one for one in summary.outcomes if one.outcome not in _ANSWERED]
    shown = answered + others
    colours = [_ANSWERED[one.outcome] for one in answered]
    colours += [_OTHERS[number % len(_OTHERS)] for number in range(len(others))]
    axes.stackplot(
        summary.series.start_s,
        [summary.series.outcomes[one.outcome] for one in shown],
        labels=[f"{one.outcome}: {one.count}" for one in shown],
        colors=colours,
        alpha=0.85,
    )
    axes.set_ylim(bottom=0)
    axes.set_ylabel("requests per second")
    axes.set_title("how requests ended (HTTP status and reason)", loc="left")
    _legend(axes)


def _legend(axes: "Axes") -> None:
    axes.legend(fontsize=7.5, frameon=True, framealpha=0.85, edgecolor="none")


def _footnote(report: Report) -> str:
    late, client = report.lateness, report.client
    return (
        "Open loop: requests are sent when they are due, whatever became of earlier ones, and latency counts "
        f"from then. The client sent {late['p50_ms']:.2f} ms late (p50), {late['p99_ms']:.2f} ms (p99), and "
        f"used {client.cpu:.0%} of a core and {client.connections_peak} connections."
    )
