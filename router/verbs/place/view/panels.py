"""The charts of a placement: devices to scale, what models are carried, what it costs."""

from collections.abc import Iterator, Mapping, Sequence
from math import isnan, nan
from typing import NamedTuple

from router.verbs.place.view import words
from router.verbs.place.view.figures import Layout, ModelFigures, extent, memory_slices
from router.verbs.report import numbers, svg, ticks
from router.verbs.report.chart import DOTTED, Axis, Dot, Key, Line, Mark, Note, Plot, Rect, Rule, names
from serving.policy.placement.terms.plan import Slot
from serving.policy.placement.terms.problem import Instances

HUES = tuple(f"model{place}" for place in range(8))
"""Colours of models."""
BAR, LINE = 48.0, 25.0
"""Pixels from a device's bar to the next, and from a line of a model to the next."""
_THICK = 0.8  # a bar, of the room that it has; the rest is the gap to the next
_TICK = 0.07  # of that room, the length of a tick below a bar
_NAMED = 8  # models that are named above the devices
_ROW = 1.25 * svg.SMALL  # from a line of a label to the next
_FEW = 9  # letters: fewer of a longer name say nothing
_FAR = 2.0  # times what is asked: bars of models that are hardly asked for would press all others flat
_NOWHERE = Axis(0.0, 1.0, at=())


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
    tip: str


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
    """Yield (start, width) of each free gap, as parts of the device."""
    end = 0.0
    for start, width in sorted((piece.start, piece.width) for piece in pieces(layout)):
        if start > end + 1e-9:
            yield end, start - end
        end = max(end, start + width)
    if end < 1 - 1e-9:
        yield end, 1 - end


def devices(title: str, shown: Sequence[Layout], colours: Mapping[str, str], wide: float) -> Plot:
    """Draw a bar for each layout; a whole device is `wide` pixels. Models that there is no room to name on
    their slices are named above."""
    marks: list[Mark] = []
    for line, layout in enumerate(shown):
        across = (line - _THICK / 2, line + _THICK / 2)
        for start, width in gaps(layout):
            said = _fitting(("free",), (width * wide, BAR))
            marks.append(
                Rect((start, start + width), across, stroke="faint", dash="3 3", said=said, ink="faint")
            )
        for piece in pieces(layout):
            marks += _piece(piece, layout, colours, (line, wide))
        if isinstance(layout.pool.division, Instances):
            marks.append(_memory(memory_slices(layout.pool.division), across[1]))
    keys = [Key(colours.get(name, "paper"), name) for name in unnamed(shown, wide)[:_NAMED]]
    lines = names([words.devices(each) for each in shown])
    return Plot(title, _NOWHERE, lines, marks, keys)


def _piece(
    piece: BarPiece, layout: Layout, colours: Mapping[str, str], place: tuple[int, float]
) -> Iterator[Mark]:
    """Yield its residents, and the frame around them. `place`: the line, and the pixels of a device."""
    line, wide = place
    along = (piece.start, piece.start + piece.width)
    for band in bands(piece, layout.placed, wide):
        y = line - _THICK / 2 + band.middle
        yield Rect(along, (y - band.high / 2, y + band.high / 2), colours.get(band.model, "paper"), "paper",
                   said=band.label, tip=band.tip)  # fmt: skip
    yield Rect(along, (line - _THICK / 2, line + _THICK / 2), stroke="ink")


def _memory(count: int, top: float) -> Line:
    """Return a tick where each memory slice begins."""
    places = [place / count for place in range(count + 1)]
    xs = [x for place in places for x in (place, place, nan)]
    return Line(xs, [top, top + _TICK, nan] * len(places), "faint", width=1)


def unnamed(shown: Sequence[Layout], wide: float) -> list[str]:
    """Return the models that have a slice on which there is no room for a name."""
    found = {
        band.model: None
        for layout in shown
        for piece in pieces(layout)
        for band in bands(piece, layout.placed, wide)
        if not band.label
    }
    return list(found)


def bands(piece: BarPiece, placed: bool, wide: float) -> Iterator[BarBand]:
    """Yield its residents one above the other, as each has all of the slice, in turns; `placed`: it is where
    the instances begin."""
    residents = piece.slot.residents
    high = _THICK / max(len(residents), 1)
    room = (piece.width * wide, high * BAR)
    share = words.brief(piece.slot.share)
    if placed and piece.slot.start >= 0:
        share += f" at {piece.slot.start}"
    for place, resident in enumerate(residents):
        full = f"{resident.model}\n{share}, batches of {resident.rows:,}"
        texts = (full, f"{resident.model}\n{share}", f"{resident.model}, {share}", resident.model)
        label = _fitting(texts, room) or _shortened(resident.model, room)
        yield BarBand(resident.model, high * (place + 0.5), high, label, full)


