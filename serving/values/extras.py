"""Packages that come only with an extra of pip, so that an environment without them stays small."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

SOLVER: Final = "scipy"
"""Plans of placement and scaling need it: HiGHS is in it. It has 143 MB, a third of an environment."""

TRACES: Final = "opentelemetry"
"""The SDK of OpenTelemetry, which sends traces."""

EXTRAS: Final[Mapping[str, str]] = MappingProxyType(
    {
        SOLVER: "plan",
        "onnxruntime": "onnx",
        "ray": "ray",
        "openvino": "openvino",
        "sklearn": "sklearn",
        "torch": "torch",
        "transformers": "transformers",
        "tritonclient": "remote",
        TRACES: "tracing",
    }
)
"""The extra in pyproject.toml by package."""


def cure(package: str | None) -> str:
    """Return how to install the package, for example ``try `pip install 'penstock[plan]'` ``; "" if no extra
    brings it."""
    extra = EXTRAS.get((package or "").partition(".")[0])
    return f"try `pip install 'penstock[{extra}]'`" if extra else ""
