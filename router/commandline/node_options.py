"""The options of `penstock node`: light to import, as the command line reads them for every verb."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import typer

from router.commandline.key_env import CaOption
from serving.values.nodes import TOKEN_ENV


@dataclass(frozen=True)
class NodeOptions:
    """One field an option; the texts are what --help says."""

    join: Annotated[
        str,
        typer.Option(
            metavar="HOST:PORT,...",
            help="The gateway's door for nodes; it prints where that is. Of several, it joins the first "
            "there.",
        ),
    ]
    name: Annotated[
        str | None, typer.Option(help="The node's name in `slices:`; this machine's name if not given.")
    ] = None
    token_env: Annotated[str, typer.Option(help="The environment variable with the token of `nodes:`.")] = (
        TOKEN_ENV
    )
    cache: Annotated[
        Path | None,
        typer.Option(help="The folder of model files; penstock/ in the user's cache if not given."),
    ] = None
    cache_gb: Annotated[
        float, typer.Option(help="What model files that are not in use may take there.", min=0.0)
    ] = 50.0
    leave_s: Annotated[
        float, typer.Option(help="Seconds for the gateway to use others before this node ends.", min=0.0)
    ] = 5.0
    ray: Annotated[
        str | None,
        typer.Option(metavar="ADDRESS", help="Keep an agent on each node of this Ray cluster, such as auto."),
    ] = None
    ray_cpus: Annotated[
        float, typer.Option(help="What each agent takes of its node's CPUs, as Ray counts.", min=0.0)
    ] = 0.0
    ray_gpus: Annotated[
        float, typer.Option(help="What each agent takes of its node's GPUs; it sees these alone.", min=0.0)
    ] = 0.0
    as_needed: Annotated[
        bool,
        typer.Option(
            "--as-needed",
            help="With --ray: only the agents that the gateway needs. Ray's autoscaler brings machines. "
            "--name NAME: of NAME-1, NAME-2 and so on.",
        ),
    ] = False
    idle_s: Annotated[
        float, typer.Option(help="With --as-needed: seconds before an agent ends without need.", min=0.0)
    ] = 60.0
    stay: Annotated[
        bool,
        typer.Option(
            "--stay", help="With --ray: SIGTERM leaves the agents as they are, for the next such command."
        ),
    ] = False
    follow: Annotated[bool, typer.Option("--follow", hidden=True)] = False
    tls: Annotated[
        bool, typer.Option("--tls", help="The gateway's ports are encrypted; --ca implies it.")
    ] = False
    ca: CaOption = ""
    cert: Annotated[
        Path | None,
        typer.Option(help="File (PEM) with this node's certificate and key, if the gateway asks."),
    ] = None
