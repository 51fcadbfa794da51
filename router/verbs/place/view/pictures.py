"""Pictures of a placement: devices cut into slices, before and after; what each model is carried and answered
in time; what it costs.

For somebody who sees such a thing for the first time: words before symbols, units at every axis.
"""

from collections.abc import Iterator
from pathlib import Path

from router.verbs.place.view import panels, words
from router.verbs.place.view.figures import free, layouts, used, worst
from router.verbs.place.view.panels import BAR, LINE, Price
from router.verbs.place.view.shown import PlaceReport
from router.verbs.report import drawing
from router.verbs.report.chart import Plots, Words
from serving.policy.placement.terms.plan import Placement, cost

_READING = (
    "A bar is a device, cut into slices to scale. MIG instances lie on its memory slices (ticks, from 0), "
    "other shares have no place of their own. Dashed: free. Models above each other on a slice compute in "
    "turns."
)
_WIDE, _LEFT, _RIGHT = 1000.0, 150.0, 20.0  # pixels
_DEVICE = _WIDE - _LEFT - _RIGHT
BARS, LINES = 24, 24
"""At most, devices (alike ones are one bar) and models in a picture."""


def write_svg(shown: PlaceReport, path: Path, footnote: str) -> None:
    """Write all pictures, one below the other, with what to see. OSError where it cannot be written."""
    heading = words.sentence(shown)
    items: list[Plots | Words] = [
        Words(heading, 14, bold=True),
        *_devices(shown),
        *_figures(shown),
        Words(f"{reading(shown)} {footnote}", colour="faint"),
    ]
    path.write_text(drawing.file(items, _WIDE, heading), encoding="utf-8")


def reading(shown: PlaceReport) -> str:
    """Return how to read the picture of devices."""
    many = len(shown.problem.demands) > len(panels.HUES)
    return _READING + (f" Colours repeat after {len(panels.HUES)} models." if many else "")


def svg_devices(shown: PlaceReport) -> str:
    """Return the devices as an `<svg>` element."""
    return drawing.picture([*_devices(shown)], _WIDE, "Devices and what runs on them")


def svg_figures(shown: PlaceReport) -> str:
    """Return the models and the costs as an `<svg>` element."""
    return drawing.picture(
        [*_figures(shown)], _WIDE, "What models are carried and answered, and what it costs"
    )


def _devices(shown: PlaceReport) -> Iterator[Plots]:
    """Yield the block before above the block after; one block if nothing was there, or nothing changes."""
    if shown.before and not shown.kept:
        yield _bars(shown, shown.before, "Before")
    title = "As it is, and stays" if shown.kept else "After" if shown.before else "The plan"
    yield _bars(shown, shown.after, "The plan, which breaks a promise" if shown.refused else title)


def _bars(shown: PlaceReport, placement: Placement, title: str) -> Plots:
    """Return the devices' bars in order; if they are too many, leave out the rarest layouts."""
    found, unused = layouts(shown.problem, placement), free(shown.problem, placement)
    kept = sorted(found, key=lambda each: -each.count)[: max(BARS - len(unused), 1)]
    if dropped := len(found) - len(kept):
        count = sum(each.count for each in found) - sum(each.count for each in kept)
        title += f" ({words.counted(dropped, 'rarer layout')} of {words.counted(count, 'device')} left out)"
    place = {name: number for number, name in enumerate(shown.problem.pool_of)}
    lines = sorted([*kept, *unused], key=lambda each: place[each.devices[0]])
    colours = panels.hues([each.model for each in shown.problem.demands])

    plot = panels.devices(title, lines, colours, _DEVICE)
    return Plots([plot._replace(left=_LEFT)], BAR * max(len(lines), 1))


def _figures(shown: PlaceReport) -> Iterator[Plots]:
    models = worst(shown.models, LINES)
    if models:
        plots = [panels.carried(models, shown.reserve), panels.attained(models, shown.attainment)]
        yield Plots([plots[0]._replace(left=_LEFT), plots[1]], LINE * len(models))
    prices = list(_prices(shown))
    title = "What it costs an hour" if shown.priced else "How many devices it takes"
    least = words.money(shown.bound) if shown.priced else f"{shown.bound:.4g} devices"
    yield Plots([panels.costs(prices, title, shown.bound, least)._replace(left=_LEFT)], LINE * len(prices))


def _prices(shown: PlaceReport) -> Iterator[Price]:
    """Yield the prices of the placements that the report tells of."""
    placements = {"before": shown.before} if shown.before and not shown.kept else {}
    placements["as it stays" if shown.kept else "the plan"] = shown.after
    if shown.kept:
        placements["the plan, not taken"] = shown.plan.placement
    for name, placement in placements.items():
        paid = cost(shown.problem, placement)
        yield Price(name, paid, _price(shown, used(placement), paid), placement is shown.after)


def _price(shown: PlaceReport, count: int, paid: float) -> str:
    told = words.counted(count, "device")
    return f"{words.money(paid)} ({told})" if shown.priced else told
