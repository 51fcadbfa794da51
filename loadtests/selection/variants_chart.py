"""The figures of staircases of load as tables, and as a picture."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from rich.console import Console
from rich.table import Table

from loadtests.harness.pictures import drawn
from loadtests.selection.variants_play import BOTTOM, LADDER, TOP, Turn
from loadtests.selection.variants_scores import Figures, Known
from loadtests.stand.stage import Place

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_GOOD, _BAD, _OTHER = "#2a7f62", "#c8442f", "#5b6fb5"
_COLOURS = {LADDER: _GOOD, TOP: _BAD, BOTTOM: _OTHER}
_RUNGS = ("#1f4e79", "#2a7f62", "#8fbf5a", "#e2a33b", "#c8442f")
_BEST = "#8c8c8c"
_HEADINGS = ("load", "rows/s", "in time", "p99 ms", "by labels", "expected", "at best")


def say(model: str, known: Known, place: Place, console: Console) -> None:
    """Print what the model's variants can do, and on which cores all this runs."""
    rungs = ", ".join(
        f"{name} {known.accuracy[name]:.4f} at {known.capacity[name]:.0f}/s" for name in known.allowed
    )
    console.print(
        f"{model}: {rungs} (accuracy, rows a second); load 1 is {known.full:.0f} rows/s", highlight=False
    )
    console.print(
        f"worker on core {place.worker_core}, gateway and client on core {place.core}", highlight=False
    )


def show(model: str, turns: Sequence[Turn], classes: Sequence[Turn], console: Console) -> None:
    """Print a row for each stair of each turn, its whole, and what was broken."""
    table = Table(title=f"{model}: open loop, up and down; latency from the due time, of answers 200")
    table.add_column("configuration")
    for column in _HEADINGS:
        table.add_column(column, justify="right")
    table.add_column("answered by")
    table.add_column("turned away")
    for turn in turns:
        table.add_section()
        for number, step in enumerate(turn.steps):
            table.add_row("" if number else turn.name, *_cells(step))
        table.add_row("  whole", *_cells(turn.whole), style="bold")
    table.add_section()
    for turn in classes:
        table.add_row(turn.name, *_cells(turn.whole))
    console.print(table)
    for turn in [*turns, *classes]:
        for broken in turn.broken:
            console.print(f"BROKEN: {turn.name}: {broken}", style="bold red", highlight=False, markup=False)
        for void in turn.voids:
            console.print(f"VOID: {turn.name}: {void}", style="bold red", highlight=False, markup=False)


def _cells(one: Figures) -> list[str]:
    count = sum(one.variants.values())
    answered = ", ".join(f"{name} {number / count:.1%}" for name, number in one.variants.items())
    away = ", ".join(f"{number} {ending.rpartition(' ')[2]}" for ending, number in one.turned_away.items())
    return [
        f"{one.load:.1f}", f"{one.rate:.0f}", f"{one.attainment:.2%}", f"{one.p99_ms:.1f}",
        f"{one.accuracy:.4f}", f"{one.expected:.4f}", f"{one.best:.4f}", answered, away,
    ]  # fmt: skip


def draw(found: Mapping[str, tuple[Known, Sequence[Turn]]], path: Path) -> None:
    """Write the PNG; each model gets a column of four panels over the same seconds."""
    with drawn(6.2 * max(len(found), 1), 10.5, path) as figure:
        grid = figure.subplots(4, len(found), squeeze=False, sharex="col")
        for number, (model, (known, turns)) in enumerate(found.items()):
            _loads(grid[0][number], model, turns[0])
            _lines(grid[1][number], turns, lambda step: step.attainment, "answered in time")
            _lines(grid[2][number], turns, lambda step: step.accuracy, "accuracy of answers, by labels")
            _best(grid[2][number], turns)
            _rungs(grid[3][number], known, turns)
            grid[3][number].set_xlabel("seconds (when the request was due)")
        void = any(turn.voids for _, turns in found.values() for turn in turns)
        title = "accuracy gives way to load, and comes back" + ("  VOID" if void else "")
        figure.suptitle(title, color=_BAD if void else "black")


def _edges(steps: Sequence[Figures], value: Callable[[Figures], float]) -> tuple[list[float], list[float]]:
    """Return a line that is level over each stair."""
    at_s = [edge for step in steps for edge in (step.start_s, step.start_s + step.seconds)]
    return at_s, [value(step) for step in steps for _ in range(2)]


def _loads(axes: "Axes", model: str, turn: Turn) -> None:
    axes.plot(*_edges(turn.steps, lambda step: step.load), color="black")
    axes.axhline(1, color=_BEST, ls="--", lw=1)
    axes.set_ylim(bottom=0)
    axes.set_ylabel("load, x top variant")
    axes.set_title(model, loc="left", fontweight="bold")


def _lines(axes: "Axes", turns: Sequence[Turn], value: Callable[[Figures], float], label: str) -> None:
    for turn in turns:
        axes.plot(*_edges(turn.steps, value), color=_COLOURS[turn.name], label=turn.name)
    axes.set_ylabel(label)
    axes.legend(fontsize=7.5, loc="best", framealpha=0.85, edgecolor="none")


def _best(axes: "Axes", turns: Sequence[Turn]) -> None:
    """Draw what the allowed variants can have at these loads, if no request ever waited."""
    axes.plot(
        *_edges(turns[0].steps, lambda step: step.best),
        color=_BEST,
        ls="--",
        label="at best: two variants, no waiting",
    )
    axes.legend(fontsize=7.5, loc="best", framealpha=0.85, edgecolor="none")


def _rungs(axes: "Axes", known: Known, turns: Sequence[Turn]) -> None:
    """Draw which variants answered under the ladder, in shares of the answers, the least accurate at the
    bottom."""
    ladder = next((turn for turn in turns if turn.name == LADDER), turns[0])
    counts = [sum(step.variants.values()) or 1 for step in ladder.steps]
    colours = {name: _RUNGS[rank % len(_RUNGS)] for rank, name in enumerate(known.allowed)}
    names = [name for name in reversed(known.allowed) if name in ladder.whole.variants]
    at_s = _edges(ladder.steps, lambda step: step.load)[0]
    shares = [
        [step.variants.get(name, 0) / count for step, count in zip(ladder.steps, counts, strict=True)
         for _ in range(2)]
        for name in names
    ]  # fmt: skip
    axes.stackplot(at_s, shares, labels=names, colors=[colours[name] for name in names], alpha=0.85)
    axes.set_ylim(0, 1)
    axes.set_ylabel(f"answered by ({ladder.name})")
    axes.legend(fontsize=7.5, loc="best", framealpha=0.85, edgecolor="none")
