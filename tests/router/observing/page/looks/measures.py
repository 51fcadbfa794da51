"""What the page looks like in figures, as a browser measures them."""

from collections.abc import Mapping
from pathlib import Path

MEASURE = Path(__file__).with_name("measure.js").read_text("utf-8")
"""To evaluate in the page: its boxes, and what is `faint`, `overlaps` or is `outside`."""


def faults(measured: Mapping[str, list[str]]) -> list[str]:
    """What is wrong whatever was before."""
    return [f"{what}: {each}" for what in ("faint", "overlaps", "outside") for each in measured[what]]
