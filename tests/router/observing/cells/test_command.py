"""Promises of `penstock cells`, by what a gateway answers."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer

import pytest

from router.observing.cells.body import ALONE
from router.observing.cells.command import show_cells
from tests.router.observing.cells.test_cells import BODY


@contextmanager
def answering(status: int, body: object) -> Iterator[str]:
    """A server with one answer."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            content = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def test_the_table_names_cells_and_models_in_several(capsys: pytest.CaptureFixture[str]) -> None:
    with answering(200, {**BODY, "fault": "cannot meet the other cells"}) as url:
        assert show_cells(url, "table", "KEY") == 0
    shown = capsys.readouterr().out
    assert "cell a cannot meet the other cells" in shown
    assert "map 3 of 3 models, decided by cell b" in shown
    assert "y is in 2 cells: a 25%, b 75%" in shown


def test_json_and_envoy_are_json(capsys: pytest.CaptureFixture[str]) -> None:
    with answering(200, BODY) as url:
        assert show_cells(url, "json", "KEY") == 0
        assert json.loads(capsys.readouterr().out) == BODY
        assert show_cells(url, "envoy", "KEY") == 0
        assert "static_resources" in json.loads(capsys.readouterr().out)


def test_what_a_gateway_cannot_say_is_a_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    with answering(404, {"error": ALONE}) as url:
        assert show_cells(url, "table", "KEY") == 1
    assert capsys.readouterr().err.strip() == ALONE
    assert show_cells("http://127.0.0.1:9", "table", "KEY") == 1
    assert "127.0.0.1:9" in capsys.readouterr().err
    assert show_cells("ftp://x", "table", "KEY") == 1
    assert "is no gateway address" in capsys.readouterr().err
