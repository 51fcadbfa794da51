"""A small deployment on disk: two model folders, as if built, and a `penstock.yaml`."""

import json
from pathlib import Path

import pytest

from router.settings import Settings, SettingsError, load_model, load_settings

DIGITS = """\
name: digits
description: Reads a digit.
inputs: [{name: PIXELS, datatype: FP32, shape: [-1, 64]}]
outputs: [{name: SCORES, datatype: FP32, shape: [-1, 10]}]
batch_max: 64
slo_ms: 25
deterministic: true
default_variant: cnn
accuracy: {metric: top-1, file: build/accuracy.json}
variants:
  - {name: linear, artifact: build/linear.safetensors, options: {width: 64, scale: 0.5, bias: true}}
  - {name: cnn, artifact: build/cnn.safetensors, deterministic: false}
build: build.py
"""

TEXT = """\
name: minilm
inputs: [{name: TEXT, datatype: BYTES, shape: [-1, 1]}]
outputs: [{name: EMBEDDING, datatype: FP32, shape: [-1, -1]}]
batch_max: 32
slo_ms: 250.5
default_variant: fp32
variants: [{name: fp32}, {name: int8}]
size_hint: {input: TEXT, unit: bytes, buckets: [64, 128]}
parameters:
  - {name: delay_ms, type: int, default: 0, minimum: 0, maximum: 60000}
"""

GATEWAY = """\
server: {name: test, host: 127.0.0.1, rest_port: 9000, grpc_port: 9001, metrics_port: 0}
limits: {body_mb: 8, stall_s: 2.5}
slices:
  - {name: cpu-a, cores: 1}
  - {name: cpu-b, threads: 2}
models:
  - path: models/digits
    slo_ms: 40
    slices: [cpu-a]
    variants: [cnn, linear]
    default_variant: linear
    batching: {policy: static, size: 32, delay_ms: 2}
  - path: models/minilm
"""


def write_deployment(home: Path, gateway: str = GATEWAY) -> Path:
    """Writes both models and `gateway` into `home`; returns the settings file."""
    digits = write_model(home / "models" / "digits", DIGITS)
    for name in ("linear", "cnn"):
        (digits / "build" / f"{name}.safetensors").touch()
    write_accuracy(digits, {"linear": 0.964, "cnn": 1e-05})
    write_model(home / "models" / "minilm", TEXT)
    return write_gateway(home, gateway)


def write_gateway(home: Path, text: str) -> Path:
    file = home / "penstock.yaml"
    file.write_text(text, encoding="utf-8", errors="surrogatepass", newline="")
    return file


def write_model(folder: Path, text: str) -> Path:
    (folder / "build").mkdir(parents=True, exist_ok=True)
    (folder / "model.yaml").write_text(text, encoding="utf-8", newline="")
    return folder


def write_accuracy(folder: Path, table: object) -> None:
    (folder / "build" / "accuracy.json").write_text(json.dumps(table, indent=2))


def write_candidate(home: Path) -> None:
    """Write digits-2, a model like digits, beside it."""
    folder = write_model(home / "models" / "digits-2", DIGITS.replace("name: digits\n", "name: digits-2\n"))
    for name in ("linear", "cnn"):
        (folder / "build" / f"{name}.safetensors").touch()
    write_accuracy(folder, {"linear": 0.97, "cnn": 0.98})


def gateway_faults(home: Path, text: str) -> list[str]:
    """The problems of a `penstock.yaml` with this text, in `home`, without the folder's name."""
    with pytest.raises(SettingsError) as caught:
        load_settings(write_gateway(home, text))
    return [str(problem).replace(f"{home}/", "") for problem in caught.value.problems]


def gateway_fault(home: Path, old: str, new: str) -> str:
    """The one problem after replacing `old` by `new` in GATEWAY."""
    assert old in GATEWAY
    faults = gateway_faults(home, GATEWAY.replace(old, new, 1))
    assert len(faults) == 1, faults
    return faults[0]


def model_faults(folder: Path, text: str) -> list[str]:
    """The problems of a model folder with this `model.yaml`, without the folder's name."""
    with pytest.raises(SettingsError) as caught:
        load_model(write_model(folder, text))
    return [str(problem).replace(f"{folder}/", "") for problem in caught.value.problems]


def gateway_settings(home: Path, old: str, new: str) -> Settings:
    """The settings after replacing `old` by `new` in GATEWAY."""
    assert old in GATEWAY
    return load_settings(write_gateway(home, GATEWAY.replace(old, new, 1)))
