"""The options of `penstock place`: light to import, as the command line reads them for every verb."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer

from router.commandline.key_env import CA_ENV, KEY_ENV, keep_ca
from router.verbs.report.options import OUTPUT, AsJson, HtmlFile, SvgFile

_ASKED, _DECIDED, _FORETOLD = "What is asked", "How it is decided", "How it is foretold"


@dataclass(frozen=True)
class PlaceOptions:
    """One field an option; the texts are what --help says."""

    config: Annotated[Path, typer.Argument(metavar="CONFIG", help="The settings file.")] = Path(
        "penstock.yaml"
    )
    rates: Annotated[
        list[str],
        typer.Option(
            metavar="MODEL=REQUESTS_A_SECOND,...",
            help="Rates to carry: digits=50,minilm=20. If not given: the rates at a running gateway of"
            " these settings.",
            rich_help_panel=_ASKED,
        ),
    ] = field(default_factory=list)
    rows: Annotated[
        str,
        typer.Option(
            metavar="MODEL=ROWS,...",
            help="Rows of a request of --rates: 4, uniform(1,8), tail(64), or shares 1:0.9+16:0.1. 1 "
            "if not given.",
            rich_help_panel=_ASKED,
        ),
    ] = ""
    trace: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Take the rates from a recording of a gateway (or a folder of them).",
            rich_help_panel=_ASKED,
        ),
    ] = None
    url: Annotated[
        str | None,
        typer.Option(
            metavar="URL",
            help="Take the rates from the gateway at this address. With --apply, change that gateway at its "
            "admin door: http://HOST:PORT or unix:PATH. If not given: the address in the settings.",
            rich_help_panel=_ASKED,
        ),
    ] = None
    key_env: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="The environment variable with the API key, where the gateway needs one.",
            rich_help_panel=_ASKED,
        ),
    ] = KEY_ENV
    ca: Annotated[
        str,
        typer.Option(
            callback=keep_ca,
            metavar="FILE",
            help=f"File (PEM) with the authorities of the gateway's certificate, instead of {CA_ENV}.",
            rich_help_panel=_ASKED,
        ),
    ] = ""
    without: Annotated[
        list[str],
        typer.Option(
            metavar="SLICE,...",
            help="Plan without these slices of the gateway: their cores are lost.",
            rich_help_panel=_ASKED,
        ),
    ] = field(default_factory=list)
    failing: Annotated[
        list[str],
        typer.Option(
            "--not",
            metavar="MODEL@SLICE,...",
            help="Plan without these models on these slices, because their loads fail there.",
            rich_help_panel=_ASKED,
        ),
    ] = field(default_factory=list)
    reserve: Annotated[
        float,
        typer.Option(
            metavar="SHARE",
            help="Reserve beyond the rates: 0.2 plans for 1.2 times the rates.",
            min=0,
            max=10,
            rich_help_panel=_ASKED,
        ),
    ] = 0.2
    attainment: Annotated[
        float,
        typer.Option(
            metavar="SHARE",
            help="Share of each model's requests to answer within its SLO.",
            min=0.01,
            max=0.99999,
            rich_help_panel=_ASKED,
        ),
    ] = 0.99
    horizon_h: Annotated[
        float,
        typer.Option(
            metavar="H",
            help="Hours for which a saving counts. Penstock takes a plan only if it saves more by then"
            " than the move costs.",
            min=0,
            max=8760,
            rich_help_panel=_DECIDED,
        ),
    ] = 1.0
    limit_s: Annotated[
        float,
        typer.Option(
            metavar="S",
            help="Seconds for the solver; the best plan by then counts.",
            min=0.1,
            max=3600,
            rich_help_panel=_DECIDED,
        ),
    ] = 10.0
    in_flight: Annotated[
        int | None,
        typer.Option(
            metavar="N",
            help="Devices to change at once; a twentieth, at least 1, if not given.",
            min=1,
            max=100_000,
            rich_help_panel=_DECIDED,
        ),
    ] = None
    seconds: Annotated[
        float,
        typer.Option(metavar="S", help="Seconds to simulate.", min=1, max=3600, rich_help_panel=_FORETOLD),
    ] = 30.0
    seed: Annotated[
        int,
        typer.Option(metavar="N", help="Seed of the simulated requests.", min=0, rich_help_panel=_FORETOLD),
    ] = 1
    as_json: AsJson = False
    svg: SvgFile = None
    html: HtmlFile = None
    settings: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Write the `slices:` and `models:` that carry the plan out on this machine's CPU; - "
            "prints them.",
            rich_help_panel=OUTPUT,
        ),
    ] = None
    apply: Annotated[
        bool,
        typer.Option(
            "--apply",
            help="Carry the plan out on the running gateway, if it is taken. Ctrl-C rolls back; a "
            "second Ctrl-C leaves the gateway to it.",
            rich_help_panel=OUTPUT,
        ),
    ] = False
