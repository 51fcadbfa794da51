"""The options of `penstock profile`: light to import, as the command line reads them for every verb."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from router.report.options import OUTPUT, HtmlFile, PngFile

_WHAT, _HOW = "What is measured", "How"


@dataclass(frozen=True)
class Options:
    """One field an option; the texts are what --help says."""

    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="A model's folder, or its name below models/.")
    ] = ""
    variant: Annotated[
        str, typer.Option(metavar="NAME,...", help="All of them, if not given.", rich_help_panel=_WHAT)
    ] = ""
    device: Annotated[
        str, typer.Option(metavar="NAME", help="cpu, or a GPU: cuda:0.", rich_help_panel=_WHAT)
    ] = "cpu"
    shares: Annotated[
        str,
        typer.Option(
            metavar="SHARE,...",
            help="Of the device: cores of a CPU (1,2), per cent of a GPU by MPS (10,50), or whole:1. "
            "If not given: one core, doubled up to all; of a GPU each tenth.",
            rich_help_panel=_WHAT,
        ),
    ] = ""
    batches: Annotated[
        str,
        typer.Option(
            metavar="ROWS,...",
            help="These batches only. If not given: a few, then those that tell most.",
            rich_help_panel=_WHAT,
        ),
    ] = ""
    processes: Annotated[
        str,
        typer.Option(
            metavar="COUNT,...",
            help="Processes that compute at once on the share; kept as the profile's streams.",
            rich_help_panel=_WHAT,
        ),
    ] = "1"
    colocate: Annotated[
        str,
        typer.Option(
            metavar="MODEL[:VARIANT],...",
            help="Instead, without MODEL: how much longer batches of these take beside each other, "
            "each on one core, or on the share given.",
            rich_help_panel=_WHAT,
        ),
    ] = ""
    few: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Measure N batches of each share only and predict the rest from the other shares and models "
            "that are known of the device; kept as predicted, until it is measured.",
            min=1,
            max=1000,
            rich_help_panel=_WHAT,
        ),
    ] = None
    point_seconds: Annotated[
        float,
        typer.Option(
            metavar="S",
            help="The longest that one batch is measured.",
            min=0.01,
            max=600,
            rich_help_panel=_HOW,
        ),
    ] = 3.0
    longest_ms: Annotated[
        float | None,
        typer.Option(
            metavar="MS",
            help="No batch that should take longer; four times the model's SLO, if not given.",
            min=0.01,
            rich_help_panel=_HOW,
        ),
    ] = None
    full: Annotated[
        bool, typer.Option("--full", help="Every batch of the fine grid.", rich_help_panel=_HOW)
    ] = False
    again: Annotated[
        bool,
        typer.Option(
            "--again", help="Measure anew what is measured, or was interrupted.", rich_help_panel=_HOW
        ),
    ] = False
    allow_noise: Annotated[
        bool,
        typer.Option(
            "--allow-noise", help="Measure even where others disturb; the file says so.", rich_help_panel=_HOW
        ),
    ] = False
    profiles: Annotated[
        Path, typer.Option(metavar="FOLDER", help="Where profiles are kept.", rich_help_panel=OUTPUT)
    ] = Path("profiles")
    show: Annotated[
        bool, typer.Option("--show", help="Measure nothing, show what is known.", rich_help_panel=OUTPUT)
    ] = False
    slo: Annotated[
        float | None,
        typer.Option(
            metavar="MS",
            help="The promise that the table looks at; the model's own, if not given.",
            min=0.01,
            rich_help_panel=OUTPUT,
        ),
    ] = None
    png: PngFile = None
    html: HtmlFile = None
