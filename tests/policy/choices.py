"""Choices like others."""

from typing import Any

from serving.policy.batching.interface import Choice

FIELDS = (
    "lane", "pieces", "rows", "variant", "latest_start_us", "wake_us", "drop", "patient", "latency_us",
    "grown_us", "protected", "stays_us", "rule", "rank",
)  # fmt: skip


def changed(choice: Choice, **changes: Any) -> Choice:
    """The same with these changes."""
    return Choice(**({name: getattr(choice, name) for name in FIELDS} | changes))
