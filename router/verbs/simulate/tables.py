"""Results as a table on the terminal, and as JSON."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from math import isnan
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from router.observing.reasons import ending
from router.verbs.report import capacity, numbers
from router.verbs.simulate import words
from router.verbs.simulate.requirements import Requirement
from router.verbs.simulate.runs import Conditions, Result
from serving.simulation.results.choices import VariantSeries, VariantShares
from serving.simulation.results.series import LATE, REFUSED, SHED, RunFigures, RunSeries

COLUMNS = (
    "asked/s", "in time", "goodput/s", "p50 ms", "p99 ms", "SLO ms", "refused", "shed", "late", "batch rows",
    "busy", "device s/M",
)  # fmt: skip
CHOSEN = ("accuracy",)
PRICED = ("cost/h", "cost/M")
TOTAL = "all"
_BY = "by the answering variant alone, for rows of the largest size"


def columns(results: Sequence[Result]) -> tuple[str, ...]:
    """Return the columns: accuracy only if the gateway chooses variants, costs only if a price is known."""
    return COLUMNS + (CHOSEN if _choosing(results) else ()) + (PRICED if _priced(results) else ())


def rows(results: Sequence[Result], result: Result) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield a result's lines: the model (TOTAL first, where there are several) and its cells under
    `columns`."""
    chosen = _choosing(results)
    if len(result.figures) > 1:
        none = (numbers.NONE,) if chosen else ()  # models' accuracies are no figures of one kind
        yield TOTAL, _cells(result.total, numbers.NONE) + none + _costs(results, result, None)
    for model in result.case.site.served:
        figures, slo_ms = result.figures[model.name], numbers.milliseconds(model.slo_us / 1000)
        accuracy = (words.accuracy(result.choices[model.name].accuracy),) if chosen else ()
        yield model.name, _cells(figures, slo_ms) + accuracy + _costs(results, result, model.name)


def _choosing(results: Sequence[Result]) -> bool:
    return any(result.chosen for result in results)


def _priced(results: Sequence[Result]) -> bool:
    return any(result.cost_per_hour for result in results)


def _costs(results: Sequence[Result], result: Result, model: str | None) -> tuple[str, ...]:
    cost = result.cost(model)
    if cost is None:
        return (numbers.NONE,) * len(PRICED) if _priced(results) else ()
    return numbers.amount(cost.per_hour), numbers.amount(cost.per_million)


def _cells(figures: RunFigures, slo_ms: str) -> tuple[str, ...]:
    return (
        numbers.rate(figures.offered_rate),
        numbers.percent(figures.attainment),
        numbers.rate(figures.goodput),
        numbers.milliseconds(figures.p50_ms),
        numbers.milliseconds(figures.p99_ms),
        slo_ms,
        numbers.percent(figures.share(*REFUSED)),
        numbers.percent(figures.share(*SHED)),
        numbers.percent(figures.share(LATE)),
        words.rows(figures.batch_rows),
        f"{min(figures.busy, 1.0):.0%}".replace("%", " %"),
        numbers.amount(figures.device_s_per_million),
    )


def render(results: Sequence[Result], conditions: Conditions, aim: float) -> Group:
    """Return how devices fared, the table, and what became of the requests that were not answered in time."""
    table = Table("simulated", "model", box=SIMPLE_HEAD, padding=(0, 2, 0, 0))
    for title in columns(results):
        table.add_column(title, justify="right")
    for result in results:
        for count, (model, cells) in enumerate(rows(results, result)):
            name = "" if count else f"[bold]{escape(result.case.name)}[/]"
            table.add_row(name, model, *cells, style="bold" if model == TOTAL else "")
    head = words.device(conditions)
    missing = dict.fromkeys(each for result in results for each in result.case.left_out)
    parts: list[RenderableType] = [Text(f"Not simulated: {'; '.join(missing)}.")] if missing else []
    parts += [Text(f"{head[0].upper()}{head[1:]}."), table]
    parts += map(Text, (words.sentence(results), *words.breakdowns(results, conditions)))
    parts += _listed(f"{capacity.TERM.capitalize()}, {_BY}:", list(words.profiled(results)))
    parts += _listed("Replicas that got batches:", list(words.replicas(results)))
    parts += _listed("Lost slices:", list(words.losses(results)))
    parts += _listed("Answered, of all rows:", list(words.choices(results)))
    parts += _listed("Not answered in time, of all requests:", list(_endings(results)))
    parts += _listed("In these words:", list(_meanings(results)))
    if capacities := list(filter(None, (words.capacity_sentence(each, aim) for each in results))):
        parts += [Text(), *map(Text, capacities)]
    return Group(*parts)


