"""A placement as tables: on the terminal, and the cells of the page's."""

from collections.abc import Callable, Iterator, Sequence
from math import nan
from typing import NamedTuple

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from router.verbs.place.view import changes, figures, words
from router.verbs.place.view.figures import Layout, ModelFigures, free, layouts, worst
from router.verbs.place.view.shown import PlaceReport
from router.verbs.report import capacity, numbers
from serving.policy.placement.terms.plan import PlacedReplica, Slot
from serving.policy.placement.terms.problem import Instances

LAYOUTS, MODELS, STAGES = 24, 40, 20
"""What is shown at most, the most frequent layouts and the models with the least to spare."""
_NAMED = 12  # groups of devices with their names


class PlaceColumn(NamedTuple):
    """A column of a model's figures, and what it means."""

    title: str
    meaning: str
    cell: Callable[[ModelFigures], str]


def _rate_of(figure: Callable[[ModelFigures], float]) -> Callable[[ModelFigures], str]:
    return lambda each: numbers.amount(figure(each))


def _domains(each: ModelFigures) -> str:
    least = each.demand.domains_min
    return f"{each.domains:,}" if least <= 1 else f"{each.domains:,} of {least:,}"


COLUMNS = (
    PlaceColumn(
        "asked\nrows/s", "rows a second that are asked of the model", _rate_of(lambda each: each.asked)
    ),
    PlaceColumn(
        "carries\nrows/s",
        "rows a second that its replicas carry, each in batches that keep the SLO",
        _rate_of(lambda each: each.capacity),
    ),
    PlaceColumn(
        "head-\nroom",
        "by how much more than is asked it carries, the reserve included",
        lambda each: words.ratio(each.headroom),
    ),
    PlaceColumn("repli-\ncas", "replicas of the model on all devices", lambda each: f"{each.replicas:,}"),
    PlaceColumn(
        "do-\nmains",
        "failure domains (hosts, racks) in which it has a replica; and in how many it is to "
        "have one, where that is more than one",
        _domains,
    ),
    PlaceColumn(
        "SLO\nms", "the promise: an answer within so many milliseconds", lambda each: f"{each.slo_ms:,g}"
    ),
    PlaceColumn(
        "in\ntime",
        "share of its requests that is predicted to be answered within the promise: the "
        "placement in virtual time, with requests that come at random at the rate asked",
        lambda each: numbers.percent(each.attainment),
    ),
    PlaceColumn(
        "p99\nms",
        "99 of 100 answers are predicted to take at most so many milliseconds",
        lambda each: numbers.milliseconds(each.p99_ms),
    ),
)
"""Of models."""
HEADS = (
    ("devices", "the device, or how many of a pool are divided alike and run the same"),
    ("slice", "how much of the device a slice has; 3 x: there are three that are alike"),
    ("at", "the memory slices that MIG instances begin at"),
    ("model", "what runs there; models on one slice compute in turns"),
    ("batch", "rows that are computed together, at most"),
    (
        "rows/s",
        "what a replica there is planned with: a tenth of the SLO is left to spare, several replicas of a "
        "model share a queue, and neighbours slow it down",
    ),
    ("profiled", f"{capacity.TERM}: {capacity.MEANING}"),
    ("of asked", "that, of what is asked of the model in all"),
)
"""Of devices: titles and what they mean."""
FIGURES = ("at", "batch", "rows/s", "profiled", "of asked")
"""Those of numbers."""


class DeviceRow(NamedTuple):
    """A line of the devices' table: "" where it is as above. `names`: the devices, where they are several."""

    devices: str
    names: str
    share: str
    start: str
    model: str
    batch: str
    rate: str
    profiled: str
    part: str

    @property
    def cells(self) -> tuple[str, ...]:
        """Under HEADS, the names of devices left out."""
        return (self.devices, *self[2:])


def device_rows(shown: PlaceReport, most: int) -> tuple[list[list[DeviceRow]], str]:
    """Return the lines of each layout, at most `most` layouts, and what was left out in words."""
    found = layouts(shown.problem, shown.after)
    asked = {each.model: each.asked for each in shown.models}
    kept = found if len(found) <= most else sorted(found, key=lambda each: -each.count)[:most]
    left = ""
    if dropped := len(found) - len(kept):
        count = sum(each.count for each in found) - sum(each.count for each in kept)
        left = f"and {words.counted(dropped, 'rarer layout')} of {words.counted(count, 'device')}"
    return [list(_layout_rows(each, asked)) for each in found if each in kept], left


