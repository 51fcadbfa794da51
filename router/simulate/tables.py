"""Results as a table on the terminal, and as JSON."""

from collections.abc import Iterator, Sequence
from math import isnan
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from router.simulate import words
from router.simulate.requirements import Requirement
from router.simulate.runs import Result
from serving.simulation.series import LATE, REFUSED, SHED, Figures, Series

COLUMNS = (
    "asked/s", "in time", "goodput/s", "p50 ms", "p99 ms", "SLO ms", "refused", "shed", "late", "batch rows",
    "busy",
)  # fmt: skip
TOTAL = "all"


def rows(result: Result) -> Iterator[tuple[str, tuple[str, ...]]]:
    """A result's lines: the model (TOTAL first, where there are several) and its cells under COLUMNS."""
    if len(result.figures) > 1:
        yield TOTAL, _cells(result.total, words.NONE)
    for model in result.case.site.served:
        yield model.name, _cells(result.figures[model.name], words.milliseconds(model.slo_us / 1000))


def _cells(figures: Figures, slo_ms: str) -> tuple[str, ...]:
    return (
        words.rate(figures.offered_rate),
        words.percent(figures.attainment),
        words.rate(figures.goodput),
        words.milliseconds(figures.p50_ms),
        words.milliseconds(figures.p99_ms),
        slo_ms,
        words.percent(figures.share(*REFUSED)),
        words.percent(figures.share(*SHED)),
        words.percent(figures.share(LATE)),
        words.rows(figures.batch_rows),
        f"{min(figures.busy, 1.0):.0%}".replace("%", " %"),
    )


def render(results: Sequence[Result], aim: float) -> Group:
    """The table, and beneath it what became of the requests that were not answered in time."""
    table = Table("simulated", "model", box=SIMPLE_HEAD, padding=(0, 2, 0, 0))
    for title in COLUMNS:
        table.add_column(title, justify="right")
    for result in results:
        for count, (model, cells) in enumerate(rows(result)):
            name = "" if count else f"[bold]{escape(result.case.name)}[/]"
            table.add_row(name, model, *cells, style="bold" if model == TOTAL else "")
    parts: list[RenderableType] = [table, Text(words.sentence(results))]
    endings = list(_endings(results))
    if endings:
        width = max(len(who) for who, _ in endings)
        parts += [Text(), Text("Not answered in time, of all requests:")]
        parts += [Text(f"  {who:{width}}  {what}") for who, what in endings]
    if capacities := list(filter(None, (words.capacity_sentence(each, aim) for each in results))):
        parts += [Text(), *map(Text, capacities)]
    return Group(*parts)


def _endings(results: Sequence[Result]) -> Iterator[tuple[str, str]]:
    for result in results:
        for model, figures in result.figures.items():
            if told := words.bad_endings(figures):
                shares = (f"{name} {words.percent(count / figures.offered)}" for name, count in told)
                who = f"{result.case.name}, {model}" if len(result.figures) > 1 else result.case.name
                yield who, ", ".join(shares)


def as_json(
    results: Sequence[Result], required: Sequence[Requirement], premises: Sequence[tuple[str, str]]
) -> dict[str, Any]:
    """Plain values; what does not exist, as a latency of no answers, is null."""
    plain: dict[str, Any] = _without_nan(
        {
            "simulated": dict(premises),
            "results": [_result(each) for each in results],
            "required": [
                {
                    "what": each.text,
                    "of": result.case.name,
                    "got": each.got(result),
                    "holds": each.holds(result),
                }
                for each in required
                for result in results
            ],
        }
    )
    return plain


def _result(result: Result) -> dict[str, Any]:
    found = result.capacity
    return {
        "name": result.case.name,
        "config": str(result.case.config),
        "policy": result.case.policy or None,
        "capacity": found and {"rate": found.rate, "surely_above": found.low, "surely_below": found.high},
        "busy_slices": result.busy,
        "total": _figures(result.total),
        "models": {
            model.name: {
                "slo_ms": model.slo_us / 1000,
                "policy": model.batching.policy,
                **_figures(result.figures[model.name]),
                "series": _series(result.series[model.name]),
            }
            for model in result.case.site.served
        },
    }


def _figures(figures: Figures) -> dict[str, Any]:
    return {
        "requests": figures.offered,
        "offered_rate": figures.offered_rate,
        "attainment": figures.attainment,
        "attainment_by_seed": figures.by_run,
        "goodput": figures.goodput,
        "p50_ms": figures.p50_ms,
        "p99_ms": figures.p99_ms,
        "endings": figures.endings,
        "batches": figures.batches,
        "batch_rows": figures.batch_rows,
        "busy": figures.busy,
    }


def _series(series: Series) -> dict[str, Any]:
    return {name: getattr(series, name) for name in Series.__slots__}


def _without_nan(value: Any) -> Any:  # walks plain JSON values of any shape
    if isinstance(value, dict):
        return {name: _without_nan(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(one) for one in value]
    return None if isinstance(value, float) and isnan(value) else value
