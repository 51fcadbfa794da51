"""Profiles as tables: on the terminal, and the cells of the page's."""

from collections.abc import Callable, Iterator, Sequence
from math import isnan, nan
from typing import NamedTuple

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from router.verbs.profiling import words
from router.verbs.profiling.figures import Batch, ShareFigures, ShareScaling
from router.verbs.report import capacity, numbers

KNEE = "knee"


class ProfileColumn(NamedTuple):
    """A column of figures: its title, in two lines where the first says of what, and what it means."""

    title: str
    meaning: str
    cell: Callable[[ShareFigures], str]


def _of_best(figure: Callable[[Batch], float], text: Callable[[float], str]) -> Callable[[ShareFigures], str]:
    """Return the cell of a figure of the batch that the latency allows; 0 is not known."""
    return lambda each: text((each.within and figure(each.within)) or nan)


def _of_share(
    figure: Callable[[ShareFigures], float], text: Callable[[float], str]
) -> Callable[[ShareFigures], str]:
    return lambda each: text(figure(each) or nan)


def _megabytes(count: float) -> str:
    return numbers.amount(count / 1e6)


def _millis(us: float) -> str:
    return numbers.milliseconds(us / 1000)


def _to_hundredths(part: float) -> str:
    return numbers.NONE if isnan(part) else f"{part:.2f}"


def _per_unit(each: ShareFigures) -> float:
    return each.within.throughput / each.share.amount if each.within else nan


MEASURED = ProfileColumn(
    "measured",
    "the day (UTC); or that it is predicted from other profiles, with the relative standard error",
    lambda each: words.predicted(each) or each.profile.origin.measured[:10] or numbers.NONE,
)
CARRIES = (
    ProfileColumn(
        "batch\nrows",
        "the batch that carries most, if two of it, one after the other, fit into "
        "the promised latency. For a request that just missed one waits for it, and then for its own",
        _of_best(lambda best: best.rows, lambda rows: numbers.NONE if isnan(rows) else f"{rows:,.0f}"),
    ),
    ProfileColumn(
        "batch\np50 ms",
        "half of its runs took at most so many milliseconds",
        _of_best(lambda best: best.p50_us, _millis),
    ),
    ProfileColumn(
        "batch\np99 ms", "99 of 100 took at most so many", _of_best(lambda best: best.p99_us, _millis)
    ),
    ProfileColumn(
        "batch\nrows/s",
        f"{capacity.TERM}: {capacity.MEANING}",
        _of_best(lambda best: best.throughput, numbers.amount),
    ),
    ProfileColumn(
        "rows/s\nper unit",
        "that throughput for each core, per cent or multiprocessor of the share",
        _of_share(_per_unit, numbers.amount),
    ),
    ProfileColumn(
        "effi-\nciency",
        "throughput over latency and share; the best has 1. The knee is the best of the "
        "shares with at least 80 % of the largest throughput",
        _of_share(lambda each: each.efficiency, _to_hundredths),
    ),
)
"""What a share carries: the operator's question."""
COSTS = (
    ProfileColumn(
        "1 row\np50 ms",
        "half of the runs of one row (of the smallest batch) took at most so many milliseconds",
        lambda each: _millis(each.smallest.p50_us),
    ),
    ProfileColumn(
        "1 row\np99 ms", "99 of 100 took at most so many", lambda each: _millis(each.smallest.p99_us)
    ),
    ProfileColumn(
        "most\nrows", "rows of the largest batch that was measured", lambda each: f"{each.points[-1].rows:,}"
    ),
    ProfileColumn(
        "weights\nMB",
        "memory that the loaded variant takes",
        _of_share(lambda each: each.profile.memory_bytes, _megabytes),
    ),
    ProfileColumn(
        "batch\nMB",
        "memory that a run of the batch to run takes beside it",
        _of_best(lambda best: best.activation_bytes, _megabytes),
    ),
    ProfileColumn(
        "load\ns",
        "what loading and the first runs take",
        _of_share(lambda each: (each.profile.load_us + each.profile.warm_us) / 1e6, numbers.amount),
    ),
    ProfileColumn(
        "batch\nW",
        "power that the whole device draws meanwhile",
        _of_best(lambda best: best.power_w, numbers.amount),
    ),
    ProfileColumn(
        "noise",
        "how much the machine swayed meanwhile: the spread (p95 over p50, less 1) of a fixed "
        "piece of work between the runs. Differences below it mean nothing",
        _of_share(lambda each: each.profile.origin.noise, numbers.percent),
    ),
    MEASURED,
)
"""What a share costs beside time, and how well all this is known."""


def known(columns: Sequence[ProfileColumn], found: Sequence[ShareScaling]) -> tuple[ProfileColumn, ...]:
    """Return the columns that have a figure for at least one share."""
    shares = [each for scaling in found for each in scaling.shares]
    return tuple(each for each in columns if any(each.cell(share) != numbers.NONE for share in shares))


def rows(
    scaling: ShareScaling, shown: Sequence[ProfileColumn]
) -> Iterator[tuple[str, tuple[str, ...], bool]]:
    """Yield for each share its name, its cells and whether it is the knee's."""
    for each in scaling.shares:
        yield words.share(each.share), tuple(one.cell(each) for one in shown), scaling.is_knee(each)


def render(device_kind: str, found: Sequence[ShareScaling], slo_us: int) -> Group:
    """Return a device kind on the terminal: what a larger share buys, in sentences, then the figures."""
    parts: list[RenderableType] = [Text(device_kind, style="bold")]
    parts += [Text(words.sentence(each, slo_us)) for each in found]
    parts += [Text(), _table(found, CARRIES, marked=True), Text(), _table(found, COSTS, marked=False), Text()]
    if notes := words.notes(found):
        parts += [*map(Text, notes), Text()]
    return Group(*parts)


def _table(found: Sequence[ShareScaling], columns: Sequence[ProfileColumn], marked: bool) -> Table:
    shown = known(columns, found)
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    for title in ("variant", "share"):
        table.add_column(title, min_width=7)
    for column in shown:
        table.add_column(column.title, justify="right", no_wrap=column is not MEASURED)
    if marked:
        table.add_column("", no_wrap=True)
    for scaling in found:
        for count, (share, cells, knee) in enumerate(rows(scaling, shown)):
            name = "" if count else f"[bold]{escape(words.name(scaling))}[/]"
            mark = (KNEE if knee else "",) if marked else ()
            table.add_row(name, share, *cells, *mark, style="bold" if knee and marked else "")
    return table
