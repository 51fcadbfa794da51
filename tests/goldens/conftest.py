"""What a command prints from fixed inputs, compared with a text file beside this one.

`pytest tests/goldens --update-goldens` writes the files again; read their diff before you commit it.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

Golden = Callable[[str, Mapping[str, str]], None]


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Golden:
    """Compare scenes, by name, with the file of a view."""

    def compare(view: str, scenes: Mapping[str, str]) -> None:
        shown = "\n".join(f"==== {name}\n{_plain(text)}" for name, text in scenes.items())
        file = Path(__file__).with_name(f"{view}.txt")
        if request.config.getoption("--update-goldens"):
            file.write_text(shown)
        assert shown == file.read_text(), f"{file.name} differs; try --update-goldens, and read its diff"

    return compare


def _plain(text: str) -> str:
    """Return the text without the padding of tables."""
    return "".join(f"{line.rstrip()}\n" for line in text.rstrip().splitlines())
