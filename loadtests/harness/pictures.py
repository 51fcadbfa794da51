"""Matplotlib draws the pictures of load runs. It comes with the packages that test, so that runs without a
picture need no more than the gateway."""

import argparse
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # only where a picture is asked for
    from matplotlib.figure import Figure


def png(name: str) -> Path:
    """Read an option that names a picture, before the run that draws it."""
    if find_spec("matplotlib") is None:
        raise argparse.ArgumentTypeError(
            "matplotlib is not installed; try `pip install -e '.[dev]'`, or leave the option out"
        )
    return Path(name)


@contextmanager
def drawn(wide_in: float, high_in: float, path: Path) -> Iterator["Figure"]:
    """Give a figure to draw on, and write it as PNG, its folder too."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context({"font.size": 9, "axes.spines.top": False, "axes.spines.right": False}):
        figure = Figure(figsize=(wide_in, high_in), layout="constrained")
        yield figure
        path.parent.mkdir(parents=True, exist_ok=True)
        figure.savefig(path, dpi=130)
