"""The page and the picture: they hold what the table says, and need nothing else."""

import html
import re
from pathlib import Path

import pytest

from tests.router.pages import Page, assert_coloured, assert_stands_alone, texts
from tests.router.verbs.simulate.conftest import Simulate, table

ASKED = ("--rate", "digits=1800,minilm=5", "--policy", "slo,static")


@pytest.mark.slow
def test_the_page_holds_the_figures_of_the_table_and_pictures_of_each_model_and_stands_alone(
    simulate: Simulate, home: Path
) -> None:
    file = home / "report.html"
    ended = simulate(*ASKED, "--html", str(file))
    assert ended.exit_code == 0, ended.output
    assert f"wrote {file}" in ended.stderr
    text = file.read_text()
    page = Page(text)
    lines = table(ended.stdout)
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
    assert_stands_alone(file.read_text())
    assert {"ink", "good", "bad", "middle"} <= assert_coloured(file.read_text())


@pytest.mark.slow
def test_the_picture_in_a_file_of_its_own_says_what_the_page_says(simulate: Simulate, home: Path) -> None:
    file = home / "report.svg"
    assert simulate(*ASKED, "--svg", str(file)).exit_code == 0
    found = texts(file.read_text())
    for model in ("digits", "minilm"):
        for policy in ("slo", "static"):
            assert [text for text in found if text.startswith(f"{policy}, {model}: ")]
    assert "promised: 25 ms" in found
    assert found.count("simulated seconds") == 4
