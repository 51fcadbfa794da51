"""`show`: the tables on the terminal, the page and the picture, of a store on disk."""

import re
from dataclasses import replace
from io import StringIO
from pathlib import Path

import pytest
from rich.console import Console

from router.verbs.profiling.show import NOTHING, ShowOptions, show
from serving.profile.files.store import ProfileStore
from serving.values.slice_specs import Share
from tests.router.pages import Page, assert_coloured, assert_stands_alone, texts
from tests.router.verbs.profiling import generated
from tests.router.verbs.profiling.generated import CPU, GPU, Cost

ALL = ShowOptions(None, None, 25_000, None, None)


@pytest.fixture
def store(tmp_path: Path) -> ProfileStore:
    """Digits on cores and on a GPU, minilm on cores."""
    return generated.store(tmp_path / "profiles")


def told(
    store: ProfileStore, asked: ShowOptions = ALL, name: str = "digits", width: int = 200
) -> tuple[int, str]:
    """The exit code, and what was printed."""
    printed = StringIO()
    code = show(generated.model(name), store, asked, Console(width=width, file=printed))
    return code, printed.getvalue()


def test_the_tables_of_a_cpu_fit_into_a_terminal_of_80_columns(store: ProfileStore) -> None:
    _, text = told(store, replace(ALL, device_kind=CPU), width=80)
    assert re.search(r"linear   1 core .* 616,457 +616,457 +1.00  knee", text)
    assert "…" not in text


def test_where_nothing_is_measured_the_exit_code_says_so(store: ProfileStore) -> None:
    assert told(store, replace(ALL, variant="linear", device_kind=GPU))[0] == NOTHING
    assert told(store, name="simple")[0] == NOTHING


@pytest.mark.slow
def test_profile_files_that_are_passed_over_are_named_if_they_are_the_models(
    store: ProfileStore, tmp_path: Path
) -> None:
    for name in ("digits.mlp", "digitsy.mlp"):
        (store.folder / CPU / f"{name}.json").write_text("{")
    html = tmp_path / "page.html"
    code, text = told(store, replace(ALL, html=html, device_kind=CPU, variant="linear"))
    assert code == 0
    assert "digits.mlp.json: ignored: not JSON" in text
    assert "digitsy" not in text
    assert "digits.mlp.json: ignored: not JSON" in html.read_text()


@pytest.mark.slow
def test_the_page_holds_the_sentences_and_the_figures_of_the_tables(
    store: ProfileStore, tmp_path: Path
) -> None:
    file = tmp_path / "page.html"
    _, printed = told(store, replace(ALL, html=file, device_kind=CPU))
    text = file.read_text()
    for line in printed.splitlines():
        if "; the knee is at" in line:
            assert line.strip() in text
    lines = [line for line in printed.splitlines() if re.match(r"(linear|cnn|) +\d cores? ", line)]
    assert len(lines) == 8
    cells = [cell for line in lines for cell in re.split(r"\s{2,}", line.strip())]
    assert Page(text).cells == [cell.replace(" %", "\xa0%") for cell in cells]


@pytest.mark.slow
def test_the_page_says_where_its_figures_come_from(store: ProfileStore, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    told(store, replace(ALL, html=file, variant="cnn"))
    text = file.read_text()
    for fact in (
        "AMD EPYC 9V74",
        "580.95",
        "2026-11-21",
        "penstock profile digits --shares cores:2",
        "at most 2.1",
    ):
        assert fact in text


@pytest.mark.slow
def test_the_page_fetches_nothing_runs_nothing_and_its_pictures_do_not_clash(
    store: ProfileStore, tmp_path: Path
) -> None:
    file = tmp_path / "page.html"
    told(store, replace(ALL, html=file))
    assert_stands_alone(file.read_text())


@pytest.mark.slow
def test_the_pictures_take_their_colours_from_the_page_which_has_them_for_light_and_dark(
    store: ProfileStore, tmp_path: Path
) -> None:
    file = tmp_path / "page.html"
    told(store, replace(ALL, html=file), name="minilm")
    assert {"ink", "faint", "size1"} <= assert_coloured(file.read_text())


@pytest.mark.slow
@pytest.mark.parametrize("slo_us", [1_000, 25_000])
def test_there_is_a_picture_also_where_nothing_is_within_the_latency(
    store: ProfileStore, tmp_path: Path, slo_us: int
) -> None:
    store.write(generated.profile(("digits", "cnn", GPU), Share("whole", 1.0), Cost(90_000, 10)))
    file = tmp_path / "picture.svg"
    code, _ = told(store, replace(ALL, svg=file, slo_us=slo_us))
    assert code == 0
    found = texts(file.read_text())
    assert "digits on gpu-nvidia-h200" in found
    assert ("half of 25 ms: two must fit" in found) == (slo_us == 25_000)
    assert told(store, replace(ALL, svg=file), name="minilm")[0] == 0
    assert "no batch is within 25 ms" in texts(file.read_text())
