"""The manifests of docs/kubernetes are valid, agree with each other and with the gateway, and bring about the
number of pods that the load takes.

Nothing here talks to a cluster: there is none where these tests run.
"""

import re
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import fields
from math import ceil
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from router.commandline.node_options import NodeOptions
from router.management.cells import LEAVE_S
from router.observing.telemetry import Present, ScalePresent, Telemetry
from router.settings import ServerSettings, Settings, SettingsError, load_settings
from serving.policy.scaling.baselines.hpa import is_near
from serving.profile.files.store import LOCAL
from tests.deploy.files import ROOT
from tests.router.happenings import samples

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of packages that it finds its schemas by
    import kubernetes_validate

FOLDER = ROOT / "docs" / "kubernetes"
CLUSTER = "1.34"
"""A release of Kubernetes that the schemas are of."""


def documents(name: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all((FOLDER / f"{name}.yaml").read_text("utf-8")))


CONFIG, CLAIM, DEPLOYMENT, SERVICE = documents("deployment")
(HPA,) = documents("hpa")
(KEDA,) = documents("keda")
(SCRAPED,) = documents("prometheus")
(ADAPTER,) = documents("prometheus-adapter")
NODE_DOOR, NODE_NAMES, NODE_SET = documents("nodes")
CELLS_CONFIG, CELLS_SERVICE, CELLS_REDIS, REDIS_SET, CELLS_SET = documents("cells")
CELLS = [CELLS_CONFIG, CELLS_SERVICE, CELLS_REDIS, REDIS_SET, CELLS_SET]
POD = DEPLOYMENT["spec"]["template"]
(CONTAINER,) = POD["spec"]["containers"]
(TRIGGER,) = KEDA["spec"]["triggers"]
(RULE,) = yaml.safe_load(ADAPTER["data"]["config.yaml"])["rules"]
SCRAPE = yaml.safe_load(SCRAPED["data"]["prometheus.yml"])
SERIES, METRIC = "penstock_slo_pressure", HPA["spec"]["metrics"][0]["pods"]
IMAGE = re.findall(r"^WORKDIR (.+)$", (ROOT / "Dockerfile").read_text("utf-8"), re.MULTILINE)[-1]
"""Where the image has the tree."""
ADDED = {"namespace", "pod"}
"""Labels that Prometheus adds."""


@pytest.fixture
def settings(tmp_path: Path) -> Settings:
    path = tmp_path / "penstock.yaml"
    path.write_text(CONFIG["data"]["penstock.yaml"].replace(f"{IMAGE}/", f"{ROOT}/"))
    return load_settings(path)


@pytest.mark.slow
@pytest.mark.parametrize(
    "document",
    [CONFIG, CLAIM, DEPLOYMENT, SERVICE, HPA, SCRAPED, ADAPTER, NODE_DOOR, NODE_NAMES, NODE_SET, *CELLS],
    ids=lambda each: str(each["kind"]),
)
def test_the_manifests_are_valid_by_the_schemas_of_kubernetes(document: dict[str, Any]) -> None:
    kubernetes_validate.validate(document, CLUSTER, strict=True)


def test_the_cells_manifest_agrees_with_the_gateway(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PENSTOCK_CELL_TOKEN", "0123456789abcdef")
    path = tmp_path / "penstock.yaml"
    path.write_text(CELLS_CONFIG["data"]["penstock.yaml"].replace(f"{IMAGE}/", f"{ROOT}/"))
    settings = load_settings(path)
    assert settings.cells is not None
    assert settings.cells.redis.place == f"redis://{CELLS_REDIS['metadata']['name']}:6379/0"
    (container,) = CELLS_SET["spec"]["template"]["spec"]["containers"]
    ports = {each["name"]: each["containerPort"] for each in container["ports"]}
    assert ports == {"rest": 8000, "grpc": 8001, "metrics": 8002, "cells": settings.cells.port}
    grace_s = CELLS_SET["spec"]["template"]["spec"]["terminationGracePeriodSeconds"]
    assert grace_s > LEAVE_S + settings.limits.drain_grace_s + settings.limits.drain_s
    assert [each["name"] for each in container["env"]] == ["PENSTOCK_CELL_TOKEN"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("averageValue", "averageValues"),
        ("type: Pods", "kind: Pods"),
        ("maxReplicas: 10", "maxReplicas: many"),
    ],
)
def test_the_schemas_refuse_a_mistake(old: str, new: str) -> None:
    text = (FOLDER / "hpa.yaml").read_text("utf-8")
    assert old in text
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(yaml.safe_load(text.replace(old, new, 1)), CLUSTER, strict=True)


