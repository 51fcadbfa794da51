"""deploy/helm: what `helm template` makes of the chart is valid, agrees with the gateway, and bad values are
refused."""

import json
import shutil
import subprocess
import warnings
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml
from typer.testing import CliRunner

from router.cli import app
from router.settings import load_settings
from tests.deploy.files import ROOT
from tests.deploy.test_kubernetes import CLUSTER, IMAGE
from tests.deploy.test_kubernetes import CONTAINER as PLAIN

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # of packages that it finds its schemas by
    import kubernetes_validate

CHART = ROOT / "deploy" / "helm" / "penstock"
HELM = shutil.which("helm")
needs_helm = pytest.mark.skipif(HELM is None, reason="helm is not here: https://helm.sh/docs/intro/install")
VALUES: dict[str, Any] = yaml.safe_load((CHART / "values.yaml").read_text("utf-8"))
SCHEMA = json.loads((CHART / "values.schema.json").read_text("utf-8"))
OTHERS = {"ScaledObject", "ServiceMonitor", "PrometheusRule", "HTTPRoute", "GRPCRoute"}
"""Kinds that are not Kubernetes' own: it has no schema of them."""
EVERYTHING = {
    "replicas": 3,
    "gpu": {"count": 1},
    "keysSecret": "keys",
    "env": [{"name": "A", "value": "b"}],
    "networkPolicy": {"enabled": True, "clients": [{"podSelector": {}}]},
    "serviceMonitor": {"enabled": True},
    "rules": {"enabled": True},
    "dashboard": {"enabled": True},
    "routes": {"enabled": True, "parentRefs": [{"name": "public"}], "hostnames": ["models.example.com"]},
    "antiAffinity": "hard",
    "tolerations": [{"key": "gpu", "operator": "Exists"}],
    "nodeSelector": {"kind": "gpu"},
    "podAnnotations": {"a": "b"},
    "imagePullSecrets": [{"name": "pull"}],
}


def helm(values: dict[str, Any], folder: Path) -> "subprocess.CompletedProcess[str]":
    file = folder / "values.json"
    file.write_text(json.dumps(values))
    command = [
        str(HELM),
        "template",
        "demo",
        str(CHART),
        "--namespace",
        "n",
        "--kube-version",
        f"{CLUSTER}.0",
    ]
    command += ["--values", str(file)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)


def made(values: dict[str, Any], folder: Path) -> dict[str, dict[str, Any]]:
    """What the chart makes of these values, by kind."""
    done = helm(values, folder)
    assert done.returncode == 0, done.stderr
    documents = [each for each in yaml.safe_load_all(done.stdout) if each]
    return {_kind(each): each for each in documents}


def _kind(document: dict[str, Any]) -> str:
    is_dashboard = str(document["metadata"]["name"]).endswith("-dashboard")
    return "Dashboard" if is_dashboard else str(document["kind"])


@needs_helm
@pytest.mark.parametrize(
    "values",
    [{}, EVERYTHING, {"autoscaling": {"kind": "hpa"}}, {"autoscaling": {"kind": "keda"}},
     {"profiles": {"enabled": False}, "serviceAccount": {"create": False}, "antiAffinity": "none"}],
    ids=["plain", "everything", "hpa", "keda", "little"],
)  # fmt: skip
def test_what_it_makes_is_valid_by_the_schemas_of_kubernetes(values: dict[str, Any], tmp_path: Path) -> None:
    for kind, document in made(values, tmp_path).items():
        if kind not in OTHERS:
            kubernetes_validate.validate(document, CLUSTER, strict=True)


@needs_helm
def test_the_settings_are_those_of_a_gateway(tmp_path: Path) -> None:
    text = made({}, tmp_path)["ConfigMap"]["data"]["penstock.yaml"]
    (tmp_path / "penstock.yaml").write_text(text.replace(f"{IMAGE}/", f"{ROOT}/"))
    settings = load_settings(tmp_path / "penstock.yaml")
    assert [each.name for each in settings.models] == ["minilm"]
    cores = sum(len(each.cores or ()) or 1 for each in settings.slices)
    limits = made({}, tmp_path)["Deployment"]["spec"]["template"]["spec"]["containers"][0]["resources"][
        "limits"
    ]
    assert int(limits["cpu"]) == cores + 1


