"""The options of `penstock serve`: light to import, as the command line reads them for every verb."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import typer

from router.verbs.target.errors import MODELS

ConfigOption = Annotated[Path, typer.Option("--config", "-c", help="The settings file.")]
NameOption = Annotated[str | None, typer.Option(help="Serve MODEL under this name.")]
HostOption = Annotated[str | None, typer.Option(help="Listen on this address; 0.0.0.0 for other machines.")]
PortOption = Annotated[
    int | None,
    typer.Option(help="Use this port instead of the settings' port; 0: any free port.", min=0, max=65535),
]


LevelOption = Annotated[
    str | None, typer.Option(help="debug, info, warning or error, instead of the settings' logging.level.")
]
FormatOption = Annotated[
    str | None, typer.Option(help="text or json (one object a line), instead of logging.format.")
]
RehearseOption = Annotated[
    bool,
    typer.Option(
        "--rehearse", help="Rehearse all GPUs: no model is loaded, answers come when the profiles say."
    ),
]


TargetArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="MODEL",
        help=f"One model: {MODELS}.",
    ),
]
SloOption = Annotated[str | None, typer.Option(help="The SLO of MODEL, such as 50ms; else one is derived.")]
DimOption = Annotated[
    list[str], typer.Option(help="The usual size of a free dimension of MODEL, such as seq=128; repeatable.")
]
SaveOption = Annotated[Path | None, typer.Option(help="Write the settings of MODEL into this new file.")]
PythonOption = Annotated[
    Path | None, typer.Option(help="Run MODEL in this Python, which needs numpy and orjson.")
]


RequirementsOption = Annotated[
    Path | None, typer.Option(metavar="FILE", help="Run MODEL with these packages, installed once by pip.")
]
ReloadOption = Annotated[bool, typer.Option("--reload", help="Load a model again when its files change.")]


@dataclass(frozen=True, slots=True)
class TargetOptions:
    """What the command line says of a model without settings: `--slo`, `--dim`, `--save`, `--python`,
    `--requirements` and `--name`, as it says it."""

    slo: str | None = None
    dims: Sequence[str] = ()
    save: Path | None = None
    python: Path | None = None
    requirements: Path | None = None
    name: str | None = None


@dataclass(frozen=True)
class ServeOptions:
    """What the command line says in place of the settings; None: nothing."""

    target: TargetArgument = None
    config: ConfigOption = Path("penstock.yaml")
    name: NameOption = None
    slo: SloOption = None
    dim: DimOption = field(default_factory=list)
    save: SaveOption = None
    python: PythonOption = None
    requirements: RequirementsOption = None
    host: HostOption = None
    rest_port: PortOption = None
    grpc_port: PortOption = None
    metrics_port: PortOption = None
    admin_port: PortOption = None
    log_level: LevelOption = None
    log_format: FormatOption = None
    rehearse: RehearseOption = False
    reload: ReloadOption = False

    @property
    def of_target(self) -> TargetOptions:
        """What it says of one model without settings."""
        return TargetOptions(self.slo, tuple(self.dim), self.save, self.python, self.requirements, self.name)
