"""The panels of the pictures. Their colours stand for variables of the page's style sheet (COLOURS), so that
it can be read in the dark."""

from collections.abc import Iterator, Mapping, Sequence
from math import isnan
from typing import TYPE_CHECKING, NamedTuple

from router.place import words
from router.place.figures import Layout, ModelFigures, extent, memory_slices
from router.report import numbers
from serving.policy.placement.plan import Slot
from serving.policy.placement.problem import Instances

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INK, PAPER, FAINT, RED, GREEN = "#212427", "#fefefd", "#6a6d70", "#c8442e", "#1d6a4e"
HUES = ("#4a9acb", "#efc159", "#59c0a4", "#dea8c6", "#e49659", "#aadaf4", "#f5ed84", "#bdbdbd")
"""Of models: Okabe and Ito's (2008), which the colour-blind can tell apart, lightened, so that a label in INK
can be read on each."""
DARK_HUES = ("#0b3f5c", "#7e5c0e", "#086f55", "#714962", "#92460a", "#366682", "#65622a", "#58595a")
"""The same for the dark, under a light INK."""
COLOURS = {
    INK: "ink", PAPER: "paper", FAINT: "faint", RED: "bad", GREEN: "good",
    **{colour: f"model{place}" for place, colour in enumerate(HUES)},
}  # fmt: skip
"""Variables of the style sheet, by the colour that stands for each."""
BAR_IN, LINE_IN = 0.46, 0.27
"""Inches from a device's bar to the next, and from a line of a model to the next."""
SMALL = 7.5
_LETTER = 0.56  # of the size of letters, the width of one: a little more than it takes on average
_THICK = 0.8  # a bar, of the room that it has; the rest is the gap to the next
_COLUMNS, NAMED_LINES = 4, 2  # of models that are named below the devices
_FEW = 9  # letters: fewer of a longer name say nothing
_FAR = 2.0  # times what is asked: bars of models that are hardly asked for would press all others flat


class BarPiece(NamedTuple):
    """Where a slice lies on its device's bar: both as parts of the device."""

    start: float
    width: float
    slot: Slot


class BarBand(NamedTuple):
    """A resident on its slice: where its middle is, from the bar's upper edge, and how high it is; "" where
    there is no room for a label."""

    model: str
    middle: float
    high: float
    label: str


class Price(NamedTuple):
    """What a placement costs, by name; `ours`: of the one that holds from now on."""

    name: str
    cost: float
    text: str
    ours: bool = False


def hues(models: Sequence[str]) -> dict[str, str]:
    """Return a colour by model; they repeat after the eighth."""
    return {name: HUES[place % len(HUES)] for place, name in enumerate(models)}


def pieces(layout: Layout) -> Iterator[BarPiece]:
    """Yield a MIG instance where it begins; amounts one after the other, as they have no place."""
    end = 0.0
    for slot in layout.slots:
        width = extent(layout.pool, slot)
        start = end
        if isinstance(layout.pool.division, Instances) and slot.start >= 0:
            start = slot.start / memory_slices(layout.pool.division)
        yield BarPiece(start, width, slot)
        end = max(end, start + width)


def gaps(layout: Layout) -> Iterator[tuple[float, float]]:
    """(start, width) of what is free, as parts of the device."""
    end = 0.0
    for start, width in sorted((piece.start, piece.width) for piece in pieces(layout)):
        if start > end + 1e-9:
            yield end, start - end
        end = max(end, start + width)
    if end < 1 - 1e-9:
        yield end, 1 - end


