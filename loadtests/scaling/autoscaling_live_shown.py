"""Days that were played live, as a table, as files, and as a picture."""

import csv
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Console
from rich.table import Table

from loadtests.harness.pictures import drawn
from loadtests.scaling.autoscaling_live_trace import Round
from serving.simulation.traffic.patterns import RateStep

if TYPE_CHECKING:
    from matplotlib.axes import Axes

HEADINGS = (
    "model", "provision", "in time", "worst 10 s", "accuracy", "replica-s", "cost", "changes", "most held",
    "answered by", "turned away",
)  # fmt: skip
_COLOURS = ("#2a7f62", "#c8442f", "#8c8c8c", "#5b6fb5")
_BIN_S = 2.0


def show(rounds: Sequence[Round], console: Console) -> None:
    """Show a row for each day, and why not to believe it."""
    table = Table(title="one day, live, open loop; latency from the due time")
    for heading in HEADINGS:
        table.add_column(heading)
    for one in rounds:
        table.add_row(*cells(one))
    console.print(table)
    for one in rounds:
        for void in one.voids:
            console.print(f"VOID: {one.subject}, {one.provision}: {void}", style="bold red", highlight=False)


def cells(one: Round) -> list[str]:
    """Return the cells of the round's row, under HEADINGS."""
    found = one.figures
    answered = sum(found.variants.values())
    by = ", ".join(f"{name} {count / answered:.0%}" for name, count in found.variants.items())
    away = ", ".join(f"{count} {ending.rpartition(' ')[2]}" for ending, count in found.turned_away.items())
    return [
        one.subject, one.provision + (" VOID" if one.voids else ""), f"{found.attainment:.2%}",
        f"{one.worst:.1%}", f"{found.accuracy:.4f}", f"{one.held_s:.0f}", f"{one.cost:.6f}",
        str(one.changes), str(max(each.count for each in one.counts)), by, away or "none",
    ]  # fmt: skip


def write_csv(rounds: Sequence[Round], path: Path) -> None:
    """Write the table as CSV, with a heading."""
    with path.open("w", newline="") as file:
        csv.writer(file).writerows([HEADINGS, *map(cells, rounds)])


def write_markdown(rounds: Sequence[Round], path: Path) -> None:
    """Write the table as it stands in documents."""
    rules = ["---", "---", *["---:"] * 7, "---", "---"]
    rows = [HEADINGS, rules, *map(cells, rounds)]
    path.write_text("".join(f"| {' | '.join(row)} |\n" for row in rows))


def draw(rounds: Sequence[Round], steps: Mapping[str, Sequence[RateStep]], path: Path) -> None:
    """Write the PNG; each model gets a column: what was asked, slices held, and the share in time."""
    with drawn(6.4 * max(len(steps), 1), 7.6, path) as figure:
        grid = figure.subplots(3, len(steps), squeeze=False, sharex="col")
        for column, (name, asked) in enumerate(steps.items()):
            own = {one.provision: one for one in rounds if one.subject == name}  # the last of each
            _asked(grid[0][column], name, asked)
            span_s = sum(step.seconds for step in asked)
            for (provision, one), colour in zip(own.items(), _COLOURS, strict=False):
                _held(grid[1][column], one, provision, span_s, colour)
                _in_time(grid[2][column], one, provision, span_s, colour)
            grid[1][column].legend(fontsize=7.5, framealpha=0.85, edgecolor="none")
            grid[2][column].set_xlabel("seconds of the day (when the request was due)")
        void = any(one.voids for one in rounds)
        figure.suptitle("replicas follow a day in minutes" + ("  VOID" if void else ""))


def _asked(axes: "Axes", name: str, steps: Sequence[RateStep]) -> None:
    ends_s = np.cumsum([step.seconds for step in steps]).tolist()
    axes.stairs([step.rate for step in steps], [0.0, *ends_s], color="black", baseline=None)
    axes.set_ylim(bottom=0)
    axes.set_ylabel("requests/s asked")
    axes.set_title(name, loc="left", fontweight="bold")


def _held(axes: "Axes", one: Round, label: str, span_s: float, colour: str) -> None:
    at_s = [max(each.at_s, 0.0) for each in one.counts if each.at_s < span_s]
    counts = [each.count for each in one.counts if each.at_s < span_s]
    axes.step([*at_s, span_s], [*counts, counts[-1]], where="post", color=colour, label=label)
    axes.set_ylim(bottom=0)
    axes.set_ylabel("slices held")


def _in_time(axes: "Axes", one: Round, label: str, span_s: float, colour: str) -> None:
    edges = np.arange(0.0, span_s + _BIN_S, _BIN_S)
    offered, _ = np.histogram(one.offered, edges)
    good, _ = np.histogram(one.good, edges)
    share = np.divide(good, offered, out=np.full(len(offered), np.nan), where=offered > 0)
    axes.plot(edges[:-1], share, color=colour, lw=1, label=label)
    axes.set_ylabel("share in time")
