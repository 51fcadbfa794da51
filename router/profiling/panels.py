"""The panels of the pictures. Their colours stand for variables of the page's style sheet (COLOURS), so that
it can be read in the dark."""

from collections.abc import Sequence
from itertools import cycle
from math import exp
from typing import TYPE_CHECKING, NamedTuple

from router.profiling import words
from router.profiling.figures import Batch, ShareFigures, ShareScaling, points_of
from serving.profile.curve import Point

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INK, PAPER, FAINT, RED, GOLD = "#212427", "#fefefd", "#6a6d70", "#c8442e", "#c97f16"
SHADES = ("#85b8d9", "#5496c9", "#3474b0", "#245590", "#16346b")  # from little of a device to much
HUES = ("#2a7f63", "#8a5a9e", "#a5673b", "#47798c", "#7d7a2b")  # sizes of rows
COLOURS = {
    INK: "ink", PAPER: "paper", FAINT: "faint", RED: "slo", GOLD: "knee",
    **{colour: f"share{place}" for place, colour in enumerate(SHADES)},
    **{colour: f"size{place}" for place, colour in enumerate(HUES)},
}  # fmt: skip
"""Variables of the style sheet, by the colour that stands for each."""
KNEE = "the knee"
FEW = 5  # shares
_FAR = 6.0  # a promise so many times above all latencies would press them flat
_SMALL = 7.5


class Dot(NamedTuple):
    """A measured or predicted place, with the lengths of its bar downwards and upwards."""

    x: float
    y: float
    below: float
    above: float
    predicted: bool


Line = tuple[Sequence[float], Sequence[float]]
"""Places along and up."""


def throughput_by_batch(axes: "Axes", scaling: ShareScaling) -> None:
    """Rows a second over rows of a batch, a line for each share."""
    streams = scaling.surface.streams
    for share, colour in _shown(scaling):
        dots = [_rate(share, point.rows, 1e6 * streams * point.rows / point.p50_us) for point in share.points]
        rows, latency_ms = _fitted(scaling, share)
        rates = [1000 * streams * each / ms for each, ms in zip(rows, latency_ms, strict=True)]
        _draw(axes, _name(share), colour, (rows, rates), dots)
    for batch, mark in _chosen(scaling):
        _mark(axes, batch.rows, batch.throughput, mark)
    _batches(axes, scaling)
    _rates(axes)
    _frame(axes, "What a larger batch brings: rows a second", "rows per second")


def latency_by_batch(axes: "Axes", scaling: ShareScaling, slo_us: int) -> None:
    """Milliseconds over rows of a batch: a line for each share, or for each size of rows on one share."""
    share = scaling.at_knee or scaling.shares[-1]
    sizes = sorted(share.profile.curves())
    title = "What a larger batch costs: latency"
    if len(sizes) > 1:
        title += f", on {words.share(share.share)}"
        for size, colour in zip(sizes, cycle(HUES), strict=False):
            line = _fitted(scaling, share) if size == scaling.size else _curve(share, size)
            dots = [_latency(share, point, point.rows) for point in points_of(share.profile, size)]
            _draw(axes, f"rows of up to {size:,}", colour, line, dots)
    else:
        for each, colour in _shown(scaling):
            dots = [_latency(each, point, point.rows) for point in each.points]
            _draw(axes, _name(each), colour, _fitted(scaling, each), dots)
    for batch, mark in _chosen(scaling):
        _mark(axes, batch.rows, batch.p50_us / 1000, mark)
    _batches(axes, scaling)
    _milliseconds(axes, slo_us)
    _frame(axes, title, "milliseconds (log)")


def throughput_by_share(axes: "Axes", scaling: ShareScaling, slo_us: int) -> None:
    """Rows a second over shares, each with the batch that the latency allows."""
    able = [(each, each.within) for each in scaling.shares if each.within]
    amounts, rates = [each.share.amount for each, _ in able], [batch.throughput for _, batch in able]
    if len(able) > 1:
        axes.plot([0, amounts[-1]], [0, rates[0] / amounts[0] * amounts[-1]], color=FAINT, ls=":", lw=1.2,
                  label="if twice the share brought twice as much")  # fmt: skip
    dots = [_rate(each, each.share.amount, batch.throughput) for each, batch in able]
    _draw(axes, "", SHADES[2], (amounts, rates), dots)
    axes.set_ylim(0, 1.3 * max(rates, default=1.0))
    for each, batch in able if len(able) <= FEW else []:
        axes.annotate(f"batches of {batch.rows:,}", (each.share.amount, batch.throughput), xytext=(0, -17),
                      textcoords="offset points", ha="center", fontsize=_SMALL, color=FAINT)  # fmt: skip
    if scaling.knee:
        _mark(axes, scaling.knee.amount, scaling.knee.throughput, KNEE)
    _shares(axes, scaling)
    _rates(axes)
    _frame(axes, f"What a larger share brings: rows a second {words.within(slo_us)}", "rows per second")


