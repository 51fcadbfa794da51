"""The page's files: small, complete, and nothing of them is fetched from elsewhere."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from router.observing.page.route import TYPES, page_files

FILES = page_files()
OWN = [name for name in FILES if name.endswith((".js", ".css", ".html")) and not name.startswith("uplot")]
BYTES_MAX = 300_000


def test_all_files_together_are_small() -> None:
    assert sum(map(len, FILES.values())) < BYTES_MAX


def test_every_file_has_a_type() -> None:
    assert {Path(name).suffix for name in FILES} <= TYPES.keys()


def test_what_a_file_names_is_there() -> None:
    for name in OWN:
        text = FILES[name].decode()
        named = re.findall(r'(?:src|href)="page/([^"]+)"|from "\./([^"]+)"', text)
        for found in (one or other for one, other in named):
            assert found in FILES, f"{name} names {found}"


def test_nothing_comes_from_another_host_and_no_text_becomes_markup() -> None:
    for name in OWN:
        text = FILES[name].decode()
        assert not re.search(r"(?<!xmlns=\")https?://", text), name
        assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(", text), name


def test_the_licence_of_the_charts_is_there() -> None:
    assert b"MIT" in FILES["uplot-license.txt"]


@pytest.mark.parametrize("name", [each for each in OWN if each.endswith(".js")])
def test_each_module_can_be_read(name: str, tmp_path: Path) -> None:
    node = shutil.which("node")
    if node is None:
        pytest.skip("node is not here: tests/acceptance/test_page.py runs the modules in a browser")
    module = tmp_path / f"{name}.mjs"
    module.write_bytes(FILES[name])
    found = subprocess.run([node, "--check", str(module)], capture_output=True, text=True, check=False)
    assert found.returncode == 0, found.stderr
