"""Commands and settings that the pages show are ones that there are."""

import re
from pathlib import Path

import pytest
import typer
import yaml

from router.cli import app
from router.settings import SettingsError, load_model, load_settings
from router.settings.model_file.folders import MODEL_FILE
from router.settings.model_file.schema import ModelFile
from router.settings.values.schema import GatewayFile

ROOT = Path(__file__).parents[2]
PAGES = sorted((*(ROOT / "docs").glob("*.md"), ROOT / "README.md"))
COMMAND = re.compile(r"(?:penstock|-m router\.cli|gateway) ([a-z]+)\b((?: +(?:'[^'\n]*'|[^\s'`|;&)]+))*)")


def commands() -> dict[str, set[str]]:
    """The options of each command."""
    group = typer.main.get_command(app)
    assert isinstance(group, typer.core.TyperGroup)
    return {
        name: {
            option
            for verb in getattr(command, "commands", {"": command}).values()
            for param in verb.params
            for option in (*param.opts, *param.secondary_opts)
        }
        for name, command in group.commands.items()
    }


def shown(page: Path) -> list[tuple[str, list[str]]]:
    """(command, options) of each that is written as code."""
    text = page.read_text("utf-8")
    code = re.findall(r"^```\w*\n(.*?)^```", text, re.MULTILINE | re.DOTALL) + re.findall(
        r"`([^`\n]+)`", text
    )
    known = commands()
    return [
        (name, re.findall(r"(?<!\S)--[a-z][\w-]*", rest))
        for part in code
        for name, rest in COMMAND.findall(part)
        if name in known or part.startswith(f"penstock {name}")
    ]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_commands_have_the_options_that_are_shown(page: Path) -> None:
    known = commands()
    wrong = [
        (name, option)
        for name, options in shown(page)
        for option in options or [""]
        if name not in known or (option and option not in known[name])
    ]
    assert wrong == []


def test_commands_are_found_in_the_pages() -> None:
    found = {name for page in PAGES for name, _ in shown(page)}
    assert {"serve", "check", "simulate", "profile", "place", "explain", "status"} <= found


def settings() -> list[tuple[str, str]]:
    """(page, text) of each block of YAML that is one of settings, or a part; or of a model.yaml."""
    blocks = [
        (page.name, text)
        for page in PAGES
        for text in re.findall(r"^```yaml\n(.*?)^```", page.read_text("utf-8"), re.MULTILINE | re.DOTALL)
    ]
    parsed = [(name, text, yaml.safe_load(text)) for name, text in blocks]
    return [(name, text) for name, text, value in parsed if isinstance(value, dict)]


@pytest.mark.parametrize(("page", "text"), settings(), ids=lambda each: each[:20].replace("\n", " "))
def test_settings_that_are_shown_have_keys_that_there_are(tmp_path: Path, page: str, text: str) -> None:
    of_a_model = text.startswith(f"# {MODEL_FILE}")
    known = ModelFile if of_a_model else GatewayFile
    assert set(yaml.safe_load(text)) <= set(known.model_fields), page
    path = tmp_path / (MODEL_FILE if of_a_model else "penstock.yaml")
    path.write_text(text)
    try:
        if of_a_model:
            load_model(tmp_path)
        else:
            load_settings(path)
    except SettingsError as error:  # its models are not here
        wrong = [str(problem) for problem in error.problems]
    else:
        wrong = []
    assert [each for each in wrong if "unknown key" in each or "not a" in each] == []
