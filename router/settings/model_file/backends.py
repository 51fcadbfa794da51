"""What each backend needs of a variant: a file, or the name of another server."""

from router.settings.model_file.schema import ModelFile
from router.settings.values.findings import Findings
from serving.values.specs import PYTHON

_FILES = {
    "onnx": "a file.onnx",
    "openvino": "a file.xml or file.onnx",
    "torch_export": "a file.pt2 or file.pt",
    "transformers": "a folder",
    "sklearn": "a file.joblib or file.pkl",
}
_SERVER = ("url", "model")


def check_backends(findings: Findings, model: ModelFile) -> None:
    """Add what variants lack for their backends, and what no backend but Python can do."""
    for index, variant in enumerate(model.variants):
        if variant.backend == PYTHON:
            continue
        at = ("variants", index, "backend")
        named = f"backend {variant.backend}"
        if variant.backend in _FILES and variant.artifact is None:
            findings.add(at, f"{named} has nothing to load; expected artifact: {_FILES[variant.backend]}")
        lacking = [name for name in _SERVER if name not in variant.options]
        if variant.backend not in _FILES and lacking:
            findings.add(at, f"{named} asks no server; expected options: {{url: HOST:PORT, model: NAME}}")
        if variant.compile != "none":
            message = f"compile is for models in Python; got {named}, expected compile: none"
            findings.add(("variants", index, "compile"), message)
        if model.decoupled or model.sequence is not None:
            key = "decoupled: true" if model.decoupled else "a sequence"
            findings.add(
                at, f"{named} answers each request once, by itself; got {key}, expected backend: python"
            )
