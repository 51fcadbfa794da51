"""A whole gateway with TLS: every port of it, its status and metrics, and what commands say of it."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.request import HTTPSHandler, build_opener

import grpc
import pytest

from router.commandline.key_env import CA_ENV, CLIENT_CERT_ENV
from router.commandline.reading import RefusedError, UnreachableError, read_json, tls_advice
from router.observing.status.command import fetch
from router.settings import load_settings
from router.startup.deployment import GatewayServer
from tests.certificates import Authority
from tests.router.settings.samples import write_deployment

pytestmark = pytest.mark.live

GATEWAY = """\
server:
  tls: {cert: CERT, key: KEY, client_ca: CA, client_cert: ask}
  rest_port: 0
  grpc_port: 0
  metrics_port: 0
admin: {port: 0}
slices: [{name: a, cores: 1}]
models: [{path: models/digits, slo_ms: 40}]
tenants: [{name: shop, rate: {concurrent: 4}}]
"""


@pytest.fixture
async def gateway(signed: Authority, tmp_path: Path) -> AsyncIterator[GatewayServer]:
    files = {"CERT": "server.pem", "KEY": "server.key", "CA": "ca.pem"}
    text = GATEWAY
    for word, name in files.items():
        text = text.replace(f" {word}", f" {signed.folder / name}")
    settings = load_settings(write_deployment(tmp_path, text))
    gateway = GatewayServer(settings, settings, lambda _line: None)
    await gateway.prepare()
    await gateway.bind()
    yield gateway
    await gateway.close()


def local(url: str) -> str:
    return f"https://localhost:{url.rpartition(':')[2]}"


async def test_every_port_speaks_tls_and_status_and_metrics_say_so(
    gateway: GatewayServer, signed: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(CA_ENV, str(signed.ca))
    opener = build_opener(HTTPSHandler(context=signed.client()))

    def scrape() -> str:
        with opener.open(f"{local(gateway.metrics_url)}/metrics", timeout=60) as answer:
            return str(answer.read(), "utf-8")

    for url in (gateway.rest_url, gateway.admin_url):
        assert url.startswith("https://")
        status = await asyncio.to_thread(fetch, local(url))
        assert status["tls"]["fault"] == ""
        assert [each["tenant"] for each in status["rates"]] == ["shop"]
    trusted = grpc.ssl_channel_credentials(signed.ca.read_bytes())
    target = f"localhost:{gateway.grpc_address.rpartition(':')[2]}"
    async with grpc.aio.secure_channel(target, trusted) as channel:
        live = channel.unary_unary("/inference.GRPCInferenceService/ServerLive")
        assert await live(b"", timeout=60)
    text = await asyncio.to_thread(scrape)
    assert 'penstock_tls_handshakes_total{result="done"} 4' in text
    assert "penstock_tls_last_reload_successful 1" in text


async def test_commands_say_what_is_wrong_with_tls(
    gateway: GatewayServer, signed: Authority, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async def refused(url: str) -> str:
        with pytest.raises(UnreachableError) as caught:
            await asyncio.to_thread(read_json, url, "/v2/status")
        return str(caught.value)

    url = local(gateway.rest_url)
    assert "--ca FILE" in await refused(url)
    with pytest.raises(RefusedError, match="https://"):
        await asyncio.to_thread(read_json, url.replace("https", "http"), "/v2/status")
    monkeypatch.setenv(CA_ENV, str(tmp_path / "none.pem"))
    assert "none.pem" in await refused(url)
    monkeypatch.setenv(CA_ENV, str(signed.ca))
    wrong = ssl.SSLCertVerificationError()
    wrong.verify_message = "Hostname mismatch, certificate is not valid for 'localhost'."
    assert "a name in its certificate" in tls_advice(url, wrong)
    monkeypatch.setenv(CLIENT_CERT_ENV, str(signed.ca))
    assert CLIENT_CERT_ENV in await refused(url)
    shown = tmp_path / "app1.pem"
    shown.write_bytes((signed.folder / "app1.pem").read_bytes() + (signed.folder / "app1.key").read_bytes())
    monkeypatch.setenv(CLIENT_CERT_ENV, str(shown))
    assert isinstance(await asyncio.to_thread(read_json, url, "/v2/status"), dict)