def test_the_scaled_object_has_the_keys_and_types_that_keda_documents() -> None:
    """keda.sh/docs/latest: "ScaledObject specification", "Prometheus". Values under `metadata` of a trigger
    are text."""
    assert (KEDA["apiVersion"], KEDA["kind"]) == ("keda.sh/v1alpha1", "ScaledObject")
    spec = KEDA["spec"]
    counts = {"pollingInterval", "minReplicaCount", "maxReplicaCount"}
    assert spec.keys() == {"scaleTargetRef", "fallback", "advanced", "triggers", *counts}
    assert all(type(spec[key]) is int for key in counts)
    assert {key: type(value) for key, value in spec["fallback"].items()} == {
        "failureThreshold": int,
        "replicas": int,
    }
    assert TRIGGER.keys() == {"type", "metricType", "metadata"}
    assert (TRIGGER["type"], TRIGGER["metricType"]) == ("prometheus", "AverageValue")
    assert TRIGGER["metadata"].keys() == {"serverAddress", "query", "threshold", "ignoreNullValues"}
    assert all(type(value) is str for value in TRIGGER["metadata"].values())
    behavior = spec["advanced"]["horizontalPodAutoscalerConfig"]["behavior"]
    assert behavior["scaleDown"] == {"stabilizationWindowSeconds": 300}


