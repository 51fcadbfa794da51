"""The page and the picture: they hold what the table says, and need nothing else."""

import html
import re
from html.parser import HTMLParser
from pathlib import Path

import pytest

from tests.router.simulate.conftest import Simulate

ASKED = ("--rate", "digits=1800,minilm=5", "--policy", "slo,static")


class Page(HTMLParser):
    """The cells of the table, ids, and whatever would be fetched."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.cells: list[str] = []
        self.ids: list[str] = []
        self.used: set[str] = set()
        self.fetched: list[str] = []
        self.tags: set[str] = set()
        self._in_cell = False
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.add(tag)
        self._in_cell = tag == "td" or (self._in_cell and tag == "b")
        for name, value in attrs:
            if name == "id":
                self.ids.append(value or "")
            elif (value or "").startswith(("#", "url(#")):
                self.used.add((value or "").removeprefix("url(").strip("#)"))
            elif name in ("src", "href", "xlink:href"):
                self.fetched.append(value or "")

    def handle_data(self, data: str) -> None:
        if self._in_cell and data.strip():
            self.cells.append(data.strip())

    def handle_endtag(self, tag: str) -> None:
        if tag == "td":
            self._in_cell = False


@pytest.mark.slow
def test_the_page_holds_the_figures_of_the_table_and_pictures_of_each_model(
    simulate: Simulate, home: Path
) -> None:
    file = home / "report.html"
    ended = simulate(*ASKED, "--html", str(file))
    assert ended.exit_code == 0, ended.output
    assert f"wrote {file}" in ended.stderr
    text = file.read_text()
    page = Page(text)
    lines = [
        line for line in ended.stdout.splitlines() if re.match(r" (slo|static| +(digits|minilm)) ", line)
    ]
    assert len(lines) == 6
    printed = [cell for line in lines for cell in re.split(r"\s{2,}", line.strip())]
    assert page.cells == printed
    sentence = next(line for line in ended.stdout.splitlines() if "of the requests in time" in line)
    assert html.escape(sentence).replace(" %", "&nbsp;%") in text
    assert text.count("<svg") == 4
    assert "slo, digits: " in text
    assert "promised: 25 ms" in text


@pytest.mark.slow
def test_the_page_fetches_nothing_runs_nothing_and_its_pictures_do_not_clash(
    simulate: Simulate, home: Path
) -> None:
    file = home / "report.html"
    assert simulate(*ASKED, "--html", str(file)).exit_code == 0
    page = Page(file.read_text())
    assert page.fetched == []
    assert not page.tags & {"script", "link", "img", "iframe"}
    assert len(page.ids) == len(set(page.ids)) > 100
    assert page.used <= set(page.ids)


@pytest.mark.slow
def test_the_picture_is_a_png(simulate: Simulate, home: Path) -> None:
    file = home / "report.png"
    assert simulate(*ASKED, "--png", str(file)).exit_code == 0
    assert file.read_bytes().startswith(b"\x89PNG\r\n")
