"""The page of keys: every key once, with its meaning, and the defaults that the gateway uses."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from router.cli import app
from router.settings.json_schema import MEANINGS, Json, schema_of
from router.settings.keys_page import page
from router.settings.model_file.schema import ModelFile
from router.settings.values.schema import GatewayFile
from serving.values.specs import Limits
from tests.architecture.source_rules import ROOT

PAGES = {"settings": ROOT / "docs" / "keys.md", "model": ROOT / "docs" / "model-keys.md"}


@pytest.mark.parametrize("of", PAGES)
def test_the_page_in_docs_is_the_present_one(of: str) -> None:
    """`penstock schema settings --markdown > docs/keys.md` writes it; of model, docs/model-keys.md."""
    ended = CliRunner().invoke(app, ["schema", of, "--markdown"])
    assert ended.exit_code == 0, ended.output
    assert ended.output == PAGES[of].read_text("utf-8")


def test_each_meaning_is_of_a_key_and_each_key_of_the_schemas_has_one() -> None:
    found = {name: set(section["properties"]) for name, section in sections().items()}
    assert {name: set(keys) for name, keys in MEANINGS.items()} == found


def sections() -> dict[str, Json]:
    found: dict[str, Json] = {}
    for root in (GatewayFile, ModelFile):
        schema = schema_of(root)
        found |= {root.__name__: schema}
        found |= {name: each for name, each in schema["$defs"].items() if "properties" in each}
    return found


def test_defaults_are_those_of_the_values_behind_a_section() -> None:
    shown = page(schema_of(GatewayFile), "settings", "penstock.yaml")
    limits = Limits()
    assert f"| `body_mb` | number, 0.001 to 1,048,576 | {limits.body_bytes >> 20} |" in shown
    assert f"| `stall_s` | number, above 0 to 86,400 | {limits.stall_us / 1e6:g} |" in shown
    assert "| `rest_port` | whole, 0 to 65,535 | 8000 |" in shown


def test_editors_show_the_meaning_of_a_key() -> None:
    schema = json.loads(Path(ROOT / "docs" / "schema" / "penstock.json").read_text("utf-8"))
    assert schema["$defs"]["ServerSection"]["properties"]["rest_port"]["description"].startswith("The port")
