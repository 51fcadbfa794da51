"""The pages are in plain English: short sentences, no word of the list, narrow tables."""

from pathlib import Path

import pytest

from tests.architecture.prose import page_faults, sentence_faults, sentences
from tests.architecture.source_rules import ROOT

PAGES = sorted((*(ROOT / "docs").glob("**/*.md"), *ROOT.glob("*.md")))
NOT_YET = frozenset(f"docs/{name}.md" for name in ("architecture",))
"""Pages that are still to be written again. The list only gets shorter."""


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", [page for page in PAGES if name(page) not in NOT_YET], ids=name)
def test_pages_are_in_plain_english(page: Path) -> None:
    assert [str(fault) for fault in page_faults(page)] == []


@pytest.mark.parametrize("page", sorted(NOT_YET))
def test_a_page_leaves_the_list_when_it_is_written_again(page: str) -> None:
    assert page_faults(ROOT / page)


@pytest.mark.parametrize(
    "text",
    [
        "Nobody asks.",
        "The model of which it was so.",
        "The client is told why.",
        "one " * 26,
    ],
)
def test_faults_are_found(text: str) -> None:
    assert list(sentence_faults(text))


def test_sentences_end_where_a_reader_ends_them() -> None:
    text = "It has 1.5 times the rate, e.g. of `minilm`. The gateway (see below) waits. 20 ms pass."
    assert list(sentences(text)) == [
        "It has 1.5 times the rate, e.g. of `minilm`.",
        "The gateway (see below) waits.",
        "20 ms pass.",
    ]