def _fitting(texts: Sequence[str], room: tuple[float, float]) -> str:
    """Return the first of them that there is room for; "" where there is for none."""
    for text in texts:
        lines = text.split("\n")
        if max(map(svg.wide, lines)) <= room[0] - 4 and _ROW * len(lines) < room[1]:
            return text
    return ""


def _shortened(name: str, room: tuple[float, float]) -> str:
    """Return as much of it as there is room for; "" where that says nothing."""
    cut = svg.shortened(name, room[0] - 4)
    return _fitting((cut,), room) if len(cut) >= _FEW else ""


def carried(shown: Sequence[ModelFigures], reserve: float) -> Plot:
    """Draw what is carried of each model, relative to what is asked."""
    ratios = [0.0 if isnan(each.headroom) else 1 + each.headroom for each in shown]
    end = 1.02 * min(max([1 + reserve, *ratios]), _FAR)
    marks: list[Mark] = []
    for line, (each, ratio) in enumerate(zip(shown, ratios, strict=True)):
        text = f"{numbers.rate(each.capacity)} of {numbers.rate(each.asked)} rows/s"
        marks += _bar(line, min(ratio, _FAR), "bad" if each.short else "good", text)
    marks.append(Rule(1, "ink", upright=True))
    meaning = "dashed: what is asked"
    if reserve:
        marks.append(Rule(1 + reserve, "ink", dash=DOTTED, upright=True))
        meaning += "; dotted: with what is kept in reserve"
    if max(ratios, default=0) > _FAR:
        meaning += f"; bars end at {_FAR * 100:g} %"
    x = Axis(0, end, meaning, shown=_percent)
    return Plot("What is carried, of what is asked", x, names([each.model for each in shown]), marks)


def attained(shown: Sequence[ModelFigures], aim: float) -> Plot:
    """Draw the share of each model's requests that is predicted to be answered in time."""
    least = min([aim, *(each.attainment for each in shown if not isnan(each.attainment))])
    left = 1 - 2.1 * (1 - least)  # its half is for the texts
    marks: list[Mark] = [Rule(aim, "bad", upright=True)]
    for line, each in enumerate(shown):
        if isnan(each.attainment):
            continue
        met = each.attainment >= aim
        p99 = f"p99 {numbers.milliseconds(each.p99_ms)} of {each.slo_ms:,g} ms"
        text = f"{numbers.percent(each.attainment)}, {p99}"
        marks.append(Dot(each.attainment, line, "good" if met else "bad", shape="dot" if met else "cross",
                         size=4.5, tip=f"{each.model}: {text}"))  # fmt: skip
        marks.append(Note(left, line, text, off=(5, 0)))
    meaning = f"dashed: the {aim * 100:.4g} % that are to be in time"
    x = Axis(left, 1, meaning, at=ticks.linear(max(left, 0.0), 1.0, 4), shown=_percent)
    return Plot("What is predicted to be in time", x, names([""] * len(shown)), marks, left=8)


def costs(prices: Sequence[Price], title: str, bound: float, least: str) -> Plot:
    """Draw what placements cost, and the bound, which is `least` in words."""
    marks: list[Mark] = []
    for line, price in enumerate(prices):
        marks += _bar(line, price.cost, "good" if price.ours else "faint", price.text)
    if bound:
        marks.append(Rule(bound, "ink", upright=True))
    end = 1.02 * max([bound, *(price.cost for price in prices)], default=1.0) or 1.0
    x = Axis(0, end, f"dashed: no plan can do with less than {least}" if bound else "")
    return Plot(title, x, names([price.name for price in prices]), marks)


def _bar(line: int, length: float, colour: str, text: str) -> tuple[Mark, Mark]:
    """Return a bar that starts at the left, with its figures at the left end."""
    bar = Rect((0, length), (line - 0.38, line + 0.38), colour, opacity=0.4, tip=text)
    return bar, Note(0, line, text, off=(5, 0))


def _percent(share: float) -> str:
    return f"{share * 100:g} %"
