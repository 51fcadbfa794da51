"""Where the verbs that ask a gateway find their API key and certificates: light to import, as the command
line reads it."""

import os
from typing import Annotated, Final

import typer

KEY_ENV: Final = "PENSTOCK_KEY"
"""The environment variable in which the verbs that ask a gateway look for an API key."""

CA_ENV: Final = "PENSTOCK_CA"
"""The environment variable that names the file with the authorities that may sign a gateway's certificate."""

CLIENT_CERT_ENV: Final = "PENSTOCK_CLIENT_CERT"
"""The environment variable that names a PEM file: the certificate that those verbs show, and its key."""


def keep_ca(file: str) -> str:
    """Put what `--ca` says in the place of CA_ENV, where the verbs look for it."""
    if file:
        os.environ[CA_ENV] = file
    return file


CaOption = Annotated[
    str,
    typer.Option(
        "--ca",
        callback=keep_ca,
        metavar="FILE",
        help=f"File (PEM) with the authorities of the gateway's certificate, instead of {CA_ENV}.",
    ),
]

KeyEnvOption = Annotated[
    str, typer.Option("--key-env", help="The environment variable with the API key, where one is needed.")
]
