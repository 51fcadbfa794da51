"""Options that verbs with reports share: light to import, as the command line reads them for every verb."""

from pathlib import Path
from typing import Annotated

import typer

OUTPUT = "What comes out"
"""The panel of --help that they stand in."""

PngFile = Annotated[
    Path | None, typer.Option(metavar="FILE", help="The pictures, in one PNG.", rich_help_panel=OUTPUT)
]
HtmlFile = Annotated[
    Path | None,
    typer.Option(metavar="FILE", help="A page in one file: words, table, pictures.", rich_help_panel=OUTPUT),
]
AsJson = Annotated[
    bool, typer.Option("--json", help="The results as JSON, and nothing else.", rich_help_panel=OUTPUT)
]