def test_the_nodes_of_the_set_are_those_of_the_settings_that_its_comment_states(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PENSTOCK_NODE_TOKEN", "0123456789abcdef")
    text = (FOLDER / "nodes.yaml").read_text("utf-8")
    stated = "\n".join(re.findall(r"^#   (.+)$", text, re.MULTILINE))
    path = tmp_path / "penstock.yaml"
    path.write_text(f"{stated}\nmodels: [{{path: {ROOT}/models/digits}}]\n")
    nodes = load_settings(path).nodes
    assert nodes is not None
    name, count = NODE_SET["metadata"]["name"], NODE_SET["spec"]["replicas"]
    assert list(nodes.names) == [f"{name}-{number}" for number in range(count)]
    assert NODE_DOOR["spec"]["ports"][0]["port"] == nodes.port
    assert NODE_DOOR["spec"]["selector"] == SERVICE["spec"]["selector"]
    assert NODE_NAMES["spec"]["selector"] == NODE_SET["spec"]["selector"]["matchLabels"]
    assert NODE_NAMES["metadata"]["name"] == NODE_SET["spec"]["serviceName"]
    (container,) = NODE_SET["spec"]["template"]["spec"]["containers"]
    assert f"{NODE_DOOR['metadata']['name']}:{nodes.port}" in container["args"]
    options = {each for each in container["args"] if each.startswith("--")}
    known = {f"--{each.name.replace('_', '-')}" for each in fields(NodeOptions)}
    assert options <= known
    assert {each["name"] for each in container["env"]} == {"NODE", "PENSTOCK_NODE_TOKEN"}


def test_everything_means_the_same_pods() -> None:
    labels = {"app.kubernetes.io/name": "penstock"}
    assert POD["metadata"]["labels"] == labels
    assert DEPLOYMENT["spec"]["selector"]["matchLabels"] == SERVICE["spec"]["selector"] == labels
    for scaler in (HPA, KEDA):
        assert scaler["spec"]["scaleTargetRef"]["name"] == DEPLOYMENT["metadata"]["name"]
        assert scaler["metadata"]["namespace"] == DEPLOYMENT["metadata"]["namespace"]
    assert "replicas" not in DEPLOYMENT["spec"], "an autoscaler says how many"


def test_ports_and_probes_are_those_of_the_gateway(settings: Settings) -> None:
    ports = {each["name"]: each["containerPort"] for each in CONTAINER["ports"]}
    server = settings.server
    assert ports == {"rest": server.rest_port, "grpc": server.grpc_port, "metrics": server.metrics_port}
    assert server == ServerSettings(host="0.0.0.0")
    assert {each["targetPort"] for each in SERVICE["spec"]["ports"]} == {"rest", "grpc"}
    paths = {probe: CONTAINER[probe]["httpGet"]["path"] for probe in CONTAINER if probe.endswith("Probe")}
    assert paths == {
        "startupProbe": "/v2/health/ready",
        "readinessProbe": "/v2/health/ready",
        "livenessProbe": "/v2/health/live",
    }


def test_a_pod_has_the_cores_of_its_slices_and_one_more_and_the_time_to_answer(settings: Settings) -> None:
    cores = len(settings.slices)  # each one of a core, as far as this machine has them
    assert int(CONTAINER["resources"]["limits"]["cpu"]) == cores + 1
    assert CONTAINER["resources"]["limits"] == CONTAINER["resources"]["requests"]
    limits = settings.limits
    assert POD["spec"]["terminationGracePeriodSeconds"] > limits.drain_grace_s + limits.drain_s
    assert int(TRIGGER["metadata"]["threshold"]) == len(settings.slices)


def mounts() -> dict[str, str]:
    """Where each volume is mounted, by its name."""
    return {each["name"]: each["mountPath"] for each in CONTAINER["volumeMounts"]}


def test_an_edit_of_the_config_map_reaches_the_file_that_the_gateway_reads() -> None:
    """kubernetes.io/docs/concepts/storage/volumes: a ConfigMap's updates never reach a mount by subPath."""
    assert all("subPath" not in each for each in CONTAINER["volumeMounts"])
    (settings,) = (each for each in POD["spec"]["volumes"] if "configMap" in each)
    assert settings["configMap"] == {"name": CONFIG["metadata"]["name"]}
    (key,) = CONFIG["data"]
    assert CONTAINER["args"] == ["serve", "--config", f"{mounts()[settings['name']]}/{key}"]


def test_paths_of_the_settings_are_of_the_image_and_not_of_the_mounted_folder(tmp_path: Path) -> None:
    """Beside a mounted file there is nothing else."""
    path = tmp_path / "penstock.yaml"
    path.write_text(CONFIG["data"]["penstock.yaml"])
    with pytest.raises(SettingsError) as caught:  # this machine has no such image
        load_settings(path)
    assert str(tmp_path / "models") not in str(caught.value)
    assert f"{IMAGE}/models/minilm" in str(caught.value)


def test_what_pods_measure_is_kept_where_all_of_them_may_write(settings: Settings) -> None:
    (profiles,) = (each for each in POD["spec"]["volumes"] if "persistentVolumeClaim" in each)
    assert profiles["persistentVolumeClaim"] == {"claimName": CLAIM["metadata"]["name"]}
    assert CLAIM["metadata"]["namespace"] == DEPLOYMENT["metadata"]["namespace"]
    assert CLAIM["spec"]["accessModes"] == ["ReadWriteMany"], "an autoscaler puts pods on several nodes"
    inside = settings.profiles.relative_to(ROOT)
    assert mounts()[profiles["name"]] == f"{IMAGE}/{inside}/{LOCAL}"
    (user,) = re.findall(r"useradd --uid (\d+)", (ROOT / "Dockerfile").read_text("utf-8"))
    assert POD["spec"]["securityContext"] == {
        "runAsNonRoot": True,
        "runAsUser": int(user),
        "fsGroup": int(user),
    }


def test_kubernetes_alone_follows_the_load(settings: Settings) -> None:
    assert [model.replicas for model in settings.models] == [None]
    assert f'model="{settings.models[0].name}"' in TRIGGER["metadata"]["query"]


def selectors(query: str) -> Iterator[promql_parser.VectorSelector]:
    """The series that a query reads."""
    waiting = [promql_parser.parse(query)]
    while waiting:
        each = waiting.pop()
        if isinstance(each, promql_parser.VectorSelector):
            yield each
        elif isinstance(each, promql_parser.AggregateExpr | promql_parser.ParenExpr):
            waiting.append(each.expr)
        else:
            raise AssertionError(f"{each} is not looked into")


def adapted() -> str:
    """The query as the adapter asks it of one pod."""
    query = str(RULE["metricsQuery"])
    for part, value in (
        ("Series", SERIES),
        ("LabelMatchers", 'namespace="penstock",pod="penstock-1"'),
        ("GroupBy", "namespace, pod"),
    ):
        query = query.replace(f"<<.{part}>>", value)
    return query


@pytest.mark.parametrize("query", [TRIGGER["metadata"]["query"], RULE["seriesQuery"], adapted()])
def test_queries_read_series_that_a_gateway_exports_by_labels_that_they_have(query: str) -> None:
    found = [*selectors(query)]
    assert found
    telemetry = Telemetry([])
    telemetry.read_present = lambda: Present(scaling=ScalePresent(demands={"minilm": (0.5, 1)}))
    labels: dict[str, set[str]] = {}
    for name, own in samples(telemetry):
        labels.setdefault(name, set()).update(label for label, _ in own)
    for each in found:
        assert each.name in labels
        assert {matcher.name for matcher in each.matchers.matchers} <= labels[each.name] | ADDED


def test_what_the_hpa_asks_for_is_what_the_adapter_serves_and_prometheus_labels() -> None:
    assert METRIC["metric"]["name"] == RULE["name"]["as"] == SERIES
    assert RULE["resources"]["overrides"].keys() == ADDED
    (job,) = SCRAPE["scrape_configs"]
    rules = job["relabel_configs"]
    assert {each["target_label"] for each in rules if "target_label" in each} == ADDED
    kept = {each["source_labels"][0]: each["regex"] for each in rules if each.get("action") == "keep"}
    assert kept == {
        "__meta_kubernetes_pod_label_app_kubernetes_io_name": POD["metadata"]["labels"][
            "app.kubernetes.io/name"
        ],
        "__meta_kubernetes_pod_container_port_name": "metrics",
    }


def hpa(pods: int, load: float, slices: int) -> int:
    """Pods that the HPA wants next: of `load`, in slices' worth, the gateways say what each has of it."""
    target = float(METRIC["target"]["averageValue"])
    ratio = load / (pods * slices) / target
    return pods if is_near(ratio) else ceil(ratio * pods - 1e-9)


def keda(pods: int, load: float, slices: int) -> int:
    """Likewise with KEDA, which feeds an HPA with the sum of what each pod wants, in whole replicas."""
    threshold = float(TRIGGER["metadata"]["threshold"])
    wanted = pods * max(ceil(load / pods - 1e-9), 1)
    return pods if is_near(wanted / (pods * threshold)) else ceil(wanted / threshold - 1e-9)


def settled(pods: int, load: float, scaler: Mapping[str, Any], rule: Any) -> int:
    bounds = scaler["spec"]
    least = bounds.get("minReplicas") or bounds.get("minReplicaCount")
    most = bounds.get("maxReplicas") or bounds.get("maxReplicaCount")
    for _ in range(20):
        pods = min(max(rule(pods, load, 2), least), most)
    return pods


@given(pods=st.integers(1, 10), load=st.floats(0.0, 19.0))
def test_from_any_number_of_pods_both_scalers_come_to_the_number_that_the_load_takes(
    pods: int, load: float
) -> None:
    """Within the tenth by which the HPA lets things be."""
    for scaler, rule in ((HPA, hpa), (KEDA, keda)):
        there = settled(pods, load, scaler, rule)
        assert load <= 1.1 * 2 * there
        needed = max(ceil(load / 2), 1)
        spare = there / 2 if scaler is KEDA else 0.1 * there  # a replica in part counts as a whole one
        assert there - needed <= spare + 1e-9
        assert settled(there, load, scaler, rule) == there
