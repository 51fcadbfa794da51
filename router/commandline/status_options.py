"""The options of `penstock status`: light to import, as the command line reads them for every verb."""

from dataclasses import dataclass
from typing import Annotated

import typer

from router.commandline.key_env import KEY_ENV, CaOption, KeyEnvOption


@dataclass(frozen=True)
class StatusOptions:
    """One field an option; the texts are what --help says."""

    url: Annotated[str, typer.Option(help="The gateway's REST address.")] = "http://127.0.0.1:8000"
    interval: Annotated[float, typer.Option(help="Seconds between two readings.", min=0.1)] = 1.0
    once: Annotated[bool, typer.Option("--once", help="Print one table and end.")] = False
    as_json: Annotated[bool, typer.Option("--json", help="Print the status once, as JSON.")] = False
    events: Annotated[bool, typer.Option("--events", help="Print what happened, and end.")] = False
    key_env: KeyEnvOption = KEY_ENV
    ca: CaOption = ""
