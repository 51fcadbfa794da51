"""A report in the terminal."""

import math
from collections.abc import Sequence

from rich.console import Console
from rich.panel import Panel
from rich.table import Table

from loadtests.harness.report import Report, Summary


def show(report: Report, console: Console) -> None:
    """Print loads, outcomes and the client itself; and, loudly, why not to believe any of it."""
    rows = [*report.loads, report.total] if len(report.loads) > 1 else list(report.loads)
    console.print(_loads(rows, report.span_s))
    console.print(_outcomes(rows))
    late, client = report.lateness, report.client
    console.print(
        f"client: sent late by p50 {late['p50_ms']:.3f}, p99 {late['p99_ms']:.3f}, "
        f"max {late['max_ms']:.3f} ms; "
        f"{client.cpu:.0%} of a core; {client.connections_opened} connections opened, at most "
        f"{client.connections_peak} at once, slowest connect {client.connect_ms_max:.1f} ms; "
        f"load average before the run {client.load_average:.1f}",
        highlight=False,
    )
    if report.voids:
        console.print(Panel("\n".join(report.voids), title="THIS RUN IS VOID", style="bold red"))


def _loads(summaries: Sequence[Summary], span_s: float) -> Table:
    table = Table(title=f"{span_s:g} s, open loop; latency in ms from the due time, of answers 200")
    table.add_column("load", no_wrap=True)
    for column in ("SLO ms", "offered", "req/s", "answered", "200", "in time", "goodput/s", "attained",
                   "p50", "p90", "p99", "p99.9", "max"):  # fmt: skip
        table.add_column(column, justify="right")
    for one in summaries:
        slo = "" if one.slo_ms is None else f"{one.slo_ms:g}"
        table.add_row(
            one.name, slo, str(one.offered), f"{one.offered_rate:.1f}", str(one.answered), str(one.ok),
            str(one.good), f"{one.goodput:.1f}", _number(one.attainment * 100, 2, " %"),
            *(_number(value, 2) for value in one.latency.values()),
        )  # fmt: skip
    return table


def _outcomes(summaries: Sequence[Summary]) -> Table:
    table = Table(title="how the requests ended, and how soon that was told (ms from due)")
    table.add_column("load", no_wrap=True)
    table.add_column("outcome", no_wrap=True)
    for column in ("requests", "share", "p50", "p99", "max"):
        table.add_column(column, justify="right")
    for summary in summaries:
        for one in summary.outcomes:
            share = f"{one.count / summary.offered:.2%}"
            times = (f"{value:.2f}" for value in (one.p50_ms, one.p99_ms, one.max_ms))
            table.add_row(summary.name, one.outcome, str(one.count), share, *times)
    return table


def _number(value: float, digits: int, unit: str = "") -> str:
    return "-" if math.isnan(value) else f"{value:.{digits}f}{unit}"
