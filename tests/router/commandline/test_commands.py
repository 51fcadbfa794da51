"""A dataclass of options is a command line: what has no default must be given."""

from dataclasses import dataclass, field
from typing import Annotated

import typer
from typer.testing import CliRunner

from router.commandline.commands import command


@dataclass(frozen=True)
class Options:
    """One that must be there, and two that need not."""

    needed: Annotated[str, typer.Option()]
    many: Annotated[list[str], typer.Option()] = field(default_factory=list)
    few: Annotated[int, typer.Option()] = 3


def test_an_option_without_a_default_must_be_given() -> None:
    found: list[Options] = []

    def run(asked: Options) -> int:
        found.append(asked)
        return 7

    app = typer.Typer()
    app.command()(command(Options, run))
    assert CliRunner().invoke(app, []).exit_code == 2
    assert CliRunner().invoke(app, ["--needed", "a", "--many", "b", "--many", "c"]).exit_code == 7
    assert found == [Options("a", ["b", "c"], 3)]
