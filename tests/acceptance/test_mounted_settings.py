"""A gateway whose settings are a mounted ConfigMap: updates arrive, and metrics say whether they count."""

import json
import re
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.acceptance.gateway import PATIENT_MS, ROOT, GatewayProcess, await_true
from tests.config_map import ConfigMap

pytestmark = pytest.mark.slow

SETTINGS = f"""\
server: {{triton_metrics: false}}
slices: [{{name: only}}]
models: [{{path: {ROOT}/models/simple, slo_ms: {PATIENT_MS}}}]
profiles: {ROOT}/profiles
"""
ROW = {"datatype": "INT32", "shape": [1, 16], "data": [*range(16)]}
ASKED = json.dumps({"inputs": [{"name": "INPUT0"} | ROW, {"name": "INPUT1"} | ROW]}).encode()


@pytest.fixture
def mounted(tmp_path: Path) -> ConfigMap:
    return ConfigMap(tmp_path / "mount", SETTINGS)


@pytest.fixture
def gateway(mounted: ConfigMap, tmp_path: Path) -> Iterator[GatewayProcess]:
    started = GatewayProcess.start(mounted.mount / "penstock.yaml", tmp_path / "log")
    yield started
    started.kill()
    started.process.wait()


def value(gateway: GatewayProcess, series: str) -> float:
    (found,) = re.findall(rf"^{re.escape(series)} (\S+)$", gateway.read_metrics(), re.MULTILINE)
    return float(found)


def holds(gateway: GatewayProcess, series: str, expected: float) -> bool:
    return value(gateway, series) == expected


def test_updates_arrive_and_metrics_say_whether_they_are_in_force(
    mounted: ConfigMap, gateway: GatewayProcess
) -> None:
    successful = "penstock_config_last_reload_successful"
    timestamp = "penstock_config_last_reload_success_timestamp_seconds"
    slo = 'penstock_slo_latency_seconds{model="simple"}'
    begun_s = value(gateway, timestamp)
    assert value(gateway, successful) == 1
    for more_s in (1, 2):
        mounted.write(SETTINGS.replace(str(PATIENT_MS), str(PATIENT_MS + more_s * 1000)))
        await_true(partial(holds, gateway, slo, PATIENT_MS / 1000 + more_s), gateway)
    await_true(lambda: value(gateway, timestamp) > begun_s, gateway)
    mounted.write(SETTINGS.replace(str(PATIENT_MS), "soon"))
    await_true(lambda: value(gateway, successful) == 0, gateway)
    assert value(gateway, slo) == (PATIENT_MS + 2000) / 1000
    mounted.write(SETTINGS)
    await_true(lambda: value(gateway, successful) == 1, gateway)
    assert value(gateway, slo) == PATIENT_MS / 1000


def test_metrics_say_what_is_ready_and_how_busy_its_slice_is(gateway: GatewayProcess) -> None:
    busy = 'penstock_slice_busy_seconds_total{slice="only"}'
    assert value(gateway, 'penstock_model_ready{model="simple"}') == 1
    told = gateway.read_metrics()
    assert re.search(r'^penstock_variant_ready\{model="simple",variant="\w+"\} 1$', told, re.MULTILINE)
    build = r'^penstock_build_info\{version="[^"]+",python="3\.[^"]+",decisions="\w+"\} 1$'
    assert re.search(build, told, re.MULTILINE)
    assert "nv_inference" not in told, "they are switched off"
    before = value(gateway, busy)
    assert gateway.post("/v2/models/simple/infer", ASKED)[0] == 200
    assert value(gateway, busy) > before


def test_paths_that_the_pages_name_are_served(gateway: GatewayProcess) -> None:
    """By what the gateway says of itself; `{m}`, `{model}` and `{name}` are one thing to it."""
    served = json.loads(gateway.get("/openapi.json")[1])["paths"]
    there = {(method.upper(), re.sub(r"\{\w+\}", "{}", path)) for path in served for method in served[path]}
    pages = [*(ROOT / "docs").glob("*.md"), ROOT / "README.md"]
    text = "\n".join(page.read_text("utf-8") for page in pages)
    named = set(re.findall(r"`(GET|POST|PUT|DELETE) (/[\w/{}.-]*)", re.sub(r"\[/[^\]]*\]", "", text)))
    named = {(method, re.sub(r"\{\w+\}", "{}", path)) for method, path in named if "..." not in path}
    assert len(named) > 15
    assert named - there <= {("GET", each) for each in ("/", "/docs", "/metrics")}