@needs_helm
def test_the_pod_is_the_one_of_the_plain_manifests(tmp_path: Path) -> None:
    pod = made({}, tmp_path)["Deployment"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    for key in (
        "args",
        "ports",
        "startupProbe",
        "readinessProbe",
        "livenessProbe",
        "resources",
        "volumeMounts",
    ):
        assert container[key] == PLAIN[key], key


@needs_helm
def test_a_gpu_adds_its_runtime_memory_and_resource(tmp_path: Path) -> None:
    pod = made(EVERYTHING, tmp_path)["Deployment"]["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    assert pod["runtimeClassName"] == "nvidia"
    assert container["resources"]["limits"]["nvidia.com/gpu"] == 1
    assert {"name": "shared", "mountPath": "/dev/shm"} in container["volumeMounts"]  # noqa: S108  # the pod's
    assert {each["name"] for each in pod["volumes"]} >= {"settings", "profiles", "keys", "shared"}


@needs_helm
def test_rules_and_dashboard_are_the_files_of_deploy(tmp_path: Path) -> None:
    found = made(EVERYTHING, tmp_path)
    rules = yaml.safe_load((ROOT / "deploy/prometheus/penstock.rules.yaml").read_text("utf-8"))
    assert found["PrometheusRule"]["spec"] == rules
    dashboard = json.loads((ROOT / "deploy/grafana/penstock.json").read_text("utf-8"))
    assert json.loads(found["Dashboard"]["data"]["penstock.json"]) == dashboard


@needs_helm
def test_an_autoscaler_has_the_number_of_pods_to_itself(tmp_path: Path) -> None:
    found = made({"autoscaling": {"kind": "keda"}, "replicas": 3}, tmp_path)
    assert "replicas" not in found["Deployment"]["spec"]
    (trigger,) = found["ScaledObject"]["spec"]["triggers"]
    assert trigger["metadata"]["query"] == 'sum(penstock_slo_pressure{namespace="n",pod=~"demo-penstock-.+"})'
    assert "PodDisruptionBudget" in found
    assert "PodDisruptionBudget" not in made({}, tmp_path)


@needs_helm
@pytest.mark.parametrize(
    ("values", "said"),
    [
        ({"autoscaling": {"kind": "vpa"}}, "autoscaling.kind"),
        ({"replica": 3}, "replica"),
        ({"settings": {"server": {"host": "127.0.0.1"}}}, "settings.server.host has to be 0.0.0.0"),
        ({"routes": {"enabled": True}}, "routes.parentRefs names no gateway"),
    ],
)
def test_bad_values_are_refused_by_their_names(values: dict[str, Any], said: str, tmp_path: Path) -> None:
    done = helm(values, tmp_path)
    assert done.returncode != 0
    assert said in done.stderr


def test_the_values_keep_their_schema_and_every_key_is_in_it() -> None:
    jsonschema.validate(VALUES, SCHEMA)
    assert SCHEMA["properties"].keys() - {"global"} == VALUES.keys()
    for key, values in VALUES.items():
        known = SCHEMA["properties"][key]
        if isinstance(values, dict) and known.get("additionalProperties") is False:
            assert known["properties"].keys() == values.keys(), key


def test_the_chart_has_the_release_of_the_package() -> None:
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text("utf-8"))
    text = (ROOT / "pyproject.toml").read_text("utf-8")
    assert f'version = "{chart["version"]}"' in text
    assert chart["appVersion"] == chart["version"]


def test_kserve_starts_the_gateway_with_options_that_it_has() -> None:

    runtime = yaml.safe_load((ROOT / "deploy/kserve/servingruntime.yaml").read_text("utf-8"))
    (container,) = runtime["spec"]["containers"]
    verb, *arguments = container["args"]
    shown = CliRunner().invoke(app, [verb, "--help"], env={"COLUMNS": "200"}).output
    for option in (each.partition("=")[0] for each in arguments if each.startswith("--")):
        assert option in shown, option
    rest = next(each for each in arguments if each.startswith("--rest-port")).partition("=")[2]
    assert [each["containerPort"] for each in container["ports"]] == [int(rest)]
    assert container["readinessProbe"]["httpGet"]["port"] == int(rest)
