"""What is on a page, for tests of pages."""

from html.parser import HTMLParser


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
    assert len(page.ids) == len(set(page.ids)) > 100
    assert page.used <= set(page.ids)
