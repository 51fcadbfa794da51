"""Every page names files, modules and headings that there are."""

import ast
import builtins
import functools
import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.architecture.source_rules import ROOT, ROOTS, sources

PAGES = sorted((*(ROOT / "docs").glob("**/*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"))
INNER = [
    page
    for page in PAGES
    if page == ROOT / "docs" / "architecture.md" or page.parent.name in ("decisions", "extend")
]
"""The pages that describe the code."""
ELSEWHERE = frozenset(("Host",))  # names that are no part of the code: header fields
FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def name(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


def anchor(heading: str) -> str:
    """As GitHub makes it: lower case, of words and hyphens."""
    plain = re.sub(r"[`*]|\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
    return re.sub(r"[^\w\- ]", "", plain).replace(" ", "-")


def anchors(page: Path) -> set[str]:
    text = FENCE.sub("", page.read_text("utf-8"))
    return {anchor(heading) for heading in re.findall(r"^#+ (.+)$", text, re.MULTILINE)}


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_links_lead_to_files_and_headings_that_there_are(page: Path) -> None:
    links = re.findall(r"\]\(([^)\s]+)\)", FENCE.sub("", page.read_text("utf-8")))
    broken = []
    for link in links:
        path, _, heading = link.partition("#")
        if "://" in path:
            continue
        target = (page.parent / path).resolve() if path else page
        if not target.exists() or (heading and heading not in anchors(target)):
            broken.append(link)
    assert broken == []


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_files_and_modules_that_are_named_are_there(page: Path) -> None:
    text = page.read_text("utf-8")
    parts = "|".join((*ROOTS, "docs"))
    paths = re.findall(rf"`((?:{parts})/[\w./-]*)(?:::\w+)?`", text)
    modules = re.findall(r"-m (loadtests[\w.]*)", text)
    missing = [path for path in paths if not (ROOT / path).exists()]
    files = {name: ROOT / name.replace(".", "/") for name in modules}
    missing += [
        name
        for name, path in files.items()
        if not (path.with_suffix(".py").exists() or (path / "__main__.py").exists())
    ]
    assert [each for each in missing if "/build" not in each] == []


@functools.cache
def code() -> tuple[frozenset[str], dict[str, frozenset[str]]]:
    """Return (all names that the code imports or Python has, the classes that each file defines by path)."""
    imported = set(dir(builtins))
    classes: dict[str, frozenset[str]] = {}
    for source in sources():
        nodes = list(ast.walk(source.tree))
        classes[source.path] = frozenset(each.name for each in nodes if isinstance(each, ast.ClassDef))
        imported |= {
            alias.name
            for each in nodes
            if isinstance(each, ast.Import | ast.ImportFrom)
            for alias in each.names
        }
    return frozenset(imported), classes


def stale(text: str) -> Iterator[str]:
    """Yield the file names and class names of a page that the code does not have, or has in another file."""
    imported, classes = code()
    files = {path.rsplit("/", 1)[-1] for path in classes if not path.startswith("tests/")}
    known = imported.union(*classes.values(), ELSEWHERE)
    yield from (each for each in re.findall(r"`(\w+\.py)`", text) if each not in files)
    yield from (each for each in re.findall(r"`([A-Z]\w*[a-z]\w*)`", text) if each not in known)
    for name, path in re.findall(r"`([A-Z]\w*[a-z]\w*)` (?:in |\()`(\w[\w/]*\.py)`", text):
        if name not in classes.get(path, ()):
            yield f"{name} in {path}"


@pytest.mark.parametrize("page", INNER, ids=name)
def test_files_and_classes_that_the_pages_on_the_code_name_are_there(page: Path) -> None:
    assert list(stale(FENCE.sub("", page.read_text("utf-8")))) == []


def imported_in_vain(text: str) -> Iterator[str]:
    """Yield what the code blocks of a page import from the code's modules, and is not there."""
    made = {path.replace("/", ".") for path in re.findall(r"^# ([\w/]+)\.py$", text, re.MULTILINE)}
    for line in re.findall(r"^ *(from [\w.]+ import .+)$", text, re.MULTILINE):
        (node,) = ast.parse(line.strip()).body
        assert isinstance(node, ast.ImportFrom)
        module = node.module or ""
        if module.split(".")[0] in ROOTS and module not in made:
            there = importlib.import_module(module)
            yield from (f"{each.name} of {module}" for each in node.names if not hasattr(there, each.name))


@pytest.mark.parametrize("page", INNER, ids=name)
def test_what_code_blocks_import_is_there(page: Path) -> None:
    assert list(imported_in_vain(page.read_text("utf-8"))) == []


def test_an_import_in_vain_is_found() -> None:
    text = (
        "# tests/new.py\nfrom tests.new import Any\nfrom serving.values.specs import BatchingSpec, NoSuch\n"
    )
    assert list(imported_in_vain(text)) == ["NoSuch of serving.values.specs"]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("`engine.py` and `Exchange`", []),
        ("`nowhere.py`", ["nowhere.py"]),
        ("`test_pages.py`", ["test_pages.py"]),  # a bare name is of the product
        ("a `NoSuchClass` of ours", ["NoSuchClass"]),
        (
            "a `RoundPlanner` (`router/http/fastpath/exchange.py`)",
            ["RoundPlanner in router/http/fastpath/exchange.py"],
        ),
    ],
)
def test_a_stale_name_is_found(text: str, expected: list[str]) -> None:
    assert list(stale(text)) == expected
