"""The options of `penstock doctor`: light to import, as the command line reads them for every verb."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer


@dataclass(frozen=True)
class DoctorOptions:
    """One field an option; the texts are what --help says."""

    config: Annotated[
        Path | None,
        typer.Option(
            "--config",
            "-c",
            metavar="FILE",
            help="The settings file. If not given: penstock.yaml, if it is there.",
        ),
    ] = None
    as_json: Annotated[bool, typer.Option("--json", help="Print the findings as JSON.")] = False
