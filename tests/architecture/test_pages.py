"""Every page names files, modules and headings that there are."""

import re
from pathlib import Path

import pytest

from tests.architecture.source_rules import ROOT, ROOTS

PAGES = sorted((*(ROOT / "docs").glob("**/*.md"), ROOT / "README.md", ROOT / "CONTRIBUTING.md"))
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
