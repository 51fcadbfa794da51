"""The options of `penstock import`: light to import, as the command line reads them for every verb."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer


@dataclass(frozen=True)
class ImportOptions:
    """One field an option; the texts are what --help says."""

    triton: Annotated[Path | None, typer.Option(metavar="REPOSITORY", help="Triton's model repository.")] = (
        None
    )
    to: Annotated[Path, typer.Option(metavar="FOLDER", help="A new folder, for the settings.")] = Path(
        "penstock"
    )
    server: Annotated[
        str,
        typer.Option(
            metavar="HOST:PORT",
            help="The gRPC port of a Triton that runs. It computes the models that Penstock cannot load.",
        ),
    ] = ""
    slo: Annotated[
        str,
        typer.Option(help="The SLO of models without a timeout in their queue: 100ms. Else it is derived."),
    ] = ""
    torchserve: Annotated[
        Path | None, typer.Option(metavar="FILE", help="A model archive of TorchServe: FILE.mar.")
    ] = None
    example: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="A body that TorchServe's handler takes, to measure with."),
    ] = None
