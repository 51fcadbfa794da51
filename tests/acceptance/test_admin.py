"""What changes something goes through the admin door of a real gateway and leaves a line; no page does it."""

import json
import re
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import tritonclient.grpc as grpc_client
import tritonclient.http as http_client
from tritonclient.utils import InferenceServerException

from router.verbs.place.live.following import PlacementClient, carry_out
from tests.acceptance.gateway import PATIENT_MS, PORTS, ROOT, TALK_S, GatewayProcess, await_true, orderly

pytestmark = pytest.mark.slow

CONFIG = f"""
slices: [{{name: a}}]
models: [{{path: {ROOT}/models/simple, slo_ms: {PATIENT_MS}}}]
profiles: {{folder: {ROOT}/profiles}}
"""
UNLOAD = "/v2/repository/models/simple/unload"
PAGES = {
    "a plain POST of another origin": {"Origin": "http://evil.example", "Content-Type": "text/plain"},
    "a name that points here": {"Host": "evil.example:8004", "Origin": "http://evil.example:8004"},
    "another site": {"Sec-Fetch-Site": "cross-site"},
}
WITHOUT_ADMIN = [each for each in PORTS if each != "--admin-port"]


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    file = tmp_path_factory.mktemp("admin") / "penstock.yaml"
    file.write_text(CONFIG)
    with orderly(file) as started:
        yield started


def is_ready(gateway: GatewayProcess) -> bool:
    return gateway.get("/v2/models/simple/ready")[0] == 200


def audited(gateway: GatewayProcess, begins: str) -> list[str]:
    return re.findall(rf"audit: ({re.escape(begins)}.*)", gateway.output)


def test_triton_clients_change_models_at_the_admin_door_alone(gateway: GatewayProcess) -> None:
    with (
        http_client.InferenceServerClient(gateway.rest) as rest,
        grpc_client.InferenceServerClient(gateway.grpc) as grpc,
        http_client.InferenceServerClient(gateway.admin) as admin,
    ):
        for client in (rest, grpc):
            assert client.get_model_repository_index()
            with pytest.raises(InferenceServerException) as refused:
                client.unload_model("simple")
            assert f"ask the admin door, http://{gateway.admin}, or set" in str(refused.value)
            assert "admin: {on_inference_ports: true}" in str(refused.value)
        assert "PERMISSION_DENIED" in str(refused.value)
        assert rest.is_model_ready("simple")
        admin.unload_model("simple")
        assert not rest.is_model_ready("simple")
        admin.load_model("simple")
        assert admin.is_model_ready("simple")
        assert rest.is_model_ready("simple")
    await_true(lambda: audited(gateway, "POST /v2/repository/models/simple/load"), gateway)
    for path in (UNLOAD, UNLOAD.replace("unload", "load")):
        (line,) = audited(gateway, f"POST {path}")
        assert re.fullmatch(rf"POST {path} by 127\.0\.0\.1:\d+ through the admin door: 200", line)
    (line,) = audited(gateway, f"refused: POST {UNLOAD} by 127.0.0.1:")
    assert line.endswith("through the REST port: 403")
    (line,) = audited(gateway, "refused: RepositoryModelUnload 'simple' by ipv4:127.0.0.1")
    assert line.endswith("through the gRPC port: PERMISSION_DENIED")


@pytest.mark.parametrize("page", PAGES)
def test_no_web_page_unloads_a_model(gateway: GatewayProcess, page: str) -> None:
    assert gateway.change("POST", UNLOAD, b"", PAGES[page])[0] == 403
    assert gateway.post(UNLOAD, b"", PAGES[page])[0] == 403
    assert is_ready(gateway)


def test_the_admin_door_is_an_edge_and_serves_what_rest_serves(gateway: GatewayProcess) -> None:
    for path in ("/v2/status", "/v2/models/simple", "/v2/placement", "/docs", "/v2/health/ready"):
        assert gateway.change("GET", path)[0] == gateway.get(path)[0] == 200
    edges = json.loads(gateway.get("/v2/status")[1])["edges"]
    assert [each["name"] for each in edges if each["listening"]] == ["rest", "grpc", "admin", "metrics"]
    assert 'penstock_edge_up{edge="admin"} 1\n' in gateway.read_metrics()
    body = json.loads(gateway.get("/v2/models/simple/example")[1])
    status, answer = gateway.change("POST", "/v2/models/simple/infer", json.dumps(body).encode())
    assert status == 200, answer


def test_place_says_where_to_go_when_it_is_sent_to_the_inference_port(
    gateway: GatewayProcess, capsys: pytest.CaptureFixture[str]
) -> None:
    door = PlacementClient(f"http://{gateway.rest}")
    assert door.read()["by"] == "file"
    assert carry_out(door, {}) == 1
    assert f"ask the admin door, http://{gateway.admin}, or set" in capsys.readouterr().err


def test_a_socket_is_there_while_the_gateway_is(tmp_path: Path) -> None:
    config, door = tmp_path / "penstock.yaml", tmp_path / "door"
    config.write_text(CONFIG + f"admin: {{socket: {door}}}\n")
    gateway = GatewayProcess(config, tmp_path / "log", free=WITHOUT_ADMIN)
    try:
        gateway.await_ready()
        assert gateway.admin == f"unix:{door}"
        assert stat.S_IMODE(door.stat().st_mode) == 0o600
        told = PlacementClient(gateway.admin).read()
        assert told["by"] == "file"
        drop = b"DELETE /v2/cache HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
        assert b"200 OK" in ask(door, drop)
        assert b"403 Forbidden" in ask(door, drop.replace(b"Host: localhost", b"Host: evil.example"))
        await_true(lambda: "by a local process through the admin door: 200" in gateway.output, gateway)
        asked = [sys.executable, "-m", "router.cli", "status", "--once", "--url", gateway.admin]
        shown = subprocess.run(asked, capture_output=True, text=True, cwd=ROOT, timeout=TALK_S, check=False)
        assert (shown.returncode, shown.stderr) == (0, "")
        assert "simple" in shown.stdout

        taken = GatewayProcess.refused(config, WITHOUT_ADMIN)
        assert f"cannot serve the admin door on {door}: another process listens there" in taken
        assert door.exists()

        door.unlink()  # somebody tidies up
        await_true(lambda: takes_connections(door), gateway)
        assert PlacementClient(gateway.admin).read()["by"] == "file"
        assert 'penstock_edge_restarts_total{edge="admin"} 1\n' in gateway.read_metrics()
        gateway.kill()
        gateway.process.wait()
        assert door.exists()
    finally:
        gateway.kill()
        gateway.process.wait()
    again = GatewayProcess(config, tmp_path / "again", free=WITHOUT_ADMIN)
    assert PlacementClient(again.admin).read()["by"] == "file"
    assert again.stop() == 0, again.output
    assert not door.exists()


def takes_connections(path: Path) -> bool:
    """Whether a server listens there: its socket has a name a moment before."""
    with socket.socket(socket.AF_UNIX) as connection:
        return connection.connect_ex(str(path)) == 0


def ask(path: Path, request: bytes) -> bytes:
    """The whole answer to a request on a Unix socket."""
    with socket.socket(socket.AF_UNIX) as caller:
        caller.settimeout(TALK_S)
        caller.connect(str(path))
        caller.sendall(request)
        answer = b""
        while piece := caller.recv(65536):
            answer += piece
        return answer
