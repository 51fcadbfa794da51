"""Two real gateways that keep their profiles in one folder, as pods on one volume do."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from serving.profile.files.store import LOCAL, ProfileStore
from tests.acceptance.gateway import PATIENT_MS, ROOT, GatewayProcess

pytestmark = pytest.mark.slow

ROW = {"datatype": "INT32", "shape": [1, 16], "data": [*range(16)]}
ASKED = json.dumps({"inputs": [{"name": "INPUT0"} | ROW, {"name": "INPUT1"} | ROW]}).encode()


@pytest.fixture
def gateways(tmp_path: Path) -> Iterator[list[GatewayProcess]]:
    """Both start at the same time, and nothing is measured yet."""
    started = []
    for name in ("first", "second"):
        config = tmp_path / f"{name}.yaml"
        config.write_text(
            f"slices: [{{name: only}}]\n"
            f"models: [{{path: {ROOT}/models/simple, slo_ms: {PATIENT_MS}}}]\n"
            f"profiles: {tmp_path}/profiles\n"
        )
        started.append(GatewayProcess(config, tmp_path / f"{name}.log"))
    yield started
    for gateway in started:
        gateway.kill()
        gateway.process.wait()


def test_both_measure_at_once_and_serve_and_what_is_kept_is_whole(
    gateways: list[GatewayProcess], tmp_path: Path
) -> None:
    for gateway in gateways:
        gateway.await_ready()
    for gateway in gateways:
        assert gateway.post("/v2/models/simple/infer", ASKED)[0] == 200
        assert "could not be stored" not in gateway.output
    store = ProfileStore(tmp_path / "profiles")
    (kind,) = store.kinds()
    (kept,) = store.sets(kind)
    assert (kept.model, len(kept.profiles), store.problems) == ("simple", 1, [])
    files = [path for path in (tmp_path / "profiles" / LOCAL / kind).iterdir() if path.suffix == ".json"]
    assert [path.name for path in files] == [f"simple.{kept.variant}.json"]