def devices(axes: "Axes", shown: Sequence[Layout], colours: Mapping[str, str], wide_in: float) -> None:
    """A bar for each layout; the axes are `wide_in` inches wide, a whole device. Models that there is no room
    to name on their slices are named below."""
    for line, layout in enumerate(shown):
        for start, width in gaps(layout):
            axes.barh(line, width, _THICK, start, color="none", edgecolor=FAINT, lw=0.6, ls=(0, (3, 3)))
            _say(axes, start + width / 2, line, _fitting(("free",), (width * wide_in, BAR_IN)), FAINT)
        for piece in pieces(layout):
            axes.barh(line, piece.width, _THICK, piece.start, color="none", edgecolor=INK, lw=0.9, zorder=3)
            for band in bands(piece, layout.placed, wide_in):
                y = line - _THICK / 2 + band.middle
                axes.barh(y, piece.width, band.high, piece.start, color=colours.get(band.model, PAPER),
                          edgecolor=PAPER, lw=0.4)  # fmt: skip
                _say(axes, piece.start + piece.width / 2, y, band.label, INK)
        if isinstance(layout.pool.division, Instances):
            count = memory_slices(layout.pool.division)
            axes.vlines([place / count for place in range(count + 1)], line + _THICK / 2,
                        line + _THICK / 2 + 0.07, color=FAINT, lw=0.6)  # fmt: skip
    _lines(axes, [words.devices(each) for each in shown])
    axes.set_xlim(-0.001, 1.001)
    axes.set_xticks([])
    axes.spines["bottom"].set_visible(False)
    _name_below(axes, unnamed(shown, wide_in), colours)


def _name_below(axes: "Axes", names: Sequence[str], colours: Mapping[str, str]) -> None:
    for name in names[: _COLUMNS * NAMED_LINES]:
        axes.barh(0, 0, color=colours.get(name, PAPER), edgecolor=INK, lw=0.5, label=cut(name))
    if names:
        axes.legend(loc="upper left", bbox_to_anchor=(0, 0), ncols=_COLUMNS, fontsize=SMALL, frameon=False,
                    borderaxespad=0.3, handlelength=1.5)  # fmt: skip


def unnamed(shown: Sequence[Layout], wide_in: float) -> list[str]:
    """Return the models that have a slice on which there is no room for a name."""
    found = {
        band.model: None
        for layout in shown
        for piece in pieces(layout)
        for band in bands(piece, layout.placed, wide_in)
        if not band.label
    }
    return list(found)


def bands(piece: BarPiece, placed: bool, wide_in: float) -> Iterator[BarBand]:
    """Yield its residents one above the other, as each has all of the slice, in turns; `placed`: it is where
    the instances begin."""
    residents = piece.slot.residents
    high = _THICK / max(len(residents), 1)
    room_in = (piece.width * wide_in, high * BAR_IN)
    share = words.brief(piece.slot.share)
    if placed and piece.slot.start >= 0:
        share += f" at {piece.slot.start}"
    for place, resident in enumerate(residents):
        texts = (f"{resident.model}\n{share}, batches of {resident.rows:,}", f"{resident.model}\n{share}",
                 f"{resident.model}, {share}", resident.model)  # fmt: skip
        label = _fitting(texts, room_in) or _shortened(resident.model, room_in)
        yield BarBand(resident.model, high * (place + 0.5), high, label)


def _fitting(texts: Sequence[str], room_in: tuple[float, float]) -> str:
    """Return the first of them that there is room for; "" where there is for none."""
    for text in texts:
        lines = text.split("\n")
        if max(map(len, lines)) <= _letters(room_in[0]) and 1.25 * SMALL * len(lines) < 72 * room_in[1]:
            return text
    return ""


def _shortened(name: str, room_in: tuple[float, float]) -> str:
    """As much of it as there is room for; "" where that says nothing."""
    most = _letters(room_in[0])
    return _fitting((cut(name, most),), room_in) if most >= _FEW else ""


def _letters(wide_in: float) -> int:
    """Return how many there is room for."""
    return max(int((72 * wide_in - 4) / (SMALL * _LETTER)), 0)


def _say(axes: "Axes", x: float, y: float, text: str, colour: str) -> None:
    if text:
        axes.text(x, y, text, ha="center", va="center", fontsize=SMALL, color=colour, zorder=4)


