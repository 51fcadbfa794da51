"""Where the verbs that ask a gateway find their API key: light to import, as the command line reads it."""

from typing import Annotated, Final

import typer

KEY_ENV: Final = "PENSTOCK_KEY"
"""The environment variable in which the verbs that ask a gateway look for an API key."""

KeyEnvOption = Annotated[
    str, typer.Option("--key-env", help="The environment variable with the API key, where one is needed.")
]
