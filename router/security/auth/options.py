"""The options of `penstock key new`: light to import, as the command line reads them for every verb."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

KeysOption = Annotated[
    Path | None, typer.Option("--keys", help="The keys file, instead of the one that the settings name.")
]


@dataclass(frozen=True)
class KeyOptions:
    """One field an option; the texts are what --help says. Lists have commas between their names."""

    name: Annotated[str, typer.Option(help="Name of the key in logs and in `penstock key revoke`.")]
    tenant: Annotated[str, typer.Option(help="Tenant of its requests; default if not given.")] = ""
    roles: Annotated[str, typer.Option(metavar="ROLE,...", help="Roles: infer, read, admin.")] = "infer"
    models: Annotated[
        str, typer.Option(metavar="MODEL,...", help="The only models that it may use; all if not given.")
    ] = ""
    tiers: Annotated[
        str, typer.Option(metavar="TIER,...", help="The only tiers that it may ask for; all if not given.")
    ] = ""
    certificate: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="Add an entry for a client's certificate instead: DNS:..., URI:... or CN=...",
        ),
    ] = ""
    expires: Annotated[
        str, typer.Option(metavar="DATE", help="Date when it expires (2027-01-31); never if not given.")
    ] = ""
    config: Annotated[Path, typer.Option("--config", "-c", help="The settings file.")] = Path("penstock.yaml")
    keys: KeysOption = None