def carried(axes: "Axes", shown: Sequence[ModelFigures], reserve: float) -> None:
    """What is carried of each model, relative to what is asked."""
    ratios = [0.0 if isnan(each.headroom) else 1 + each.headroom for each in shown]
    for line, (each, ratio) in enumerate(zip(shown, ratios, strict=True)):
        axes.barh(line, min(ratio, _FAR), 0.7, color=RED if each.short else GREEN, alpha=0.45, lw=0)
        _beside(axes, line, f"{numbers.rate(each.capacity)} of {numbers.rate(each.asked)} rows/s")
    axes.axvline(1, color=INK, lw=1, ls="--")
    meaning = "dashed: what is asked"
    if reserve:
        axes.axvline(1 + reserve, color=INK, lw=1, ls=":")
        meaning += "; dotted: with what is kept in reserve"
    _lines(axes, [each.model for each in shown])
    axes.set_xlim(0, 1.02 * min(max([1 + reserve, *ratios]), _FAR))
    axes.xaxis.set_major_formatter(lambda ratio, _: f"{ratio * 100:g} %")
    if max(ratios, default=0) > _FAR:
        meaning += f"; bars end at {_FAR * 100:g} %"
    _frame(axes, "What is carried, of what is asked", meaning)


def attained(axes: "Axes", shown: Sequence[ModelFigures], aim: float) -> None:
    """The share of each model's requests that is predicted to be answered in time."""
    least = min([aim, *(each.attainment for each in shown if not isnan(each.attainment))])
    for line, each in enumerate(shown):
        if isnan(each.attainment):
            continue
        met = each.attainment >= aim
        axes.plot([each.attainment], [line], marker="o" if met else "X", ms=7, ls="",
                  color=GREEN if met else RED, clip_on=False, zorder=3)  # fmt: skip
        p99 = f"p99 {numbers.milliseconds(each.p99_ms)} of {each.slo_ms:,g} ms"
        _beside(axes, line, f"{numbers.percent(each.attainment)}, {p99}")
    axes.axvline(aim, color=RED, lw=1, ls="--")
    _lines(axes, [""] * len(shown))
    left = 1 - 2.1 * (1 - least)  # its half is for the texts
    axes.set_xlim(left, 1)
    axes.set_xticks([tick for tick in axes.get_xticks() if max(left, 0) <= tick <= 1])
    axes.xaxis.set_major_formatter(lambda share, _: f"{share * 100:g} %")
    _frame(axes, "What is predicted to be in time", f"dashed: the {aim * 100:.4g} % that are to be in time")


def costs(axes: "Axes", prices: Sequence[Price], title: str, bound: float, least: str) -> None:
    """What placements cost, and the bound, which is `least` in words."""
    for line, price in enumerate(prices):
        axes.barh(line, price.cost, 0.7, color=GREEN if price.ours else FAINT, alpha=0.45, lw=0)
        _beside(axes, line, price.text)
    if bound:
        axes.axvline(bound, color=INK, lw=1, ls="--")
    _lines(axes, [price.name for price in prices])
    axes.set_xlim(0, 1.02 * max([bound, *(price.cost for price in prices)], default=1.0) or 1.0)
    _frame(axes, title, f"dashed: no plan can do with less than {least}" if bound else "")


def _beside(axes: "Axes", line: int, text: str) -> None:
    """A line's figures, at its left end."""
    axes.text(0.012, line, text, va="center", fontsize=SMALL, color=INK, zorder=4,
              transform=axes.get_yaxis_transform())  # fmt: skip


def _frame(axes: "Axes", title: str, meaning: str) -> None:
    """What it shows, above, and what its lines mean, below."""
    axes.set_title(title, loc="left", fontweight="bold")
    axes.set_xlabel(meaning, loc="left", fontsize=SMALL)


def _lines(axes: "Axes", names: Sequence[str]) -> None:
    """The names at the left, from above; long ones cut in the middle."""
    axes.set_yticks(range(len(names)), [cut(name) for name in names])
    axes.tick_params(axis="y", length=0)
    axes.set_ylim(max(len(names), 1) - 0.5, -0.5)
    axes.spines["left"].set_visible(False)


def cut(name: str, most: int = 24) -> str:
    """Return a name that has room, its beginning and end kept."""
    return name if len(name) <= most else f"{name[: most // 2 - 1]}...{name[-(most // 2 - 2) :]}"