def latency_by_share(axes: "Axes", scaling: ShareScaling, slo_us: int) -> None:
    """Milliseconds over shares: of the smallest batch, and of the knee's."""
    batches = {min(share.points[0].rows for share in scaling.shares): SHADES[1]}
    if scaling.knee:
        batches[scaling.knee.rows] = SHADES[3]
    for rows, colour in batches.items():
        amounts = [amount for amount in scaling.surface.amounts if _known(scaling, amount, rows)]
        line = (amounts, [scaling.surface.latency_us(amount, rows) / 1000 for amount in amounts])
        dots = [
            _latency(each, point, each.share.amount)
            for each in scaling.shares
            for point in each.points
            if point.rows == rows
        ]
        _draw(axes, "1 row" if rows == 1 else f"batches of {rows:,}", colour, line, dots)
    if scaling.knee:
        _mark(axes, scaling.knee.amount, scaling.knee.latency_us / 1000, KNEE)
    _shares(axes, scaling)
    _milliseconds(axes, slo_us)
    _frame(axes, "What a larger share spares: latency", "milliseconds (log)")


def _known(scaling: ShareScaling, amount: float, rows: int) -> bool:
    known = scaling.surface.rows_at(amount)
    return known is not None and known[0] <= rows <= known[1]


def _shown(scaling: ShareScaling) -> list[tuple[ShareFigures, str]]:
    """Shares to draw lines of, and their colours: more than FEW of them could not be told apart."""
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


def _rate(share: ShareFigures, x: float, rate: float) -> Dot:
    return Dot(x, rate, share.margin * rate, share.margin * rate, share.profile.predicted)


def _latency(share: ShareFigures, point: Point, x: float) -> Dot:
    """Up to the p99; a prediction's error, in both directions."""
    ms, error = point.p50_us / 1000, share.profile.origin.error
    below, above = (error * ms, error * ms) if error else (0.0, max(point.p99_us / 1000 - ms, 0.0))
    return Dot(x, ms, below, above, share.profile.predicted)


def _fitted(scaling: ShareScaling, share: ShareFigures) -> Line:
    """Milliseconds over rows, as the surface has them."""
    rows, log_us = scaling.surface.curves[scaling.surface.amounts.index(share.share.amount)]
    return rows, [exp(each) / 1000 for each in log_us]


def _curve(share: ShareFigures, size: int) -> Line:
    """Of another size than the largest."""
    curve = share.profile.curves()[size]
    return curve.rows, [us / 1000 for us in curve.latency_us]


def _draw(axes: "Axes", label: str, colour: str, line: Line, dots: Sequence[Dot]) -> None:
    axes.plot(*line, color=colour, lw=1.4, label=label or None)
    for dot in dots:
        face = PAPER if dot.predicted else colour
        axes.errorbar(dot.x, dot.y, [[dot.below], [dot.above]], fmt="o", ms=4, color=colour, mfc=face,
                      elinewidth=0.9, capsize=2)  # fmt: skip


def _chosen(scaling: ShareScaling) -> list[tuple[Batch, str]]:
    """Return the batch to run at the knee, or on the only share; none where no batch is within the
    latency."""
    share = scaling.at_knee or scaling.shares[-1]
    return [(share.within, KNEE if scaling.knee else "the batch to run")] if share.within else []


def _mark(axes: "Axes", x: float, y: float, name: str) -> None:
    shape, size = ("*", 14) if name == KNEE else ("D", 7)
    axes.plot([x], [y], marker=shape, ms=size, color=GOLD, mec=INK, mew=0.5, ls="", zorder=5, label=name)


def _batches(axes: "Axes", scaling: ShareScaling) -> None:
    from matplotlib.ticker import FixedLocator, NullLocator

    largest = max(share.points[-1].rows for share in scaling.shares)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_locator(FixedLocator([1 << power for power in range(largest.bit_length())]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(lambda rows, _: f"{rows:,.0f}")
    axes.set_xlabel("rows in a batch")


def _shares(axes: "Axes", scaling: ShareScaling) -> None:
    from matplotlib.ticker import FixedLocator

    amounts = scaling.surface.amounts
    axes.set_xlim(0, 1.08 * amounts[-1])
    axes.xaxis.set_major_locator(FixedLocator(amounts))
    axes.xaxis.set_major_formatter(lambda amount, _: f"{amount:g}")
    axes.set_xlabel(words.AXIS[scaling.surface.kind])


def _rates(axes: "Axes") -> None:
    axes.set_ylim(bottom=0)
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.6g}")


def _milliseconds(axes: "Axes", slo_us: int) -> None:
    """A logarithmic axis, with what a batch may take where that is anywhere near."""
    from matplotlib.ticker import LogLocator, NullLocator

    high, half_ms = axes.get_ylim()[1], slo_us / 2000
    axes.set_yscale("log")
    if half_ms < _FAR * high:
        axes.axhline(half_ms, color=RED, ls="--", lw=1, label=f"half of {slo_us / 1000:,g} ms: two must fit")
    low, high = axes.get_ylim()
    axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if high > 10 * low else (1, 1.5, 2, 3, 5, 7)))
    axes.yaxis.set_minor_locator(NullLocator())
    axes.yaxis.set_major_formatter(lambda ms, _: f"{ms:,g}")


def _frame(axes: "Axes", title: str, unit: str) -> None:
    axes.set_title(title, loc="left", fontweight="bold")
    axes.set_ylabel(unit)
    axes.grid(axis="y")
    if axes.get_legend_handles_labels()[0]:
        axes.legend(fontsize=_SMALL, frameon=True, framealpha=0.85, edgecolor="none", loc="best")
