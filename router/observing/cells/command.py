"""`penstock cells`: which gateway has which model, for people and for load balancers."""

import json
import sys
from typing import Final, cast

import typer
from rich.console import Console

from router.commandline.reading import RefusedError, UnreachableError, address_of, read_json
from router.observing.cells.body import ALONE, CellsBody
from router.observing.cells.envoy import envoy_config
from router.observing.cells.table import cells_table, fault_line

TABLE, JSON, ENVOY = FORMATS = ("table", "json", "envoy")
PIPE_WIDTH: Final = 1000  # where there is no terminal to ask: wide enough to cut nothing


def show_cells(url: str, form: str, key_env: str) -> int:
    """Print the cells as the gateway at `url` knows them; return the exit code."""
    try:
        body = cast("CellsBody", read_json(address_of(url), "/v2/cells", key_env))
    except RefusedError as error:
        typer.echo(ALONE if error.code == 404 else str(error), err=True)
        return 1
    except (UnreachableError, ValueError) as error:
        typer.echo(str(error), err=True)
        return 1
    if form != TABLE:
        typer.echo(json.dumps(body if form == JSON else envoy_config(body), indent=1))
        return 0
    console = Console(width=None if sys.stdout.isatty() else PIPE_WIDTH)
    if fault := fault_line(body):
        console.print(fault, style="red")
    console.print(cells_table(body))
    said = f"map {body['version']} of {len(body['homes'])} models, decided by cell {body['decided_by']}"
    console.print(said if body["version"] else "no map is decided yet")
    for model, parts in body["homes"].items():
        if len(parts) > 1:
            shares = ", ".join(f"{name} {share:.0%}" for name, share in parts.items())
            console.print(f"{model} is in {len(parts)} cells: {shares}", highlight=False)
    return 0
