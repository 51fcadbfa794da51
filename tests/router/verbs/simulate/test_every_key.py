"""No key of penstock.yaml is forgotten: docs/scheduling.md says what becomes of each in a simulation."""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

from pydantic import BaseModel

from router.settings.door import tls
from router.settings.machine import nodes, placement, prices
from router.settings.model_file import schema as model_file
from router.settings.served import cells, tenants
from router.settings.values import schema
from tests.router.verbs.simulate.conftest import GATEWAY, Simulate

PAGE = Path(__file__).parents[4] / "docs" / "scheduling.md"
HEADING = "## What of `penstock.yaml` is simulated"
BECOMES = ("played", "cannot change a figure", "announced")

SECTIONS: Mapping[str, type[BaseModel]] = {
    "server": schema.ServerSection,
    "server.tls": tls.TlsSection,
    "admin": schema.AdminSection,
    "limits": schema.LimitsSection,
    "slices": schema.SliceSection,
    "models": schema.ServedSection,
    "models.batching": schema.BatchingSection,
    "models.tiers": schema.NeedsSection,
    "models.selection": schema.SelectionSection,
    "models.rollout": schema.RolloutSection,
    "models.replicas": schema.ReplicasSection,
    "models.guards": schema.GuardSection,
    "devices": schema.DeviceSection,
    "devices.rehearse": schema.RehearseSection,
    "prices": prices.PriceSection,
    "nodes": nodes.NodesSection,
    "cells": cells.CellsSection,
    "scaling": schema.ScalingSection,
    "placement": placement.PlacementSection,
    "mig": placement.MigSection,
    "tenants": tenants.TenantSection,
    "tenants.rate": tenants.RateSection,
    "tiers": schema.TierSection,
    "profiles": schema.ProfilesSection,
    "recording": schema.RecordingSection,
    "logging": schema.LoggingSection,
    "tracing": schema.TracingSection,
    "workers": schema.WorkersSection,
    "auth": schema.AuthSection,
    "repository": schema.RepositorySection,
    "cache": schema.CacheSection,
    "cache.redis": schema.RedisSection,
}
"""Where each section of the schema stands in the file."""
SHORT = {"models.tiers", "models.replicas", "models.guards", "devices.rehearse", "cache.redis"}
"""Sections that may be one value, or hold names of their own: the key itself has a meaning, too."""
OF_A_MODEL = {
    model_file.TensorSection, model_file.InputSection, model_file.OutputSection, model_file.VariantSection,
    model_file.AccuracySection, model_file.ValidationSection, model_file.SizeHintSection,
    model_file.ParameterSection, model_file.PrioritiesSection, model_file.ModelFile,
}  # fmt: skip
"""Those of model.yaml, which says what a model is."""


def keys() -> Iterator[str]:
    for place, section in SECTIONS.items():
        for name in section.model_fields:
            key = f"{place}.{name}"
            if key in SHORT or key not in SECTIONS:
                yield key


def rows() -> dict[str, str]:
    """What the page says, by key."""
    table = PAGE.read_text().split(HEADING)[1].split("\n## ")[0]
    found: dict[str, str] = {}
    for line in table.splitlines():
        if line.startswith("| `"):
            named, becomes = line.strip("| ").split(" | ", 1)
            for key in re.findall(r"`([a-z_.]+)`", named):
                assert key not in found, f"{key} is there twice"
                found[key] = becomes
    return found


def test_every_section_of_the_file_has_its_place_here() -> None:
    modules = (schema, placement, tenants, tls, nodes, cells, prices)
    there = [each for module in modules for each in vars(module).values()]
    sections = {each for each in there if isinstance(each, type) and issubclass(each, schema.Section)}
    assert sections - OF_A_MODEL - {schema.Section, schema.GatewayFile} == set(SECTIONS.values())
    assert set(schema.GatewayFile.model_fields) == {place for place in SECTIONS if "." not in place}


def test_the_page_says_of_every_key_what_becomes_of_it() -> None:
    assert sorted(rows()) == sorted(keys())
    for key, becomes in rows().items():
        assert becomes.startswith(BECOMES), f"{key}: {becomes}"


def test_what_the_page_calls_announced_is_named_in_the_first_line(simulate: Simulate, home: Path) -> None:
    announced = {key for key, becomes in rows().items() if "announced" in becomes}
    firsts = {
        key.split(".")[0] if key.startswith("cache") else ".".join(key.split(".")[:2]) for key in announced
    }
    told = {"cache", "models.cache", "models.selection", "models.isolate", "models.path", "slices.spot"}
    assert firsts == told
    lent = GATEWAY.replace("cores: 1", "cores: 1, spot: true") + "cache:\n"
    lent = lent.replace("default_variant: linear}", "default_variant: linear, isolate: always}")
    (home / "lent.yaml").write_text(lent)
    with (home / "models" / "minilm" / "model.yaml").open("a") as spec:
        spec.write("sequence: {strategy: oldest}\n")
    ended = simulate("--rate", "digits=5", "--rate", "minilm=1", config="lent.yaml")
    assert ended.exit_code == 0, ended.output
    first = " ".join(ended.stdout.split("Batches take")[0].split())
    assert first == (
        "Not simulated: cache of digits: every request is computed; sequences of minilm: each request stands "
        "for itself; isolate of digits: models of a slice share one process, and compute in turn; "
        "spot of cpu-a: none is taken away (--spot has it so)."
    )


def test_where_nothing_is_left_out_nothing_is_announced(simulate: Simulate) -> None:
    ended = simulate("--rate", "digits=5")
    assert ended.exit_code == 0, ended.output
    assert ended.stdout.startswith("Batches take")
