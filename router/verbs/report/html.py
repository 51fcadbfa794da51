"""What the pages of reports share: a style sheet, the beginning of the file, and words with their signs
escaped. A page is one file; it needs no network and no script."""

from collections.abc import Iterable, Iterator
from html import escape

from router.verbs.report import colours

_STYLE = """
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper); max-width: 1260px;
       margin: 2em auto; padding: 0 1.2em; }
h1 { font-size: 1.5em; margin-bottom: .2em; }
h2 { font-size: 1.15em; margin: 2em 0 .4em; }
p.see { font-size: 1.15em; border-left: 4px solid var(--mark); padding: .3em 0 .3em .8em; }
div.wide { overflow-x: auto; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .93em; }
th, td { padding: .3em .55em; text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap; }
th:first-child, td:first-child, th:nth-child(2), td:nth-child(2) { text-align: left; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .25em 1em; margin: .4em 0; }
dt { font-weight: 600; } dd { margin: 0; }
footer, .small { color: var(--faint); font-size: .88em; }
@media (max-width: 600px) { dl { display: block; } dd { margin-bottom: .5em; } }
"""


def opening(title: str, style: str) -> Iterator[str]:
    """Yield the file up to its first heading. `style`: the page's own rules, which come after the shared
    ones."""
    yield "<!DOCTYPE html>"
    yield '<html lang="en"><head><meta charset="utf-8">'
    yield '<meta name="viewport" content="width=device-width, initial-scale=1">'
    yield f"<title>{escape(title)}</title><style>{colours.style()}{_STYLE}{style}</style></head><body>"


def text(said: str) -> str:
    """Return the text with its signs escaped; no line breaks between a figure and its %."""
    return escape(said).replace(" %", "&nbsp;%")


def terms(pairs: Iterable[tuple[str, str]]) -> Iterator[str]:
    """Yield the terms and what they mean."""
    yield "<dl>"
    yield from (f"<dt>{escape(term)}</dt><dd>{text(meaning)}</dd>" for term, meaning in pairs)
    yield "</dl>"
