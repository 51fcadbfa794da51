"""How wide letters are in a font that is wider than most: DejaVu Sans, which a tool of the tests has."""

from matplotlib.font_manager import FontProperties
from matplotlib.textpath import TextPath

from router.verbs.report.svg import SMALL


def drawn_wide(text: str, size: float = SMALL, bold: bool = False) -> float:
    """Pixels from the first letter's left edge to the last one's right."""
    font = FontProperties(family="DejaVu Sans", weight="bold" if bold else "normal")
    return float(TextPath((0, 0), text, size=size, prop=font).get_extents().width) if text.strip() else 0.0
