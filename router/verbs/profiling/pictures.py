"""Pictures of profiles: throughput and latency, over batches and over shares, with the knee.

For somebody who sees such a thing for the first time: words before symbols, units at every axis.
"""

from collections.abc import Iterator, Sequence
from pathlib import Path

from router.verbs.profiling import panels, words
from router.verbs.profiling.figures import ShareScaling
from router.verbs.report import drawing
from router.verbs.report.chart import Plots, Words

READING = (
    "Dots: measured batches; lines: what is fitted through them. Bars: in the latency pictures from the "
    "median to the 99th percentile of the runs, in the others how far the machine swayed meanwhile (noise). "
    "Hollow dots: predicted, not measured; their bars are the standard error. Star: the knee, the share past "
    "which more buys little."
)
_WIDE, _HIGH = 1000.0, 210.0  # pixels: of the picture, of a chart
_LONG = 120  # letters of a fact, of which the page has all


def write_svg(model: str, found: Sequence[ShareScaling], slo_us: int, path: Path) -> None:
    """Draw all of `found`, one below the other. OSError where it cannot be written."""
    items: list[Plots | Words] = []
    for scaling in found:
        heading = f"{model} on {scaling.device_kind}\n{words.sentence(scaling, slo_us)}"
        items += [Words(heading, 13, bold=True), *_charts(scaling, slo_us)]
    kinds = dict.fromkeys(each.device_kind for each in found)
    items += [Words(text, colour="faint") for text in (READING, *(_origin(kind, found) for kind in kinds))]
    path.write_text(drawing.file(items, _WIDE, f"Profiles of {model}"), encoding="utf-8")


def _origin(kind: str, found: Sequence[ShareScaling]) -> str:
    facts = words.origins([each for each in found if each.device_kind == kind])
    told = (f"{term} {text if len(text) < _LONG else text[:_LONG] + '...'}" for term, text in facts)
    return f"{kind}: {'; '.join(told)}"


def svg(scaling: ShareScaling, slo_us: int) -> str:
    """Return one variant as an `<svg>` element."""
    return drawing.picture(
        [*_charts(scaling, slo_us)], _WIDE, f"{words.name(scaling)}: throughput and latency"
    )


def _charts(scaling: ShareScaling, slo_us: int) -> Iterator[Plots]:
    """Yield charts over batches; below them over shares, where there are several."""
    yield Plots([panels.throughput_by_batch(scaling), panels.latency_by_batch(scaling, slo_us)], _HIGH)
    if len(scaling.shares) > 1:
        yield Plots(
            [panels.throughput_by_share(scaling, slo_us), panels.latency_by_share(scaling, slo_us)], _HIGH
        )
