"""The options of `penstock profile`: light to import, as the command line reads them for every verb."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from router.verbs.report.options import OUTPUT, HtmlFile, SvgFile

_WHAT, _HOW = "What is measured", "How"


@dataclass(frozen=True)
class ProfileOptions:
    """One field an option; the texts are what --help says."""

    model: Annotated[
        str, typer.Argument(metavar="MODEL", help="A model's folder, or its name below models/.")
    ] = ""
    variant: Annotated[
        str,
        typer.Option(
            metavar="NAME,...", help="The variant to measure; all if not given.", rich_help_panel=_WHAT
        ),
    ] = ""
    device: Annotated[
        str,
        typer.Option(metavar="NAME", help="The device: cpu, or a GPU such as cuda:0.", rich_help_panel=_WHAT),
    ] = "cpu"
    shares: Annotated[
        str,
        typer.Option(
            metavar="SHARE,...",
            help="Shares of the device: cores of a CPU (1,2), per cent of a GPU by MPS (10,50), or "
            "whole:1. If not given: 1, 2, 4 cores and so on; each tenth of a GPU.",
            rich_help_panel=_WHAT,
        ),
    ] = ""
    batches: Annotated[
        str,
        typer.Option(
            metavar="ROWS,...",
            help="Measure these batch sizes only. If not given: a few, then the most informative ones.",
            rich_help_panel=_WHAT,
        ),
    ] = ""
    processes: Annotated[
        str,
        typer.Option(
            metavar="COUNT,...",
            help="Processes that compute at once in a MIG instance; each number is a share of its own.",
            rich_help_panel=_WHAT,
        ),
    ] = "1"
    colocate: Annotated[
        str,
        typer.Option(
            metavar="MODEL[:VARIANT],...",
            help="Without MODEL: measure how much longer batches of these take side by side. Each has "
            "one core, or the share given.",
            rich_help_panel=_WHAT,
        ),
    ] = ""
    imports: Annotated[
        Path | None,
        typer.Option(
            "--import",
            metavar="FILE.csv",
            help="Keep the profiles of a table: kind, share, batch, p50_ms, p99_ms, or of perf_analyzer or "
            "Model Analyzer.",
            rich_help_panel=_WHAT,
        ),
    ] = None
    kind: Annotated[
        str,
        typer.Option(
            metavar="KIND",
            help="With --import: the kind of device, such as gpu-nvidia-h200, if the table does not say it.",
            rich_help_panel=_WHAT,
        ),
    ] = ""
    few: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Measure N batches of each share and predict the rest from known shares and models of"
            " the device. The file marks them as predicted until they are measured.",
            min=1,
            max=1000,
            rich_help_panel=_WHAT,
        ),
    ] = None
    point_seconds: Annotated[
        float,
        typer.Option(
            metavar="S",
            help="Longest time to measure one batch.",
            min=0.01,
            max=600,
            rich_help_panel=_HOW,
        ),
    ] = 3.0
    longest_ms: Annotated[
        float | None,
        typer.Option(
            metavar="MS",
            help="Skip batches expected to take longer; four times the model's SLO if not given.",
            min=0.01,
            rich_help_panel=_HOW,
        ),
    ] = None
    full: Annotated[
        bool, typer.Option("--full", help="Measure every batch of the fine grid.", rich_help_panel=_HOW)
    ] = False
    again: Annotated[
        bool,
        typer.Option(
            "--again", help="Measure again what is measured, or was interrupted.", rich_help_panel=_HOW
        ),
    ] = False
    allow_noise: Annotated[
        bool,
        typer.Option(
            "--allow-noise",
            help="Measure even where other programs disturb; the file says so.",
            rich_help_panel=_HOW,
        ),
    ] = False
    profiles: Annotated[
        Path, typer.Option(metavar="FOLDER", help="The folder of profiles.", rich_help_panel=OUTPUT)
    ] = Path("profiles")
    show: Annotated[
        bool, typer.Option("--show", help="Measure nothing; show what is known.", rich_help_panel=OUTPUT)
    ] = False
    slo: Annotated[
        float | None,
        typer.Option(
            metavar="MS",
            help="The SLO for the table; the model's own if not given.",
            min=0.01,
            rich_help_panel=OUTPUT,
        ),
    ] = None
    svg: SvgFile = None
    html: HtmlFile = None
