"""Options that verbs with reports share: light to import, as the command line reads them for every verb."""

from pathlib import Path
from typing import Annotated

import typer

OUTPUT = "What comes out"
"""The panel of --help that they stand in."""

SvgFile = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Write the pictures into one SVG.", rich_help_panel=OUTPUT)
]
HtmlFile = Annotated[
    Path | None,
    typer.Option(
        metavar="FILE", help="Write a page in one file: words, table, pictures.", rich_help_panel=OUTPUT
    ),
]
AsJson = Annotated[
    bool, typer.Option("--json", help="Print the results as JSON, and nothing else.", rich_help_panel=OUTPUT)
]
