"""docker-compose.yml is valid, and agrees with the settings, the sample and the image.

Nothing here starts a container: there is no Docker where these tests run.
"""

import re
import shlex
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from loadtests.stand.redis_server import redis_server
from router.settings import ServerSettings, Settings, load_settings
from router.settings.door.admin import AdminSettings
from serving.cache.spec import CacheSpec, RedisSpec
from serving.values.specs import Limits
from tests.deploy.files import COMPOSE, COMPOSE_FILE, ROOT, SERVICES

GATEWAY = SERVICES["gateway"]
SPECIFICATION = "vendor.compose-spec"
REDIS_URL = "redis://redis:6379/0"  # the service of that name on its default port, which no option changes


def container_port(port: str) -> int:
    """Of `address:host port:container port`."""
    return int(port.rpartition(":")[2])


def content(name: str) -> str:
    return str(COMPOSE["configs"][name]["content"])


def seconds(duration: str) -> float:
    found = re.fullmatch(r"(\d+)(s|m)", duration)
    assert found is not None, duration
    return int(found[1]) * {"s": 1, "m": 60}[found[2]]


@pytest.fixture
def settings(tmp_path: Path) -> Path:
    """What the compose file gives the gateway, beside the models, as in the image."""
    (tmp_path / "models").symlink_to(ROOT / "models")
    path = tmp_path / "penstock.yaml"
    path.write_text(content("penstock"))
    return path


def check_schema(path: Path) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "check_jsonschema", "--builtin-schema", SPECIFICATION, str(path)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


@pytest.mark.slow
def test_the_file_is_valid_by_the_compose_specification() -> None:
    done = check_schema(COMPOSE_FILE)
    assert done.returncode == 0, done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("    healthcheck:", "    healthchecks:"),
        ("service_healthy", "healthy"),
        ("    init: true", "    init: 3"),
    ],
)
def test_the_specification_refuses_a_mistake(tmp_path: Path, old: str, new: str) -> None:
    text = COMPOSE_FILE.read_text("utf-8")
    assert old in text
    (tmp_path / "docker-compose.yml").write_text(text.replace(old, new, 1))
    done = check_schema(tmp_path / "docker-compose.yml")
    assert done.returncode == 1
    assert "docker-compose.yml" in done.stdout


def test_the_services_are_the_gateway_redis_prometheus_and_grafana() -> None:
    assert set(SERVICES) == {"gateway", "redis", "prometheus", "grafana"}


@pytest.mark.parametrize("service", SERVICES)
def test_every_service_is_restarted_and_says_whether_it_is_well(service: str) -> None:
    assert SERVICES[service]["restart"] == "unless-stopped"
    assert {"test", "interval", "timeout", "retries"} <= SERVICES[service]["healthcheck"].keys()


def test_what_services_refer_to_is_declared_and_what_is_declared_is_used() -> None:
    configs = {config["source"] for service in SERVICES.values() for config in service.get("configs", [])}
    volumes = {
        volume.partition(":")[0] for service in SERVICES.values() for volume in service.get("volumes", [])
    }
    needed = {name for service in SERVICES.values() for name in service.get("depends_on", {})}
    assert configs == set(COMPOSE["configs"])
    assert volumes == set(COMPOSE["volumes"])
    assert needed <= set(SERVICES)


def test_who_waits_for_a_healthy_service_waits_for_one_that_tells() -> None:
    for service in SERVICES.values():
        for name, need in service.get("depends_on", {}).items():
            assert need["condition"] in ("service_started", "service_healthy")
            assert need["condition"] == "service_started" or "healthcheck" in SERVICES[name]


def test_images_are_of_a_stated_version() -> None:
    tags = [service["image"].partition(":")[2] for service in SERVICES.values() if "build" not in service]
    assert tags
    assert all(re.match(r"v?\d+\.\d+", tag) for tag in tags), tags


def test_the_published_ports_are_the_defaults_of_the_settings_and_open_to_this_machine_only() -> None:
    server = ServerSettings()
    ports = [server.rest_port, server.grpc_port, server.metrics_port]
    assert GATEWAY["ports"] == [f"${{PENSTOCK_BIND:-127.0.0.1}}:{port}:{port}" for port in ports]
    assert not [port for port in GATEWAY["ports"] if str(AdminSettings().port) in port]
    assert all(
        port.startswith("${PENSTOCK_BIND:-127.0.0.1}:")
        for service in SERVICES.values()
        for port in service.get("ports", [])
    )


