"""The pages are in plain English: short sentences, no word of the list, narrow tables."""

from pathlib import Path

import pytest

from tests.architecture.prose import page_faults, sentence_faults, sentences
from tests.architecture.source_rules import ROOT

PAGES = sorted((*(ROOT / "docs").glob("**/*.md"), *ROOT.glob("*.md")))


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_pages_are_in_plain_english(page: Path) -> None:
    assert [str(fault) for fault in page_faults(page)] == []


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
