"""What plain English is here, as a function from a page to the sentences that are not.

The budget of words a sentence is that of the UK government's style guide (25). The words on the list make a
reader guess an actor, or have a plainer twin.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from markdown_it import MarkdownIt
from markdown_it.token import Token

WORDS_MAX = 25
CELL_MAX = 80  # characters of a table's cell, links counted by their text
LISTED = re.compile(
    r"\b(?:who|whom|whose|whoever|nobody|somebody|anybody|"
    r"as a rule|(?:is|are|was|were) told|that of|those of|of which|of whom|of those|"
    r"anew|of late|likewise|reckon(?:s|ed|ing)?|befalls?|in vain)\b",
    re.IGNORECASE,
)
_END = re.compile(r"(?<=[.!?])[)\"']*\s+(?=[A-Z`\d(\"'*<])")
_ABBREVIATED = re.compile(r"\b(?:e\.g|i\.e|vs|etc|al|Fig|Sec|No)\.$")
_CODE = "Code"  # stands for a span of code: one word, that may begin a sentence
_WORD = re.compile(r"[\w%$€][\w.,'’/%-]*")


@dataclass(frozen=True, slots=True)
class Fault:
    """A sentence (or cell) of a page, and what is wrong with it."""

    line: int
    what: str
    text: str

    def __str__(self) -> str:
        return f"line {self.line}: {self.what}: {self.text}"


def page_faults(page: Path) -> list[Fault]:
    """Each sentence that is too long or shares its line, each listed word, each cell that is too wide."""
    tokens = MarkdownIt("commonmark").enable("table").parse(page.read_text("utf-8"))
    return [fault for each in _texts(tokens) for fault in _text_faults(each)]


def sentences(text: str) -> Iterator[str]:
    """The sentences of a text; an abbreviation's full stop ends none."""
    begun = ""
    for part in _END.split(text):
        begun = f"{begun} {part}".strip()
        if not _ABBREVIATED.search(begun):
            yield begun
            begun = ""
    if begun:
        yield begun


def sentence_faults(sentence: str, words_max: int = WORDS_MAX) -> Iterator[str]:
    """What is wrong with a sentence."""
    count = len(_WORD.findall(sentence))
    if count > words_max:
        yield f"{count} words, at most {words_max}"
    for found in LISTED.findall(sentence):
        yield f"{found!r} is on the list"


@dataclass(frozen=True, slots=True)
class _Text:
    """A paragraph, item, heading or cell, as it is read; `lines`: how many lines of the page it has."""

    line: int
    lines: int
    text: str
    is_cell: bool


def _text_faults(found: _Text) -> Iterator[Fault]:
    if found.is_cell and len(found.text) > CELL_MAX:
        yield Fault(found.line, f"a cell of {len(found.text)} characters, at most {CELL_MAX}", found.text)
    parts = list(sentences(found.text))
    if not found.is_cell and len(parts) != found.lines:
        yield Fault(found.line, f"{len(parts)} sentences on {found.lines} lines", found.text)
    for sentence in parts:
        yield from (Fault(found.line, what, sentence) for what in sentence_faults(sentence))


def _texts(tokens: list[Token]) -> Iterator[_Text]:
    line, is_cell = 1, False
    for token in tokens:
        if token.map is not None:
            line = token.map[0] + 1
        if token.type in ("td_open", "th_open"):
            is_cell = True
        elif token.type in ("td_close", "th_close"):
            is_cell = False
        elif token.type == "inline" and (text := _plain(token)):
            yield _Text(line, token.content.count("\n") + 1, text, is_cell)


def _plain(inline: Token) -> str:
    """The text as it is read, with each span of code as one word."""
    parts = []
    for child in inline.children or ():
        if child.type == "code_inline":
            parts.append(_CODE)
        elif child.type in ("softbreak", "hardbreak"):
            parts.append(" ")
        elif child.type == "text":
            parts.append(child.content)
    return "".join(parts)
