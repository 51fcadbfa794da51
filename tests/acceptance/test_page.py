"""The operators' page of a running gateway: its routes as any client reads them, and its screens in a browser
where there is one."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from router.observing.page.feed import WATCHERS_MAX
from tests.acceptance.gateway import PATIENT_MS, ROOT, GatewayProcess, await_true
from tests.router.observing.page.looks.measures import MEASURE, faults

if TYPE_CHECKING:
    from playwright.sync_api import Browser, Page

pytestmark = pytest.mark.slow

SETTINGS = f"""\
slices: [{{name: a}}, {{name: b}}]
tenants: [{{name: gold}}]
models:
  - {{path: {ROOT / "models/digits"}, slo_ms: {PATIENT_MS}, accuracy_min: 0.97, slices: [a], cache: false}}
  - {{path: {ROOT / "models/simple"}, slo_ms: {PATIENT_MS}, slices: [b], cache: false}}
"""
DIGIT = {"name": "PIXELS", "datatype": "FP32", "shape": [1, 64], "data": [0.5] * 64}
PATIENCE_S = 30.0
TOO_LATE = (503, 504)
"""Refused as it cannot be in time, or given up: which of both is a matter of microseconds."""
CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
SCREENS = ("", "devices", "plans", "what-if", "request", "model/digits", "request/asked-for")


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    """One that has answered a few digits, and could not answer one in time."""
    folder: Path = tmp_path_factory.mktemp("page")
    config = folder / "penstock.yaml"
    config.write_text(SETTINGS)
    started = GatewayProcess.start(config, folder / "log")
    for _ in range(5):
        assert ask(started) == 200
    assert ask(started, **{"x-request-id": "asked-for", "x-request-timeout-ms": "0.01"}) in TOO_LATE
    yield started
    started.kill()
    started.process.wait()


def ask(gateway: GatewayProcess, **headers: str) -> int:
    return gateway.post("/v2/models/digits/infer", json.dumps({"inputs": [DIGIT]}).encode(), headers)[0]


def message(stream: Any) -> dict[str, Any]:
    """The next server-sent event."""
    while not (line := stream.readline().decode()).startswith("data: "):
        assert line, "the stream has ended"
    found: dict[str, Any] = json.loads(line.removeprefix("data: "))
    return found


def live(gateway: GatewayProcess) -> Any:
    return urllib.request.urlopen(f"http://{gateway.rest}/v2/live", timeout=PATIENCE_S)


def test_the_stream_begins_with_all_and_goes_on_with_what_changes(gateway: GatewayProcess) -> None:
    with live(gateway) as stream:
        assert stream.headers["content-type"].startswith("text/event-stream")
        first = message(stream)
        assert first["whole"]
        requests = first["parts"]["model/digits"]["requests"]
        assert requests >= 6
        assert first["parts"]["tenants"]["default"]["requests"] == requests
        assert {each["name"] for each in first["parts"]["slices"]} == {"a", "b"}
        assert "penstock is ready" in " ".join(each["text"] for each in first["events"])
        assert ask(gateway) == 200
        while "model/digits" not in (change := message(stream)["parts"]):
            pass
        assert change["model/digits"]["requests"] == requests + 1
        assert "model/simple" not in change


def test_pages_that_left_make_room(gateway: GatewayProcess) -> None:
    host, _, port = gateway.rest.rpartition(":")
    opened = []
    for _ in range(WATCHERS_MAX):
        connection = socket.create_connection((host, int(port)), timeout=PATIENCE_S)
        connection.sendall(b"GET /v2/live HTTP/1.1\r\nHost: localhost\r\n\r\n")
        connection.recv(1 << 12)  # 200; 503 for the last, if a page of another test has not gone yet
        opened.append(connection)
    status, body = gateway.get("/v2/live")
    assert (status, json.loads(body)) == (503, {"error": f"{WATCHERS_MAX} pages are open, as many as may be"})
    for connection in opened:
        connection.close()
    await_true(lambda: is_let_in(gateway), gateway)


def is_let_in(gateway: GatewayProcess) -> bool:
    try:
        with live(gateway) as stream:
            return bool(message(stream)["whole"])
    except urllib.error.HTTPError:
        return False


def test_the_page_and_its_files_are_served_and_load_nothing_from_elsewhere(gateway: GatewayProcess) -> None:
    with urllib.request.urlopen(f"http://{gateway.rest}/", timeout=PATIENCE_S) as answer:
        assert answer.headers["content-security-policy"].startswith("default-src 'self'")
        text = answer.read().decode()
    for name in re.findall(r'(?:src|href)="(page/[^"]+)"', text):
        assert gateway.get(f"/{name}")[0] == 200, name
    for wrong in ("/page/none.js", "/page/..%2Froute.py", "/page/../route.py"):
        assert gateway.get(wrong)[0] == 404


def test_events_are_read_by_the_command_too(gateway: GatewayProcess) -> None:
    command = [sys.executable, "-m", "router.cli", "status", "--events", "--url", f"http://{gateway.rest}"]
    shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False)
    assert (shown.returncode, shown.stderr) == (0, "")
    assert re.search(r"^\d{4}-.* models +digits is ready", shown.stdout, re.M)
    found = json.loads(gateway.get("/v2/events?limit=1")[1])
    assert len(found["events"]) == 1
    assert json.loads(gateway.get(f"/v2/events?since={found['last']}")[1])["events"] == []
    assert gateway.get("/v2/events?limit=0")[0] == 422


def test_what_if_says_what_another_load_would_do(gateway: GatewayProcess) -> None:
    status, body = gateway.post("/v2/what-if", json.dumps({"rates": {"digits": 20}}).encode())
    assert status == 200, body
    found = json.loads(body)
    assert found["models"][0]["in_time"] > 0.9
    assert set(found["busy"]) == {"a"}  # simple has no rate
    status, body = gateway.post("/v2/what-if", b'{"rates": {"digit": 20}}')
    assert status == 400
    assert "did you mean digits?" in json.loads(body)["error"]


def test_a_plan_is_applied_only_where_one_is_proposed(gateway: GatewayProcess) -> None:
    assert gateway.post("/v2/placement/proposed", b"")[0] == 403  # not at the inference port
    status, body = gateway.change("POST", "/v2/placement/proposed")
    assert (status, json.loads(body)["error"]) == (409, "no plan is proposed at present")


def test_sentences_come_with_figures_where_they_are_asked_for(gateway: GatewayProcess) -> None:
    explained = json.loads(gateway.get("/v2/models/digits/explain?words=true")[1])
    assert explained["sentences"][0].startswith("digits: 99 % of requests within")
    assert "sentences" not in json.loads(gateway.get("/v2/models/digits/explain")[1])
    request = json.loads(gateway.get("/v2/requests/asked-for?words=true")[1])
    assert request["sentences"][0].startswith("asked-for: digits, 1 row")


@pytest.fixture(scope="module")
def browser() -> Iterator["Browser"]:
    """A real one."""
    if CHROMIUM is None:
        pytest.skip("no Chromium is here: apt-get install chromium")
    api = pytest.importorskip("playwright.sync_api")
    with api.sync_playwright() as started:
        running = started.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield running
        running.close()


@pytest.fixture
def page(gateway: GatewayProcess, browser: "Browser") -> Iterator["Page"]:
    """A tab that shares nothing with others; what its console says of errors fails the test."""
    tab = browser.new_page(viewport={"width": 1280, "height": 900})
    faults: list[str] = []
    tab.on("pageerror", lambda error: faults.append(str(error)))
    tab.on("console", lambda line: faults.append(line.text) if line.type == "error" else None)
    tab.set_default_timeout(PATIENCE_S * 1000)
    tab.goto(f"http://{gateway.rest}/")
    tab.wait_for_selector("#state.good")
    yield tab
    tab.close()
    assert [each for each in faults if "Failed to load resource" not in each] == []


def test_every_screen_shows_what_it_is_for(gateway: GatewayProcess, page: "Page") -> None:
    expected = {
        "": "digits", "devices": "ensemble", "plans": "As penstock.yaml says", "what-if": "would be kept",
        "request": "asked-for", "model/digits": "99 % of requests within", "request/asked-for": "asked-for",
    }  # fmt: skip
    for screen in SCREENS:
        page.goto(f"http://{gateway.rest}/#/{screen}")
        if screen == "what-if":
            page.wait_for_selector("input[aria-label='Requests a second for digits']")
            page.fill("input[aria-label='Requests a second for digits']", "5")
        page.wait_for_function("text => document.querySelector('main').innerText.includes(text)",
                               arg=expected[screen])  # fmt: skip


@pytest.mark.parametrize(("scheme", "width"), [("light", 1280), ("dark", 1280), ("dark", 400)])
def test_every_screen_is_legible_and_nothing_overlaps(
    gateway: GatewayProcess, browser: "Browser", scheme: Any, width: int
) -> None:
    tab = browser.new_page(viewport={"width": width, "height": 900}, color_scheme=scheme)
    for screen in SCREENS:
        tab.goto(f"http://{gateway.rest}/#/{screen}")
        tab.wait_for_selector("#state.good")
        tab.wait_for_timeout(300)
        assert faults(tab.evaluate(MEASURE)) == [], screen
    tab.close()


def test_the_keyboard_reaches_every_screen_and_narrow_screens_need_no_sideways_scroll(page: "Page") -> None:
    page.keyboard.press("2")
    page.wait_for_selector("h2:has-text('Replicas, by slice')")
    page.keyboard.press("/")
    page.keyboard.type("asked-for")
    page.keyboard.press("Enter")
    page.wait_for_selector("h2:has-text('Request asked-for')")
    page.set_viewport_size({"width": 380, "height": 800})
    for digit in "12345":
        page.keyboard.press("Escape")
        page.evaluate("document.activeElement.blur()")
        page.keyboard.press(digit)
        page.wait_for_timeout(200)
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")


def test_a_link_keeps_the_keyboards_focus_while_figures_change(page: "Page") -> None:
    page.focus("td a[href='#/model/digits']")
    page.evaluate("window.held = document.activeElement")
    page.wait_for_function("() => !window.held.isConnected")
    assert page.evaluate("document.activeElement.getAttribute('href')") == "#/model/digits"


def test_what_a_client_calls_itself_is_text_on_the_page(gateway: GatewayProcess, page: "Page") -> None:
    name = "<img src=x onerror=document.title='owned'>"
    assert ask(gateway, **{"x-request-id": name, "x-request-timeout-ms": "0.01"}) in TOO_LATE
    page.keyboard.press("5")
    page.wait_for_selector(f"text={name}")
    assert page.query_selector("main img") is None
    assert "owned" not in page.title()


def test_a_dead_worker_and_a_dead_gateway_are_said(gateway: GatewayProcess, page: "Page") -> None:
    status = json.loads(gateway.get("/v2/status")[1])
    pid = next(each["pid"] for each in status["slices"] if each["name"] == "b")
    os.kill(pid, signal.SIGKILL)
    page.wait_for_selector("li:has-text('the worker of slice b was killed by SIGKILL')")
    gateway.process.send_signal(signal.SIGSTOP)
    page.wait_for_selector("#state.bad:has-text('old')")
    gateway.process.send_signal(signal.SIGCONT)
    page.wait_for_selector("#state.good")
    gateway.kill()
    page.wait_for_selector("#state.bad:has-text('old')")
