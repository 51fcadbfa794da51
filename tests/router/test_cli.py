"""What the command line refuses before anything starts."""

import gc
from importlib.metadata import version
from pathlib import Path

import pytest
from typer.testing import CliRunner

from router.cli import app

VERBS = ["serve", "check", "status", "explain", "simulate", "profile", "place", "doctor"]


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_is_listed_and_explains_itself(verb: str) -> None:
    listed = CliRunner().invoke(app, ["--help"])
    assert f" {verb} " in listed.output
    explained = CliRunner().invoke(app, [verb, "--help"])
    assert explained.exit_code == 0
    assert f"Usage: penstock {verb} " in explained.output.replace("root ", "penstock ")


@pytest.mark.parametrize("verb", VERBS)
def test_help_is_short_too_and_shows_no_value_where_none_is_taken(verb: str) -> None:
    asked = CliRunner().invoke(app, [verb, "-h"])
    assert asked.exit_code == 0
    assert asked.output == CliRunner().invoke(app, [verb, "--help"]).output
    assert "<bool>" not in asked.output + CliRunner().invoke(app, ["-h"]).output


def test_the_version_is_said() -> None:
    said = CliRunner().invoke(app, ["--version"])
    assert (said.exit_code, said.output) == (0, f"penstock {version('penstock')}\n")


def test_a_start_that_is_refused_leaves_the_collector_on(tmp_path: Path) -> None:
    assert CliRunner().invoke(app, ["serve", "--config", str(tmp_path / "absent.yaml")]).exit_code == 1
    assert gc.isenabled()


@pytest.mark.parametrize("option", ["--rest-port", "--grpc-port", "--metrics-port", "--admin-port"])
@pytest.mark.parametrize("port", ["65536", "-1", "http"])
def test_what_is_no_port_is_refused_and_not_wrapped_to_another(option: str, port: str) -> None:
    ended = CliRunner().invoke(app, ["serve", "--config", "absent.yaml", option, port])
    assert ended.exit_code == 2
    assert f"'{option}'" in ended.output