def test_redis_is_reached_by_the_gateway_only() -> None:
    assert "ports" not in SERVICES["redis"]


def test_compose_replaces_nothing_in_the_configs() -> None:
    """It takes a dollar sign for a variable, but not in a file."""
    written = [name for name, config in COMPOSE["configs"].items() if "content" in config]
    assert not [name for name in written if "$" in content(name)]


@pytest.mark.slow
def test_penstock_check_finds_the_gateways_settings_sound(settings: Path) -> None:
    command = [sys.executable, "-m", "router.cli", "check", str(settings)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert f"through {REDIS_URL}" in done.stdout


def test_the_gateways_settings_are_the_samples_but_for_host_and_kept_answers(settings: Path) -> None:
    composed, sample = load_settings(settings), load_settings(ROOT / "penstock.yaml")
    assert composed.server == replace(sample.server, host="0.0.0.0")
    assert (sample.cache, composed.cache) == (None, CacheSpec(redis=RedisSpec(REDIS_URL)))
    assert [model.name for model in (*sample.models, *composed.models) if model.cache] == ["minilm"]
    assert (composed.slices, composed.tenants, composed.limits, composed.recording) == (
        sample.slices,
        sample.tenants,
        sample.limits,
        sample.recording,
    )
    assert served(composed) == served(sample)


def served(settings: Settings) -> list[dict[str, Any]]:
    """What is said of each model; where its folder lies differs."""
    return [
        {
            "name": model.name,
            "slo_us": model.slo_us,
            "variants": model.variants,
            "slices": model.slices,
            "batching": model.batching,
            "default_variant": model.default_variant,
            "needs": model.needs,
            "tiers": model.tiers,
        }
        for model in settings.models
    ]


@pytest.mark.slow
def test_redis_is_bounded_keeps_what_is_asked_for_most_and_writes_nothing() -> None:
    program, *options = shlex.split(SERVICES["redis"]["command"])
    assert program == "redis-server"
    with redis_server(*options) as server, server.client() as client:
        asked = {
            name: client.config_get(name)[name]
            for name in ("maxmemory", "maxmemory-policy", "save", "appendonly")
        }
    assert asked == {
        "maxmemory": str(256 << 20),
        "maxmemory-policy": "allkeys-lfu",
        "save": "",
        "appendonly": "no",
    }


def test_a_container_is_stopped_only_after_the_gateways_own_time_to_drain() -> None:
    limits = Limits()
    assert seconds(GATEWAY["stop_grace_period"]) >= limits.drain_grace_s + limits.drain_s + 10


def test_a_container_may_open_as_many_connections_as_the_gateway_accepts() -> None:
    """Of REST and of gRPC, with some left for workers, metrics and files."""
    assert GATEWAY["ulimits"]["nofile"]["soft"] >= 2 * Limits().connection_count + 1024


def test_starting_may_take_as_long_as_the_gateway_gives_its_workers() -> None:
    assert seconds(GATEWAY["healthcheck"]["start_period"]) >= Limits().startup_s


def test_prometheus_scrapes_the_metrics_port_of_the_gateway() -> None:
    (job,) = yaml.safe_load(content("prometheus"))["scrape_configs"]
    assert job["static_configs"] == [{"targets": [f"gateway:{ServerSettings().metrics_port}"]}]
    assert "metrics_path" not in job  # /metrics is Prometheus' default
    assert job.get("scheme", "http") == "http"


def test_prometheus_keeps_what_it_scraped_and_reads_its_config_where_its_image_looks() -> None:
    prometheus = SERVICES["prometheus"]
    assert prometheus["configs"] == [
        {"source": "prometheus", "target": "/etc/prometheus/prometheus.yml"},
        {"source": "rules", "target": "/etc/prometheus/penstock.rules.yaml"},
    ]
    assert prometheus["volumes"] == ["prometheus:/prometheus"]
    assert "command" not in prometheus  # the image's own names these two
