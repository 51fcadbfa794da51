"""The options of `penstock rollout predict`: light to import, as the command line reads all verbs."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer

from router.commandline.key_env import KEY_ENV, CaOption, KeyEnvOption


@dataclass(frozen=True)
class PredictOptions:
    """One field an option; the texts are what --help says."""

    model: Annotated[str, typer.Argument(metavar="MODEL", help="The model that has a candidate.")] = ""
    config: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Settings with a candidate that no gateway has yet, computed here."
        ),
    ] = None
    rates: Annotated[
        list[str],
        typer.Option(
            metavar="MODEL=RATE,...", help="Requests a second; what the gateway is asked now if not given."
        ),
    ] = field(default_factory=list)
    rows: Annotated[
        str,
        typer.Option(
            metavar="MODEL=ROWS,...", help="With --config and --rates: rows of a request; 1 if not given."
        ),
    ] = ""
    url: Annotated[str, typer.Option(help="The gateway's REST address.")] = "http://127.0.0.1:8000"
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False
    key_env: KeyEnvOption = KEY_ENV
    ca: CaOption = ""
