"""Pictures of profiles: throughput and latency, over batches and over shares, with the knee.

For somebody who sees such a thing for the first time: words before symbols, units at every axis.
"""

import textwrap
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from router.profiling import panels, words
from router.profiling.figures import ShareScaling
from router.profiling.panels import FAINT, INK, PAPER
from router.report.svg import STYLE, inline

if TYPE_CHECKING:  # matplotlib takes half a second that a table need not wait for
    from matplotlib.figure import Figure, SubFigure

READING = (
    "Dots: measured batches; lines: what is fitted through them. Bars: in the latency pictures from the "
    "median to the 99th percentile of the runs, in the others how far the machine swayed meanwhile (noise). "
    "Hollow dots: predicted, not measured; their bars are the standard error. Star: the knee, the share past "
    "which more buys little."
)
_STYLE: dict[Any, Any] = {
    **STYLE,
    "text.color": INK,
    "axes.edgecolor": INK,
    "axes.labelcolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
    "grid.color": FAINT,
    "grid.alpha": 0.3,
    "legend.facecolor": PAPER,
}
_WIDTH, _HEIGHT = 5.4, 3.0  # inches of a panel
_HEADING, _FOOTING = 0.6, 0.9  # inches
_LONG = 120  # letters of a fact, of which the page has all
_LETTERS = 165  # in a line of the whole width


def write_png(model: str, found: Sequence[ShareScaling], slo_us: int, path: Path) -> None:
    """All of `found`, one below the other. OSError where it cannot be written."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    heights = [_height(each) + _HEADING for each in found]
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(2 * _WIDTH, sum(heights) + _FOOTING), layout="constrained")
        blocks = figure.subfigures(len(found), 1, squeeze=False, height_ratios=heights, hspace=0.03)
        for block, scaling in zip(blocks[:, 0], found, strict=True):
            _draw(block, scaling, slo_us)
            sentence = f"{model} on {scaling.device_kind}\n{words.sentence(scaling, slo_us)}"
            heading = "\n".join(textwrap.fill(line, _LETTERS - 35) for line in sentence.split("\n"))
            block.suptitle(heading, x=0.01, ha="left", fontsize=10, fontweight="bold")
        origins = (_origin(kind, found) for kind in dict.fromkeys(each.device_kind for each in found))
        text = "\n".join(textwrap.fill(each, _LETTERS + 25) for each in (READING, *origins))
        figure.supxlabel(text, x=0.01, ha="left", fontsize=7.5)
        figure.savefig(path, dpi=110, format="png")


def _origin(kind: str, found: Sequence[ShareScaling]) -> str:
    facts = words.origins([each for each in found if each.device_kind == kind])
    told = (f"{term} {text if len(text) < _LONG else text[:_LONG] + '...'}" for term, text in facts)
    return f"{kind}: {'; '.join(told)}"


def svg(scaling: ShareScaling, slo_us: int, name: str) -> str:
    """One variant as an `<svg>` element, whose ids begin with `name`: a page has many."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(2 * _WIDTH, _height(scaling)), layout="constrained")
        _draw(figure, scaling, slo_us)
        return inline(figure, name, panels.COLOURS)


def _height(scaling: ShareScaling) -> float:
    return _HEIGHT * (1 if len(scaling.shares) == 1 else 2)


def _draw(figure: "Figure | SubFigure", scaling: ShareScaling, slo_us: int) -> None:
    """Over batches; below it over shares, where there are several."""
    several = len(scaling.shares) > 1
    axes = figure.subplots(2 if several else 1, 2, squeeze=False)
    panels.throughput_by_batch(axes[0][0], scaling)
    panels.latency_by_batch(axes[0][1], scaling, slo_us)
    if several:
        panels.throughput_by_share(axes[1][0], scaling, slo_us)
        panels.latency_by_share(axes[1][1], scaling, slo_us)