def _listed(title: str, lines: Sequence[tuple[str, str]]) -> Iterator[Text]:
    width = max((len(who) for who, _ in lines), default=0)
    if lines:
        yield from (Text(), Text(title), *(Text(f"  {who:{width}}  {what}") for who, what in lines))


def _endings(results: Sequence[Result]) -> Iterator[tuple[str, str]]:
    for result in results:
        for model, figures in result.figures.items():
            if told := words.bad_endings(figures):
                shares = (f"{name} {numbers.percent(count / figures.offered)}" for name, count in told)
                who = f"{result.case.name}, {model}" if len(result.figures) > 1 else result.case.name
                yield who, ", ".join(shares)


def _meanings(results: Sequence[Result]) -> Iterator[tuple[str, str]]:
    """Yield each code of `_endings` once, with its sentence."""
    shown = (words.bad_endings(figures) for result in results for figures in result.figures.values())
    for name in dict.fromkeys(name for told in shown for name, _ in told):
        yield name, ending(name)


def as_json(
    results: Sequence[Result],
    required: Sequence[Requirement],
    conditions: Conditions,
    premises: Sequence[tuple[str, str]],
) -> dict[str, Any]:
    """Return the results as plain values; what does not exist, as a latency of no answers, is null."""
    plain: dict[str, Any] = _without_nan(
        {
            "simulated": dict(premises),
            "conditions": asdict(conditions),
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
        "crashes": result.crashes,
        "stalls": result.stalls,
        "not_simulated": result.case.left_out,
        "held_slices": result.held or None,
        "losses": [asdict(each) for each in result.losses],
        "total": _figures(result, None),
        "models": {
            model.name: {
                "slo_ms": model.slo_us / 1000,
                "slo_rows": model.own.slo_rows or None,
                "policy": model.batching.policy,
                **_figures(result, model.name),
                "profiled_capacity": {
                    name: {"rows_per_s": each.rate, "batch_rows": each.rows}
                    for name, each in result.case.profiled(model).items()
                },
                "replicas": asdict(result.replicas[model.name]) if result.replicas else None,
                **_choice(result.choices[model.name], result.courses[model.name]),
                "series": _series(result, model.name),
            }
            for model in result.case.site.served
        },
    }


def _figures(result: Result, model: str | None) -> dict[str, Any]:
    """Return the figures of a model; None: of all models together."""
    figures = result.total if model is None else result.figures[model]
    cost = result.cost(model)
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
        "device_s_per_million": figures.device_s_per_million,
        "cost": cost and asdict(cost),
    }


def _choice(choice: VariantShares, course: VariantSeries) -> dict[str, Any]:
    return {
        "accuracy": choice.accuracy,
        "answers": choice.shares,
        "downgrades": choice.downgrades,
        "answered_rows": course.rates,
    }


def _series(result: Result, model: str) -> dict[str, Any]:
    series, course = result.series[model], result.courses[model]
    found = {name: getattr(series, name) for name in RunSeries.__slots__}
    return {**found, "accuracy": course.accuracy}


def _without_nan(value: Any) -> Any:  # walks plain JSON values of any shape
    if isinstance(value, dict):
        return {name: _without_nan(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [_without_nan(one) for one in value]
    return None if isinstance(value, float) and isnan(value) else value
