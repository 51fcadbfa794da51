"""The metrics port asks for a key where it is told to, and tells of refusals."""

import pytest

from router.observing.telemetry import MetricsServer
from tests.router.observing.test_telemetry_server import GET, exchange, telemetry
from tests.router.security.auth.callers import Callers


def scrape(field: str) -> bytes:
    return GET[:-2] + f"{field}\r\n\r\n".encode()


@pytest.mark.parametrize("field", ["X-API-Key: {}", "authorization:Bearer {}", "Authorization:  bearer  {} "])
async def test_a_key_that_may_read_gets_metrics_and_no_other(field: str) -> None:
    callers = Callers()
    server = MetricsServer(telemetry())
    server.admit = callers.guard.admit_scrape
    port = await server.start("127.0.0.1", 0)
    try:
        head, _ = await exchange(port, scrape(field.format(callers.key("eyes"))))
        assert head.startswith(b"HTTP/1.1 200 OK\r\n")
        head, body = await exchange(port, GET)
        assert head.startswith(b"HTTP/1.1 401 Unauthorized\r\n")
        assert b"WWW-Authenticate: Bearer\r\n" in head + b"\r\n"
        assert body.startswith(b"an API key is needed; ")
        head, body = await exchange(port, scrape(field.format(callers.key("app"))))
        assert head.startswith(b"HTTP/1.1 403 Forbidden\r\n")
        assert body == b"the API key 'app' has the role 'infer'; this needs 'read' or 'admin'\n"
        assert (callers.guard.refused["missing"], callers.guard.refused["role"]) == (1, 1)
    finally:
        await server.stop()
