"""What the page looks like, in a real browser and with fixed data, is what it looked like before.

Two things are compared with `references/`: where its boxes are, and a small picture of the whole. Whatever
the references say, text has contrast, and no box lies on another or out of sight.

`pytest tests/router/observing/page/looks --update-looks` writes the references again; read their diff.
"""

import base64
import json
import shutil
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.router.observing.page.looks.measures import MEASURE, faults
from tests.router.observing.page.looks.scenes import APART_S, AT_S, SCENES, Scene
from tests.router.observing.page.looks.stand import served

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
REFERENCES = HERE / "references"
BYTES_MAX = 200_000
"""Of all references."""
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
ARGUMENTS = ("--no-sandbox", "--force-color-profile=srgb")
COLOURS = ("light", "dark")

NEAR_PX = 4
"""Another edition of the browser may round a line's height otherwise; a panel that moves is farther."""
LOST_CONTRAST = 0.9
"""An edge with less of its contrast than this share is on its way to be invisible."""
BLOCK_PX = 16
MEAN_MAX, FAR_MAX = 2.0, 0.01
"""Of a picture: the mean difference of a block (of 255), and the share of blocks that differ clearly."""

Boxes = Mapping[str, list[float]]


@pytest.fixture(scope="module")
def browser() -> Iterator["Browser"]:
    if CHROMIUM is None:
        pytest.skip("no Chromium is here: apt-get install chromium")
    api = pytest.importorskip("playwright.sync_api")
    with api.sync_playwright() as started:
        found = started.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield found
        found.close()


def opened(browser: "Browser", url: str, scene: Scene, colours: str) -> "Page":
    """A tab that shows the scene; its time stands still."""
    context = browser.new_context(
        viewport={"width": scene.width, "height": 900}, device_scale_factor=1, timezone_id="UTC",
        locale="en-GB", reduced_motion="reduce", color_scheme="dark" if colours == "dark" else "light",
    )  # fmt: skip
    page = context.new_page()
    page.clock.install(time=AT_S)
    page.clock.pause_at(AT_S + APART_S)
    page.goto(f"{url}/#/{scene.screen}")
    for selector in ("#state.good", *scene.shows):
        page.wait_for_selector(selector)
    page.evaluate("async () => { await document.fonts.ready; }")
    return page


def look(browser: "Browser", scene: Scene, colours: str, css: str = "") -> tuple[dict[str, Any], str]:
    """The scene's measures (`measure.js`), and its screenshot as a data URL."""
    with served(scene, css) as url:
        page = opened(browser, url, scene, colours)
        try:
            measured = page.evaluate(MEASURE)
            shot = page.screenshot(full_page=True, animations="disabled", caret="hide")
        finally:
            page.context.close()
    return measured, f"data:image/png;base64,{base64.b64encode(shot).decode()}"


def small(browser: "Browser", shot: str, before: str) -> dict[str, Any]:
    """The screenshot as a small picture (`text`), and how far it is from the one before, "" for none."""
    page = browser.new_page()
    try:
        found: dict[str, Any] = page.evaluate(
            (HERE / "picture.js").read_text("utf-8"), [shot, before, BLOCK_PX]
        )
    finally:
        page.close()
    return found


def data_url(picture: Path) -> str:
    return f"data:image/png;base64,{base64.b64encode(picture.read_bytes()).decode()}"


def unlike(apart: Mapping[str, Any]) -> str:
    """How a picture differs from the one before, "" if it does not."""
    if "size" in apart:
        return f"the picture has {apart['size']} blocks"
    if apart["mean"] <= MEAN_MAX and apart["far"] <= FAR_MAX:
        return ""
    return f"a block differs by {apart['mean']:.2f} on average, and {apart['far']:.1%} of them clearly"


def differences(was: Boxes, now: Boxes) -> list[str]:
    """What has moved, gone, come, or lost the contrast of its edge."""
    found = [f"gone: {name}" for name in was if name not in now]
    found += [f"new: {name}" for name in now if name not in was]
    for name in (each for each in was if each in now):
        (*place, edge), (*to, edge_now) = was[name], now[name]
        if any(abs(one - other) > NEAR_PX for one, other in zip(place, to, strict=True)):
            found.append(f"moved: {name}, from {place} to {to}")
        if edge and edge_now < 1 + (edge - 1) * LOST_CONTRAST:
            found.append(f"its edge has a contrast of {edge_now}, not {edge}: {name}")
    return found


@pytest.mark.parametrize("colours", COLOURS)
@pytest.mark.parametrize("name", SCENES)
def test_the_page_looks_as_it_did(
    browser: "Browser", name: str, colours: str, request: pytest.FixtureRequest
) -> None:
    measured, shot = look(browser, SCENES[name], colours)
    assert faults(measured) == []
    boxes, picture = REFERENCES / f"{name}-{colours}.json", REFERENCES / f"{name}-{colours}.png"
    if request.config.getoption("--update-looks"):
        lines = (f"{json.dumps(key)}: {json.dumps(value)}" for key, value in measured["boxes"].items())
        boxes.write_text("{\n" + ",\n".join(lines) + "\n}\n", "utf-8")
        picture.write_bytes(base64.b64decode(small(browser, shot, "")["text"].partition(",")[2]))
    assert differences(json.loads(boxes.read_text("utf-8")), measured["boxes"])[:12] == []
    assert unlike(small(browser, shot, data_url(picture))) == ""


BREAKS = {
    "a panel moves": (".gpus { margin-left: 12px; }", "moved: section.box.gpu"),
    "panels overlap": (".gpu { margin-bottom: -60px; }", "overlaps: "),
    "a panel disappears": (".strip { display: none; }", "gone: div.strip"),
    "an edge fades": (".gpu { border-color: var(--panel); }", "its edge has a contrast"),
    "text fades": (".box span { color: #999; }", "faint: "),
    "a panel leaves the screen": (".scroll { width: 1400px; }", "outside: "),
}


@pytest.mark.parametrize("broken", BREAKS)
def test_a_page_that_is_broken_on_purpose_is_found(browser: "Browser", broken: str) -> None:
    css, expected = BREAKS[broken]
    measured, _ = look(browser, SCENES["devices-mig"], "light", css)
    was = json.loads((REFERENCES / "devices-mig-light.json").read_text("utf-8"))
    found = [*faults(measured), *differences(was, measured["boxes"])]
    assert any(each.startswith(expected) for each in found), found[:12]


def test_a_picture_with_other_colours_is_found(browser: "Browser") -> None:
    css = ".seat, .meter { background: var(--ink); }"
    _, shot = look(browser, SCENES["devices-mig"], "light", css)
    assert unlike(small(browser, shot, data_url(REFERENCES / "devices-mig-light.png")))


def test_the_references_are_small() -> None:
    files = [*REFERENCES.iterdir(), HERE / "recorded.json", HERE / "looks.woff2"]
    assert sum(each.stat().st_size for each in files) < BYTES_MAX
    assert {each.stem for each in REFERENCES.iterdir()} == {f"{a}-{b}" for a in SCENES for b in COLOURS}
