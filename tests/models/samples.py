"""The sample models as a worker sees them: code loaded by path, variants as model.yaml names them."""

import importlib.util
import json
from functools import cache
from pathlib import Path
from typing import Any, Protocol, cast

import numpy as np
import yaml

MODELS = Path(__file__).resolve().parents[2] / "models"
Arrays = dict[str, np.ndarray[Any, Any]]  # of any shape and datatype, as on the wire
Scalar = bool | int | float | str


class SampleModel(Protocol):
    """What `load` of each model.py gives."""

    def predict(self, inputs: Arrays, parameters: dict[str, Scalar]) -> Arrays: ...

    def sample(self, rows: int, size: int) -> Arrays: ...


class SizedModel(SampleModel, Protocol):
    """One whose cost depends on its content."""

    padded_size: int


@cache
def code(model: str) -> Any:  # a module that is found by path has no type of its own
    """`models/<model>/model.py`, imported."""
    spec = importlib.util.spec_from_file_location(f"sample_{model}", MODELS / model / "model.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@cache
def definition(model: str) -> dict[str, Any]:  # YAML: the settings' tests hold its schema
    """`models/<model>/model.yaml`."""
    return cast(dict[str, Any], yaml.safe_load((MODELS / model / "model.yaml").read_text(encoding="utf-8")))


def variants(model: str) -> list[str]:
    return [variant["name"] for variant in definition(model)["variants"]]


def load(model: str, variant: str, **more: Scalar) -> SampleModel:
    """The variant, loaded anew; with `more` options, as a worker adds its device."""
    found = next(entry for entry in definition(model)["variants"] if entry["name"] == variant)
    artifact = built(model, found["artifact"]) if "artifact" in found else None
    return cast(SampleModel, code(model).load(artifact, {**found.get("options", {}), **more}))


@cache
def loaded(model: str, variant: str) -> SampleModel:
    """The variant, loaded once for all tests."""
    return load(model, variant)


def built(model: str, output: str) -> Path:
    """A file of the model's build; a missing one fails the test with what to do."""
    path = MODELS / model / output
    assert path.is_file(), f"models/{model}/{output} is not there: run `make setup`, which builds the models"
    return path


def measured(model: str) -> dict[str, float]:
    """The accuracies that the build measured, by variant."""
    return cast(dict[str, float], json.loads(built(model, "build/accuracy.json").read_text()))
