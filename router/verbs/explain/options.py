"""The options of `penstock explain`: light to import, as the command line reads them for every verb."""

from dataclasses import dataclass
from typing import Annotated

import typer

from router.commandline.key_env import KEY_ENV, CaOption, KeyEnvOption


@dataclass(frozen=True)
class ExplainOptions:
    """One field an option; the texts are what --help says."""

    model: Annotated[str, typer.Argument(metavar="MODEL", help="A model that is served.")] = ""
    url: Annotated[str, typer.Option(help="The gateway's REST address.")] = "http://127.0.0.1:8000"
    tier: Annotated[str, typer.Option(help="The tier to explain; the model's own promise if not given.")] = ""
    request: Annotated[
        str, typer.Option(metavar="ID", help="A request by its x-request-id, id or number, or: last.")
    ] = ""
    requests: Annotated[
        bool, typer.Option("--requests", help="List the latest requests that were late, refused or failed.")
    ] = False
    as_json: Annotated[bool, typer.Option("--json", help="Print the figures as JSON.")] = False
    key_env: KeyEnvOption = KEY_ENV
    ca: CaOption = ""
