"""A server of the page's own files and of one scene: no gateway, and the same bytes each time."""

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from router.observing.page.route import STREAM, TYPES, page_files
from tests.router.observing.page.looks.scenes import RECORDED, Scene

FONT = Path(__file__).with_name("looks.woff2")
"""DejaVu Sans with the letters of the scenes alone; its licence is within it."""
ONE_FONT = """
@font-face { font-family: looks; src: url(looks.woff2); }
* { font-family: looks !important; text-rendering: geometricPrecision; }
* { transition: none !important; animation: none !important; }
"""
"""Text is as wide on every machine: without hints, which a machine's settings may turn on."""


class Stand(ThreadingHTTPServer):
    """The server of a scene. `css`: further rules of the page."""

    daemon_threads = True

    def __init__(self, scene: Scene, css: str) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.stream = scene.stream()
        self.end = threading.Event()
        self.bodies = {
            "/v2/status": scene.readings()[1],
            "/v2/placement": RECORDED["placement"],
            "/v2/requests": {"requests": []},
        }
        self.files = page_files()
        self.files["page.css"] += (ONE_FONT + css).encode()
        self.files["looks.woff2"] = FONT.read_bytes()


class Handler(BaseHTTPRequestHandler):
    """Answers as a gateway does; the stream stays open until the server ends."""

    protocol_version = "HTTP/1.1"
    server: Stand

    def do_GET(self) -> None:
        """Answer a request."""
        path = self.path.partition("?")[0]
        if path == "/v2/live":
            self.close_connection = True
            self._head(STREAM)
            self.wfile.write(self.server.stream)
            self.server.end.wait()
        elif path in self.server.bodies:
            self._send("application/json", json.dumps(self.server.bodies[path]).encode())
        else:
            name = path.removeprefix("/page/") if path != "/" else "index.html"
            self._send(TYPES.get(Path(name).suffix, "font/woff2"), self.server.files[name])

    def _head(self, kind: str, **fields: str) -> None:
        self.send_response(200)
        for name, value in {"content-type": kind, **fields}.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()

    def _send(self, kind: str, content: bytes) -> None:
        self._head(kind, content_length=str(len(content)))
        self.wfile.write(content)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@contextmanager
def served(scene: Scene, css: str = "") -> Iterator[str]:
    """Serve the scene at the URL that is yielded. `css`: further rules of the page."""
    server = Stand(scene, css)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.end.set()
        server.shutdown()
        server.server_close()
        thread.join()
