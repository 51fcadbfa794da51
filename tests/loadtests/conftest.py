"""How long a live run may take."""

from collections.abc import Sequence
from pathlib import Path

import pytest

HANGS_S = 300
"""A test is given up after this: of a machine that others use it may take several times as long."""


def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    for item in items:
        if item.path.is_relative_to(Path(__file__).parent):
            item.add_marker(pytest.mark.timeout(HANGS_S))
