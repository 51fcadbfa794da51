"""The compose file and the manifest for GPUs are valid, and differ from those without where GPUs need it.

Nothing here starts a container or a pod, and there is no GPU.
"""

import warnings
from pathlib import Path
from typing import Any

import pytest
import yaml

from router.settings import Settings, load_settings
from serving.runtime.slicing.inventory import Gpu, Inventory
from tests.deploy.files import COMPOSE, ROOT, SERVICES
from tests.deploy.test_compose import check_schema
from tests.deploy.test_kubernetes import CLUSTER, CONTAINER, DEPLOYMENT, IMAGE, documents

with warnings.catch_warnings():
    warnings.simplefilter("ignore")
    import kubernetes_validate

FILE = ROOT / "docker-compose.gpu.yml"
OVERLAY: dict[str, Any] = yaml.safe_load(FILE.read_text("utf-8"))
CONFIG, POD = documents("gpu")
GPUS = tuple(
    Gpu(index, f"GPU-{index}", "NVIDIA H200", 1, 0, (9, 0), 132, False, (), None, None, 0, ())
    for index in (0, 1)
)


@pytest.fixture(autouse=True)
def machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine of two H200s."""
    inventory = Inventory((0, 1), GPUS, "580", 13010)
    monkeypatch.setattr("router.settings.values.findings.take_inventory", lambda: inventory)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)


def read(text: str, folder: Path) -> Settings:
    (folder / "models").symlink_to(ROOT / "models")
    path = folder / "penstock.yaml"
    path.write_text(text.replace(f"{IMAGE}/", f"{ROOT}/"))
    return load_settings(path)


@pytest.mark.slow
@pytest.mark.live
def test_the_compose_file_is_valid_beside_the_one_that_it_extends() -> None:
    done = check_schema(FILE)
    assert done.returncode == 0, done.stdout
    assert OVERLAY["services"].keys() <= SERVICES.keys()
    assert OVERLAY["configs"].keys() <= COMPOSE["configs"].keys()


@pytest.mark.slow
@pytest.mark.parametrize("document", [CONFIG, POD], ids=lambda each: str(each["kind"]))
def test_the_manifest_is_valid_by_the_schemas_of_kubernetes(document: dict[str, Any]) -> None:
    kubernetes_validate.validate(document, CLUSTER, strict=True)


@pytest.mark.parametrize(
    "text",
    [OVERLAY["configs"]["penstock"]["content"], CONFIG["data"]["penstock.yaml"]],
    ids=["compose", "kubernetes"],
)
def test_the_settings_have_two_slices_on_each_gpu(text: str, tmp_path: Path) -> None:
    slices = read(text, tmp_path).slices
    assert [(each.device, str(each.share)) for each in slices] == [
        (f"cuda:{number}", "mps:50") for number in (0, 0, 1, 1)
    ]


def test_the_image_has_torch_with_cuda() -> None:
    gateway = OVERLAY["services"]["gateway"]
    assert gateway["build"]["args"] == {"PIP_EXTRA_INDEX_URL": ""}
    assert gateway["image"] != SERVICES["gateway"]["image"]
    assert POD["spec"]["template"]["spec"]["containers"][0]["image"] == gateway["image"]


def test_a_pod_is_that_without_a_gpu_but_for_what_a_gpu_needs() -> None:
    (container,) = POD["spec"]["template"]["spec"]["containers"]
    (plain,) = DEPLOYMENT["spec"]["template"]["spec"]["containers"]
    assert plain == CONTAINER
    for same in ("ports", "args", "readinessProbe", "livenessProbe", "securityContext"):
        assert container[same] == plain[same]
    assert container["resources"]["requests"] == container["resources"]["limits"]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == 1
    assert POD["metadata"] == DEPLOYMENT["metadata"]
    assert {each["mountPath"] for each in container["volumeMounts"]} == {
        *(each["mountPath"] for each in plain["volumeMounts"]),
        "/dev/shm",  # noqa: S108  # the container's
    }
