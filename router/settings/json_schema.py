"""JSON Schema of `penstock.yaml` and `model.yaml`, for editors: names, types and bounds of all keys.

A file that the schema allows may still be wrong, as `penstock check` says. A file that `check`
allows is right by the schema too.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from pydantic import BaseModel

from router.settings.door.tls import TlsSection
from router.settings.machine.nodes import NodesSection
from router.settings.machine.placement import MigSection, PlacementSection
from router.settings.machine.prices import PriceSection
from router.settings.meanings.gateway_keys import GATEWAY_KEYS
from router.settings.meanings.model_keys import MODEL_KEYS
from router.settings.model_file.applications import EndpointsSection
from router.settings.model_file.schema import PARAMETER_TYPES, ModelFile
from router.settings.model_file.sequences import SequenceSection
from router.settings.served.cells import CellsSection
from router.settings.served.tenants import TenantSection
from router.settings.values import schema
from router.settings.values.client_shm import ClientShmSection
from serving.policy.batching.catalogue import POLICIES
from serving.values.applications import ACTIVATIONS, TASKS
from serving.values.objectives import OPTIMIZE, SCALING_POLICIES, SELECTION_POLICIES
from serving.values.rollouts import ACCURACY, AGREEMENT, MARGINS, STICKY
from serving.values.slice_specs import DIVISIONS
from serving.values.specs import ISOLATE, TIME_UNITS

Json = dict[str, Any]
DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
ANY_TEXT: Final = {"type": "string"}
VARIABLE: Final = {"type": "string", "pattern": r"\$\{[A-Za-z_]"}
"""`${NAME}` or `${NAME:-default}`: see `router.settings.values.variables`."""
SCALARS: Final = ("integer", "number", "boolean")
SHARE: Final = {"type": "number", "minimum": 0, "exclusiveMaximum": 1}
WHOLE: Final = {"type": "integer", "minimum": 1}
SHAPE: Final = {
    "type": "array", "minItems": 1,
    "items": {"anyOf": [WHOLE, {"const": -1}, {"type": "string", "pattern": r"^[A-Za-z_]\w*$"}]},
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Nested:
    """A key whose value has a section of its own. `how`: the value is "one" section, a list of "each", or a
    mapping with one for each "name". `others`: what it may be instead."""

    section: type[BaseModel]
    how: str = "one"
    others: tuple[Json, ...] = ()


MEANINGS: Final = {**GATEWAY_KEYS, **MODEL_KEYS}
FLAG: Final = ({"type": "boolean"},)
NESTED: Final[Mapping[type[BaseModel], Mapping[str, Nested]]] = {
    schema.GatewayFile: {
        "server": Nested(schema.ServerSection), "admin": Nested(schema.AdminSection),
        "limits": Nested(schema.LimitsSection), "slices": Nested(schema.SliceSection, "each"),
        "models": Nested(schema.ServedSection, "each"), "devices": Nested(schema.DeviceSection, "each"),
        "prices": Nested(PriceSection, "each"), "scaling": Nested(schema.ScalingSection),
        "placement": Nested(PlacementSection), "mig": Nested(MigSection),
        "tenants": Nested(TenantSection, "each"), "tiers": Nested(schema.TierSection, "each"),
        "profiles": Nested(schema.ProfilesSection, others=(ANY_TEXT,)),
        "recording": Nested(schema.RecordingSection), "repository": Nested(schema.RepositorySection),
        "cache": Nested(schema.CacheSection, others=FLAG), "logging": Nested(schema.LoggingSection),
        "workers": Nested(schema.WorkersSection), "auth": Nested(schema.AuthSection),
        "tracing": Nested(schema.TracingSection),
        "nodes": Nested(NodesSection),
        "cells": Nested(CellsSection),
    },
    schema.ServerSection: {
        "tls": Nested(TlsSection), "client_shm": Nested(ClientShmSection, others=FLAG),
    },
    CellsSection: {"redis": Nested(schema.RedisSection, others=(ANY_TEXT,))},
    schema.CacheSection: {"redis": Nested(schema.RedisSection, others=(ANY_TEXT,))},
    schema.DeviceSection: {"rehearse": Nested(schema.RehearseSection, others=FLAG)},
    schema.ServedSection: {
        "replicas": Nested(schema.ReplicasSection, others=(WHOLE, {"const": "auto"})),
        "tiers": Nested(schema.NeedsSection, "name"), "guards": Nested(schema.GuardSection, "name"),
    },
    ModelFile: {"sequence": Nested(SequenceSection), "endpoints": Nested(EndpointsSection)},
}  # fmt: skip
"""Sections that are read by themselves, so that a fault in one hides none in another."""

LIST: Final = {"type": "array", "items": ANY_TEXT, "minItems": 1}
CORES: Final = {"type": "array", "items": {"type": "integer", "minimum": 0}, "minItems": 1}
VERSION_POLICY: Final = {"anyOf": [
    {"const": "all"}, {"type": "null"},
    *({"type": "object", "properties": {key: form}, "required": [key], "additionalProperties": False}
      for key, form in (
          ("all", {"type": "object", "maxProperties": 0}),
          ("latest", {"anyOf": [WHOLE, {"type": "object", "properties": {"num_versions": WHOLE}}]}),
          ("specific", {"anyOf": [
              {"type": "array", "items": WHOLE, "minItems": 1},
              {"type": "object", "properties": {"versions": {"type": "array", "items": WHOLE}}},
          ]}),
      )),
]}  # fmt: skip
FORMS: Final[Mapping[str, Mapping[str, Json]]] = {
    "AdminSection": {"hosts": LIST},
    "BatchingSection": {"policy": {"enum": [*POLICIES]}},
    "DeviceSection": {"divide": {"enum": [*DIVISIONS]}},
    "EndpointsSection": {
        "task": {"enum": [*TASKS]}, "activation": {"enum": [*ACTIVATIONS]},
        "tokenizer": {"anyOf": [ANY_TEXT, LIST]},
        "dimensions": {"type": "array", "items": WHOLE},
    },
    "LoggingSection": {"level": {"enum": [*schema.LOG_LEVELS]}, "format": {"enum": [*schema.LOG_FORMATS]}},
    "NeedsSection": {"optimize": {"enum": [*OPTIMIZE]}},
    "InputSection": {"shape": SHAPE},
    "ModelFile": {"version_policy": VERSION_POLICY},
    "OutputSection": {"shape": SHAPE, "labels": {"anyOf": [ANY_TEXT, LIST]}},
    "ParameterSection": {
        "type": {"enum": [*PARAMETER_TYPES]},
        "default": {"anyOf": [{"type": "boolean"}, {"type": "number"}, ANY_TEXT]},
        "time_unit": {"anyOf": [{"enum": [*TIME_UNITS]}, {"type": "null"}]},
    },
    "RepositorySection": {"folders": LIST},
    "RolloutSection": {
        "sticky": {"enum": [*STICKY]},
        "margins": {
            "type": "object",
            "properties": {
                **{each: {"anyOf": [SHARE, {"const": False}]} for each in (*MARGINS, AGREEMENT)},
                ACCURACY: {"anyOf": [SHARE, {"type": "boolean"}]},
            },
            "additionalProperties": False,
        },
    },
    "ScalingSection": {"policy": {"enum": [*SCALING_POLICIES]}},
    "SelectionSection": {"policy": {"enum": [*SELECTION_POLICIES]}, "members": LIST},
    "ServerSection": {"cors": LIST},
    "ServedSection": {
        "optimize": {"enum": [*OPTIMIZE]}, "isolate": {"enum": [*ISOLATE]}, "slices": LIST,
        "variants": {"anyOf": [{"const": "all"}, LIST]}, "version_policy": VERSION_POLICY,
    },
    "SliceSection": {"cores": {"anyOf": [WHOLE, CORES]}},
    "SizeHintSection": {"buckets": {"anyOf": [WHOLE, {"type": "array", "items": WHOLE, "minItems": 1}]}},
    "TierSection": {"optimize": {"enum": [*OPTIMIZE]}},
    "WorkersSection": {"inherit": LIST},
}  # fmt: skip
"""What a key takes, where only code knows it: one of few words, or a list."""


def schema_of(root: type[BaseModel]) -> Json:
    """Return the JSON Schema of a file, with all sections below it."""
    definitions: Json = {}
    found = _section(root, definitions)
    definitions["Variable"] = VARIABLE
    return {"$schema": DIALECT, **found, "$defs": dict(sorted(definitions.items()))}


def _section(section: type[BaseModel], definitions: Json) -> Json:
    found = section.model_json_schema()
    for name, inner in found.pop("$defs", {}).items():
        definitions.setdefault(name, _named(name, inner))
    for key, nested in NESTED.get(section, {}).items():
        found["properties"][key] = _value(nested, definitions)
    return _named(section.__name__, found)


def _named(name: str, found: Json) -> Json:
    for key, form in FORMS.get(name, {}).items():
        stated = found["properties"][key]
        found["properties"][key] = form | ({"default": stated["default"]} if stated.get("default") else {})
    properties = found.get("properties", {})
    for key, value in properties.items():
        properties[key] = {**_or_variable(value), "description": MEANINGS[name][key]}
    return {key: value for key, value in found.items() if key not in ("title", "description")}


def _or_variable(value: Json) -> Json:
    """Return what allows a variable too, where the key takes a number, a switch or one of few words."""
    kinds = value.get("anyOf", (value,))
    if any(each.get("type") == "string" and "pattern" not in each for each in kinds):
        return value
    if not any(each.get("type") in SCALARS or "enum" in each or "const" in each for each in kinds):
        return value
    return {"anyOf": [value, {"$ref": "#/$defs/Variable"}]}


def _value(nested: Nested, definitions: Json) -> Json:
    name = nested.section.__name__
    if name not in definitions:
        definitions[name] = {}  # before its own sections, which may name it
        definitions[name] = _section(nested.section, definitions)
    one: Json = {"$ref": f"#/$defs/{name}"}
    if nested.how == "each":
        return {"type": "array", "items": one}
    if nested.how == "name":
        return {"type": "object", "additionalProperties": {"anyOf": [one, {"type": "null"}]}}
    return {"anyOf": [one, *nested.others, {"type": "null"}]}
