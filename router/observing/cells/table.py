"""The cells as a table."""

from typing import Final

from rich.box import SIMPLE_HEAD
from rich.markup import escape
from rich.table import Table

from router.observing.cells.body import CellBody, CellsBody

NAMED_MAX: Final = 4
"""Models of a cell that are named; of more, their count is."""


def cells_table(body: CellsBody) -> Table:
    """Return a row of each cell: where it is, what it has, and whether it can be called."""
    table = Table("cell", "REST", "models", box=SIMPLE_HEAD, padding=(0, 2, 0, 0))
    for name in ("slices", "busy", "passed on", "trip ms"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("state")
    for cell in body["cells"]:
        table.add_row(
            escape(cell["name"]),
            escape(cell["rest"] or "-"),
            escape(_models(cell)),
            f"{cell['slices']:g}",
            f"{cell['work']:.1f}",
            f"{cell['passed']:,}",
            f"{cell['trip_us'] / 1000:.2f}" if cell["trip_us"] else "-",
            _state(cell, own=cell["name"] == body["name"]),
        )
    return table


def fault_line(body: CellsBody) -> str:
    """Return why this cell does not meet the others; "" if it does."""
    return f"cell {body['name']} {body['fault']}" if body["fault"] else ""


def _models(cell: CellBody) -> str:
    names = cell["models"]
    left = f" and {len(names) - NAMED_MAX} more" if len(names) > NAMED_MAX else ""
    return ", ".join(names[:NAMED_MAX]) + left if names else "-"


def _state(cell: CellBody, *, own: bool) -> str:
    if not cell["slices"]:
        return "[yellow]leaves[/]"
    if own:
        return "[green]here[/]"
    return f"[red]{escape(cell['reason'])}[/]" if cell["reason"] else "[green]connected[/]"
