"""Figures of matplotlib as `<svg>` elements of a page: in its letters and, where asked, its colours."""

import re
from collections.abc import Mapping
from io import StringIO
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # matplotlib takes half a second that a table need not wait for
    from matplotlib.figure import Figure

STYLE: dict[Any, Any] = {  # matplotlib's own keys
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.titlesize": 10,
    "svg.fonttype": "none",  # the page's own letters, which can be searched and copied
    "font.family": "sans-serif",
}


def inline(figure: "Figure", name: str, colours: Mapping[str, str] | None = None) -> str:
    """`figure` as an element whose ids begin with `name`, for a page has many. Draw it within STYLE.

    `colours`: variables of the page's style sheet by the colour (`#rrggbb`) that stands for each in the
    figure.
    """
    import matplotlib as mpl

    written = StringIO()
    with mpl.rc_context({"svg.hashsalt": name}):
        figure.savefig(
            written, format="svg", metadata={"Date": None, "Creator": None}, transparent=bool(colours)
        )
    text = written.getvalue()
    text = re.sub(r"<metadata>.*?</metadata>", "", text[text.index("<svg") :].strip(), flags=re.DOTALL)
    for colour, variable in (colours or {}).items():
        text = text.replace(colour, f"var(--{variable})")
    return re.sub(r'( id="|href="#|url\(#)', rf"\g<1>{name}-", text)
