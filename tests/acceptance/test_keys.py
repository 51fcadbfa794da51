"""A gateway that asks for API keys, over REST, gRPC and the command line, while its keys file is edited."""

import json
import os
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import tritonclient.grpc as rpc
import tritonclient.http as rest
from tritonclient.utils import InferenceServerException

from router.settings.keys import read_keys
from tests.acceptance.gateway import PATIENT_MS, ROOT, GatewayProcess, await_true

pytestmark = pytest.mark.slow

SETTINGS = f"""\
server: {{host: 127.0.0.1}}
auth: {{keys: keys.yaml, metrics: true}}
tenants: [{{name: gold}}]
logging: {{access: true, level: debug}}
slices: [{{name: a}}]
models:
  - {{path: {ROOT / "models/simple"}, slo_ms: {PATIENT_MS}}}
"""


@dataclass
class House:
    """A gateway, its keys file, and the keys that its callers have, by name."""

    gateway: GatewayProcess
    file: Path
    keys: dict[str, str]

    def ask(self, path: str, name: str, method: str = "GET") -> int:
        """The status of a request by that caller, "" for none."""
        headers = {"x-api-key": self.keys[name]} if name else {}
        url = path if path.startswith("http") else f"http://{self.gateway.rest}{path}"
        asked = urllib.request.Request(url, headers=headers, method=method)  # noqa: S310  # it is http
        try:
            with urllib.request.urlopen(asked, timeout=100) as answer:  # noqa: S310
                return int(answer.status)
        except urllib.error.HTTPError as error:
            with error:
                return error.code


def penstock(*words: str, key: str = "") -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "router.cli", *words]
    environment = {**os.environ, "PENSTOCK_KEY": key, "ANOTHER_NAME": key}
    return subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=100, check=False, env=environment
    )


@pytest.fixture(scope="module")
def house(tmp_path_factory: pytest.TempPathFactory) -> Iterator[House]:
    folder = tmp_path_factory.mktemp("keys")
    config = folder / "penstock.yaml"
    config.write_text(SETTINGS)
    keys = {}
    for name, role in (("app", "infer"), ("eyes", "read"), ("boss", "admin")):
        made = penstock("key", "new", "--name", name, "--roles", role, "--tenant", "gold", "-c", str(config))
        assert made.returncode == 0, made.stderr
        keys[name] = made.stdout.strip()
    gateway = GatewayProcess.start(config, folder / "log")
    yield House(gateway, folder / "keys.yaml", keys)
    assert gateway.stop() == 0, gateway.output
    assert "pk_" not in gateway.output
    assert f"keys: 3 keys, in {folder / 'keys.yaml'}; health probes need none" in gateway.output


def inputs(module: object) -> list[object]:
    values = np.ones((1, 16), np.int32)
    made = [module.InferInput(f"INPUT{place}", [1, 16], "INT32") for place in (0, 1)]  # type: ignore[attr-defined]
    for each in made:
        each.set_data_from_numpy(values)
    return made


def test_tritons_clients_bring_a_key_as_a_header(house: House) -> None:
    for module, address in ((rest, house.gateway.rest), (rpc, house.gateway.grpc)):
        with module.InferenceServerClient(address) as client:
            assert client.is_server_ready()
            with pytest.raises(InferenceServerException, match="an API key is needed"):
                client.infer("simple", inputs(module))
            for headers in (
                {"x-api-key": house.keys["app"]},
                {"authorization": f"Bearer {house.keys['app']}"},
            ):
                result = client.infer("simple", inputs(module), headers=headers)
                assert (result.as_numpy("OUTPUT0") == 2).all()
            with pytest.raises(InferenceServerException, match="has the role 'read'; this needs 'infer'"):
                client.infer("simple", inputs(module), headers={"x-api-key": house.keys["eyes"]})


def test_each_role_has_its_doors(house: House) -> None:
    callers = ("", "app", "eyes", "boss")
    for path, method, expected in (
        ("/livez", "GET", [200, 200, 200, 200]),
        ("/v2/models", "GET", [401, 200, 200, 200]),
        ("/v2/status", "GET", [401, 403, 200, 200]),
        ("/v2/models/simple/explain", "GET", [401, 403, 200, 200]),
        ("/v2/placement", "GET", [401, 403, 200, 200]),
        ("/v2/cache", "DELETE", [401, 403, 403, 403]),
        (f"http://{house.gateway.admin}/v2/cache", "DELETE", [401, 403, 403, 200]),
        (f"http://{house.gateway.admin}/v2/status", "GET", [401, 403, 200, 200]),
        (house.gateway.metrics, "GET", [401, 403, 200, 200]),
    ):
        assert [house.ask(path, name, method) for name in callers] == expected, path


def test_commands_send_the_key_of_the_environment(house: House) -> None:
    url = ("--url", f"http://{house.gateway.rest}")
    shown = penstock("status", "--once", *url, key=house.keys["eyes"])
    assert (shown.returncode, shown.stderr) == (0, "")
    assert "simple" in shown.stdout
    shown = penstock("explain", "simple", "--json", "--key-env", "ANOTHER_NAME", *url, key=house.keys["eyes"])
    assert shown.returncode == 0, shown.stderr
    for verb in (("status", "--once"), ("explain", "simple")):
        refused = penstock(*verb, *url)
        assert refused.returncode == 1
        assert "answered 401: an API key is needed; send one as" in refused.stderr
        assert "Put a key into the environment as PENSTOCK_KEY." in refused.stderr
        refused = penstock(*verb, *url, key=house.keys["app"])
        assert "answered 403: the API key 'app' has the role 'infer'; this needs 'read'" in refused.stderr
    metrics = penstock("place", "penstock.yaml", *url)
    assert "an API key is needed" in metrics.stderr


def test_an_edit_of_the_keys_file_counts_while_the_gateway_runs(house: House) -> None:
    made = penstock("key", "new", "--name", "late", "--roles", "read", "--keys", str(house.file))
    house.keys["late"] = made.stdout.strip()
    await_true(lambda: house.ask("/v2/status", "late") == 200, house.gateway)
    house.file.write_text(house.file.read_text() + "- {name: broken}\n")
    await_true(lambda: "the keys stay as they were" in house.gateway.output, house.gateway)
    asked = urllib.request.Request(
        f"http://{house.gateway.rest}/v2/status", headers={"x-api-key": house.keys["late"]}
    )
    with urllib.request.urlopen(asked) as answer:  # noqa: S310
        refused = json.load(answer)["move"]["refused"]
    assert any(str(house.file) in each and "[4]." in each for each in refused)
    text = house.file.read_text()
    house.file.write_text(text.replace("- {name: broken}\n", ""))
    assert penstock("key", "revoke", "late", "--keys", str(house.file)).returncode == 0
    await_true(lambda: house.ask("/v2/status", "late") == 401, house.gateway)
    assert [each.name for each in read_keys(house.file, None)] == ["app", "eyes", "boss"]
    assert "late is revoked" in house.gateway.output
