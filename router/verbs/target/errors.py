"""The one error of a target that cannot be served, and what can be: light, for `--help`."""

from typing import Final

MODELS: Final = (
    "a .py, .onnx, .xml, .pt2, .joblib or .pkl file, hf:FOLDER, a model folder, or remote:HOST:PORT/MODEL"
)
FORMS: Final = f"{MODELS}; or a .yaml of settings"


class TargetError(Exception):
    """The text says what is wrong, and what would help."""
