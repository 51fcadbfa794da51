"""Elements of SVG as text, and about how wide a text is drawn. Colours are names of the report's."""

import re
from collections.abc import Sequence
from html import escape
from itertools import pairwise
from math import isfinite
from typing import NamedTuple
from unicodedata import east_asian_width

from router.verbs.report.colours import plain_style

SMALL, TITLE = 11.0, 12.5
"""Sizes of letters."""
_FONT = "system-ui, -apple-system, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif"
_UNFIT = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")  # no letters of XML
# Parts of the size of letters that they are wide in DejaVu Sans: few fonts of systems are wider.
_WIDTHS = {
    letter: width
    for width, letters in (
        (0.29, "'ijlIJ"), (0.34, " ,./:;\\|f-"), (0.41, "()[]t!r"), (0.53, '"*_`szc?'), (0.58, "LFkvxyP"),
        (0.63, "TYaoeESbdghnpqu0123456789$"), (0.70, "KAVBRXZC"), (0.79, "UHNDG&OQ"), (0.85, "w#+<=>^~M"),
        (1.0, "%mW@"),
    )
    for letter in letters
}  # fmt: skip
_OTHER, _BOLD = 0.7, 1.13
_MARGIN = 14.0  # around a picture in a file of its own


def element(
    tag: str,
    *content: str,
    fill: str = "",
    stroke: str = "",
    kind: str = "",
    **attributes: str | float | None,
) -> str:
    """Return an element; `fill` and `stroke` name colours, `kind` is a class of its own, and `content` is
    markup. An attribute None is left out."""
    classes = [f"f-{fill}"] if fill not in ("", "none") else []
    classes += [f"s-{stroke}"] if stroke else []
    found = {"class": " ".join((*classes, kind)).strip() or None, "fill": "none" if fill == "none" else None}
    text = "".join(
        f' {name.replace("_", "-")}="{said(value) if isinstance(value, str) else number(value)}"'
        for name, value in {**found, **attributes}.items()
        if value is not None
    )
    return f"<{tag}{text}>{''.join(content)}</{tag}>" if content else f"<{tag}{text}/>"


def number(value: float) -> str:
    """Return a tenth of a pixel at best, as more makes files large; of a part of 1, a hundredth."""
    text = (f"{value:.2f}" if abs(value) < 1 else f"{value:.1f}").rstrip("0").rstrip(".")
    return "0" if text == "-0" else text


def said(text: str) -> str:
    """Return words with their signs escaped, fit for XML."""
    return escape(_UNFIT.sub("\ufffd", text))


def title(text: str) -> tuple[str, ...]:
    """Return the text that an element shows while the pointer rests on it; nothing for ""."""
    return (f"<title>{said(text)}</title>",) if text else ()


class Letters(NamedTuple):
    """How a text is written; `turned`: along an axis at the left."""

    size: float = SMALL
    colour: str = "ink"
    anchor: str = "start"
    bold: bool = False
    turned: bool = False


PLAIN = Letters()


def words(at: tuple[float, float], text: str, how: Letters = PLAIN, tip: str = "") -> str:
    """Return a text element with its letters centred vertically on `at`."""
    x, y = at
    return element(
        "text", *title(tip), said(text), x=x, y=y + 0.36 * how.size, fill=how.colour,
        font_size=None if how.size == SMALL else how.size,
        text_anchor=None if how.anchor == "start" else how.anchor,
        font_weight="600" if how.bold else None,
        transform=f"rotate(-90 {number(x)} {number(y)})" if how.turned else None,
    )  # fmt: skip


def path(places: Sequence[tuple[float, float]]) -> str:
    """Return the `d` of a line through them; a gap where one is no number."""
    found, drawn = [], False
    for x, y in places:
        if isfinite(x) and isfinite(y):
            found.append(f"{'L' if drawn else 'M'}{number(x)} {number(y)}")
            drawn = True
        else:
            drawn = False
    return "".join(found)


def steps(edges: Sequence[float], heights: Sequence[float]) -> list[tuple[float, float]]:
    """Return the places of stairs: each height from its edge to the next."""
    return [
        place
        for (one, other), y in zip(pairwise(edges), heights, strict=True)
        for place in ((one, y), (other, y))
    ]


def wide(text: str, size: float = SMALL, bold: bool = False) -> float:
    """Return about how wide a text is drawn, rather too much than too little."""
    return size * (_BOLD if bold else 1) * sum(map(_letter, text))


def _letter(letter: str) -> float:
    if letter in _WIDTHS:
        return _WIDTHS[letter]
    return 1.0 if east_asian_width(letter) in "WF" else _OTHER


def shortened(text: str, room: float, size: float = SMALL, bold: bool = False) -> str:
    """Return as much of a text as there is room for, its beginning and end kept."""
    if wide(text, size, bold) <= room:
        return text
    for kept in range(min(len(text) - 1, int(room / (0.25 * size)) + 1), 1, -1):
        cut = f"{text[: kept - kept // 2]}…{text[len(text) - kept // 2 :]}"
        if wide(cut, size, bold) <= room:
            return cut
    return "…"


def lines(text: str, room: float, size: float = SMALL, bold: bool = False) -> list[str]:
    """Return a text broken between words into lines that there is room for."""
    found: list[str] = []
    for line in text.split("\n"):
        begun = ""
        for word in line.split():
            longer = f"{begun} {word}".strip()
            if begun and wide(longer, size, bold) > room:
                found.append(begun)
                longer = word
            begun = longer
        found.append(begun)
    return found


def picture(size: tuple[float, float], name: str, body: Sequence[str], alone: bool = False) -> str:
    """Return the whole picture. `alone`: with its colours and paper, as a file of its own."""
    margin = _MARGIN if alone else 0.0
    width, height = (each + 2 * margin for each in size)
    paper = element("rect", fill="paper", x=-margin, y=-margin, width=width, height=height)
    box = " ".join(map(number, (-margin, -margin, width, height)))
    own = (f"<style>\n{plain_style()}</style>", paper)
    content = (*title(name), *(own if alone else ()), *body)
    return element(
        "svg", *content, xmlns="http://www.w3.org/2000/svg", viewBox=box,
        width=width, height=height, role="img", font_family=_FONT, font_size=SMALL,
    )  # fmt: skip
