"""What is on a page, for tests of pages."""

import re
from html.parser import HTMLParser
from xml.etree import ElementTree as ET

SVG = "{http://www.w3.org/2000/svg}"


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


def assert_stands_alone(text: str) -> None:
    """It fetches nothing and runs nothing, and its pictures, of which there are some, do not clash."""
    page = Page(text)
    assert page.fetched == []
    assert not page.tags & {"script", "link", "img", "iframe"}
    assert len(page.ids) == len(set(page.ids))
    assert page.used <= set(page.ids)
    assert texts(text)


def assert_coloured(text: str) -> set[str]:
    """Its pictures have colours by name alone, which the page has for the light and the dark; the names."""
    style, pictures = text[: text.index("</style>")], text[text.index("<svg") :]
    light, dark = style.split("prefers-color-scheme: dark")
    classes = {
        name for found in re.findall(r' class="([^"]*)"', "".join(drawn(pictures))) for name in found.split()
    }
    used = {name[2:] for name in classes if name[:2] in ("f-", "s-")}
    for name in used:
        assert f"--{name}: " in light
        assert f"--{name}: " in dark
    assert not re.findall(r'(?:fill|stroke)[:=]"? ?#', pictures)
    return used


def drawn(text: str) -> list[str]:
    """The pictures of a page."""
    return re.findall(r"<svg.*?</svg>", text, flags=re.DOTALL)


def texts(text: str) -> list[str]:
    """The words that are drawn in its pictures, which are well-formed XML."""
    trees = [ET.fromstring(each) for each in drawn(text)]  # noqa: S314 - our own
    return [
        (found.text or "") + "".join(child.tail or "" for child in found)
        for tree in trees
        for found in tree.iter(f"{SVG}text")
    ]
