"""Where reports go: the terminal or a pipe, and files."""

from collections.abc import Callable
from pathlib import Path

from rich.console import Console

PIPE_WIDTH = 200
"""Where there is no terminal to ask: wide enough to cut no name."""


def console() -> Console:
    """Return the console for the report itself, on stdout."""
    found = Console()
    return found if found.is_terminal else Console(width=PIPE_WIDTH)


def unwritable(path: Path) -> str:
    """Return why no file can be written there, in a sentence; "" where nothing is known that speaks against
    it."""
    try:
        if not path.parent.is_dir():
            return f"{path}: there is no folder {path.parent}"
        return f"{path} is a folder; expected the name of a file to write" if path.is_dir() else ""
    except OSError as error:  # a name that no file can have
        return _cannot(path, error)


def save(path: Path, write: Callable[[Path], object]) -> str:
    """Write the file with `write`; return a sentence on why it cannot be written, "" if it is."""
    try:
        write(path)
    except OSError as error:
        return _cannot(path, error)
    return ""


def _cannot(path: Path, error: OSError) -> str:
    return f"{path} cannot be written: {error.strerror or error}"
