"""The pages are in plain English: short sentences, no word of the list, narrow tables."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from prometheus_client.parser import text_string_to_metric_families

from router.cli import app
from tests.architecture.prose import page_faults, sentence_faults, sentences
from tests.architecture.source_rules import ROOT
from tests.router.happenings import text
from tests.router.observing.test_telemetry_documented import everything

PAGES = sorted((*(ROOT / "docs").glob("**/*.md"), *ROOT.glob("*.md")))

MESSAGE_WORDS_MAX = 20


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_pages_are_in_plain_english(page: Path) -> None:
    assert [str(fault) for fault in page_faults(page)] == []


def helps(command: Any, path: str) -> Iterator[tuple[str, str]]:
    """What a command, its options and its verbs say of themselves; examples are left out."""
    yield path, "\n".join(line for line in (command.help or "").splitlines() if "penstock " not in line)
    for each in command.params:
        yield f"{path} {each.opts[0]}", getattr(each, "help", "") or ""
    for verb, below in getattr(command, "commands", {}).items():
        yield from helps(below, f"{path} {verb}")


def message_faults(message: str) -> list[str]:
    found = [part for each in message.split("\n\n") for part in sentences(" ".join(each.split()))]
    return [fault for each in found for fault in sentence_faults(each, MESSAGE_WORDS_MAX)]


@pytest.mark.parametrize(
    ("where", "said"),
    [pytest.param(*each, id=each[0]) for each in helps(typer.main.get_command(app), "penstock")],
)
def test_help_is_in_plain_english(where: str, said: str) -> None:
    assert message_faults(said) == [], where


def test_metrics_say_in_plain_english_what_they_are() -> None:
    families = text_string_to_metric_families(text(everything()))
    assert {each.name: faults for each in families if (faults := message_faults(each.documentation))} == {}


@pytest.mark.parametrize(
    "sentence",
    [
        "Nobody asks.",
        "The model of which it was so.",
        "The client is told why.",
        "one " * 26,
    ],
)
def test_faults_are_found(sentence: str) -> None:
    assert list(sentence_faults(sentence))


def test_sentences_end_where_a_reader_ends_them() -> None:
    page = "It has 1.5 times the rate, e.g. of `minilm`. The gateway (see below) waits. 20 ms pass."
    assert list(sentences(page)) == [
        "It has 1.5 times the rate, e.g. of `minilm`.",
        "The gateway (see below) waits.",
        "20 ms pass.",
    ]
