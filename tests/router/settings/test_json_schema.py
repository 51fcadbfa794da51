"""The schema for editors allows every file that `penstock check` allows, and no unknown key."""

import json
from pathlib import Path

import jsonschema
import pytest
import yaml

from loadtests.hostile.fuzz.playing import CORPUS
from router.settings.json_schema import schema_of
from router.settings.model_file.schema import ModelFile
from router.settings.values.schema import GatewayFile
from tests.architecture.source_rules import ROOT

SETTINGS, MODEL = schema_of(GatewayFile), schema_of(ModelFile)
PUBLISHED = {"penstock.json": SETTINGS, "model.json": MODEL}
GOOD = [
    *((SETTINGS, path) for path in [ROOT / "penstock.yaml", *sorted(CORPUS.glob("settings/good-*"))]),
    *((MODEL, path) for path in sorted((ROOT / "models").glob("*/model.yaml"))),
    *((MODEL, path) for path in sorted(CORPUS.glob("model/good-*"))),
]


@pytest.mark.parametrize(("schema", "file"), GOOD, ids=[file.name for _, file in GOOD])
def test_good_files_are_allowed(schema: dict[str, object], file: Path) -> None:
    jsonschema.validate(yaml.safe_load(file.read_text("utf-8")), schema)


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        (SETTINGS, "models: [{path: a, slo_sm: 3}]"),
        (SETTINGS, "models: [{path: a, replicas: {mni: 3}}]"),
        (SETTINGS, "models: [{path: a, batching: {policy: slow}}]"),
        (SETTINGS, "models: [{path: a}]\nserver: {rest_prot: 1}"),
        (SETTINGS, "models: [{path: a}]\nslices: [{name: a, cores: 1, spot: maybe}]"),
        (MODEL, "name: a\ninputs: []\noutputs: []\nbatch_max: 1"),
        (MODEL, "name: a"),
    ],
)
def test_mistakes_are_seen(schema: dict[str, object], text: str) -> None:
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(yaml.safe_load(text), schema)


@pytest.mark.parametrize("name", PUBLISHED)
def test_the_published_file_is_the_present_one(name: str) -> None:
    """`penstock schema settings > docs/schema/penstock.json` writes it, and so on."""
    assert json.loads((ROOT / "docs" / "schema" / name).read_text("utf-8")) == PUBLISHED[name]


def test_the_sample_names_its_schema() -> None:
    first = (ROOT / "penstock.yaml").read_text("utf-8").split("\n", 1)[0]
    assert first == "# yaml-language-server: $schema=docs/schema/penstock.json"