def _layout_rows(layout: Layout, asked: dict[str, float]) -> Iterator[DeviceRow]:
    name, names = words.devices(layout), words.spans(layout.devices) if layout.count > 1 else ""
    for slots in figures.alike(layout):
        share, start = words.brief(slots[0].share), _starts(layout, slots)
        if len(slots) > 1:
            share = f"{len(slots)} x {share}"
        for resident in slots[0].residents:
            yield DeviceRow(name, names, share, start, *_resident(resident, asked.get(resident.model, 0.0)))
            name = names = share = start = ""


def _starts(layout: Layout, slots: Sequence[Slot]) -> str:
    if not isinstance(layout.pool.division, Instances) or not layout.placed:
        return ""
    return ",".join(str(slot.start) for slot in slots if slot.start >= 0)


def _resident(resident: PlacedReplica, asked: float) -> tuple[str, str, str, str, str]:
    option = resident.option
    name = f"{resident.model} {option.variant}".rstrip()
    if option.processes > 1:
        name += f" ({option.processes} processes)"
    part = resident.capacity / asked if asked > 0 else nan
    profiled = capacity.rows_per_s(option.profiled.rate) if option.profiled else numbers.NONE
    return name, f"{resident.rows:,}", numbers.rate(resident.capacity), profiled, words.ratio(part)


def free_devices(shown: PlaceReport) -> str:
    """Return the free devices, for example `free: 2 of gpu, node-2`; "" if none is free."""
    told = [
        each.devices[0] if each.count == 1 else f"{each.count:,} of {each.pool.name}"
        for each in free(shown.problem, shown.after)
    ]
    return f"free: {', '.join(told)}" if told else ""


def model_rows(shown: PlaceReport, most: int) -> tuple[list[ModelFigures], str]:
    """Return those asked for, at most `most` of them, and what was left out in words."""
    asked = [each for each in shown.models if each.demand.rate > 0]
    left = len(asked) - most
    return worst(asked, most), f"and {words.counted(left, 'model')} with more to spare" if left > 0 else ""


def render(shown: PlaceReport) -> Group:
    """Return what to see, devices, models, what changes and how, on the terminal."""
    parts: list[RenderableType] = [Text(words.sentence(shown), style="bold"), Text()]
    if shown.after:
        parts += _devices(shown)
    parts += _models(shown)
    parts += [Text(each) for each in _changes(shown)]
    if shown.notes:
        parts += [Text(), *(Text(f"note: {note}") for note in shown.notes)]
    return Group(*parts)


def met(shown: PlaceReport, model: ModelFigures) -> bool:
    """Return whether the model is carried, and predicted to be in time."""
    return not (model.short or model.attainment < shown.attainment)


def flat(title: str) -> str:
    """Return a column's title in one line."""
    return title.replace("-\n", "").replace("\n", " ")


def _table(titles: Sequence[str], left: int) -> Table:
    """Return a table with these titles; the first `left` columns are names."""
    table = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    for place, title in enumerate(titles):
        table.add_column(
            title, justify="left" if place < left else "right", no_wrap=place >= left, min_width=2
        )
    return table


def _devices(shown: PlaceReport) -> Iterator[RenderableType]:
    found, left = device_rows(shown, LAYOUTS)
    placed = any(row.start for rows in found for row in rows)
    table = _table([title for title, _ in HEADS if placed or title != "at"], 4 if placed else 3)
    for rows in found:
        for row in rows:
            cells = [
                cell for (title, _), cell in zip(HEADS, row.cells, strict=True) if placed or title != "at"
            ]
            table.add_row(*map(Text, cells))
    yield table
    yield from (Text(each) for each in (*named(found), left, free_devices(shown)) if each)
    yield Text()


def named(found: Sequence[Sequence[DeviceRow]]) -> Iterator[str]:
    """Yield which devices are alike, where that can be told in short."""
    several = [rows[0] for rows in found if rows[0].names]
    if len(several) <= _NAMED:
        yield from (f"{each.devices}: {each.names}" for each in several)


def _models(shown: PlaceReport) -> Iterator[RenderableType]:
    found, left = model_rows(shown, MODELS)
    if not found:
        return
    table = _table(["model", *(each.title for each in COLUMNS)], 1)
    for model in found:
        table.add_row(
            *map(Text, (model.model, *(each.cell(model) for each in COLUMNS))),
            style="" if met(shown, model) else "bold",
        )
    yield table
    if left:
        yield Text(left)
    yield Text()


def _changes(shown: PlaceReport) -> Iterator[str]:
    yield from changes.changed(shown)
    if shown.steps:
        yield ""
        yield "Steps, each line at once:"
        told, left = changes.stages(shown, STAGES)
        yield from (f"{number:3}. {each}" for number, each in enumerate(told, 1))
        if left:
            yield f"     {left}"
