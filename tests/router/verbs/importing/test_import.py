"""`penstock import --triton`: forms of config.pbtxt as Triton's own repositories have them."""

from pathlib import Path

import pytest

from router.settings import load_settings
from router.verbs.importing import command
from router.verbs.importing.command import import_models
from router.verbs.importing.options import ImportOptions
from router.verbs.target.errors import TargetError
from serving.values.specs import ModelSpec
from serving.worker.backends.signature import Signature

IO = """\
input [ { name: "x" data_type: TYPE_FP32 dims: [ 4 ] } ]
output [ { name: "y" data_type: TYPE_FP32 dims: [ 3 ] } ]
"""
ONNX = 'platform: "onnxruntime_onnx"\nmax_batch_size: 16\n' + IO


@pytest.fixture(autouse=True)
def latency(monkeypatch: pytest.MonkeyPatch) -> None:
    """A row takes 3 ms: tests/worker/test_describe.py runs real files."""
    monkeypatch.setattr(command, "signature_of", lambda *_asked, **_stated: Signature((), (), 3.0))


def write_model(
    repository: Path, name: str, config: str, file: str = "model.onnx", versions: str = "1"
) -> None:
    (repository / name).mkdir(parents=True, exist_ok=True)
    for version in versions.split():
        (repository / name / version).mkdir(parents=True)
        (repository / name / version / file).touch()
    (repository / name / "config.pbtxt").write_text(config)


def imported(
    tmp_path: Path, config: str, file: str = "model.onnx", server: str = "", versions: str = "1"
) -> ModelSpec:
    """The one model of a repository, as the settings that were written serve it."""
    write_model(tmp_path / "repo", "net", config, file, versions)
    to = tmp_path / "to"
    assert import_models(ImportOptions(tmp_path / "repo", to, server)) == 0
    (served,) = load_settings(to / "penstock.yaml").models
    return served.spec


def test_fixed_shapes_with_a_batch(tmp_path: Path) -> None:
    spec = imported(tmp_path, ONNX, versions="1 3 20")
    assert (spec.batch_max, [each.shape for each in (*spec.inputs, *spec.outputs)]) == (
        16,
        [(-1, 4), (-1, 3)],
    )
    (variant,) = spec.variants
    assert variant.backend == "onnx"
    assert variant.artifact is not None
    assert variant.artifact.resolve() == tmp_path / "repo/net/20/model.onnx"
    assert spec.model_version == "20"


@pytest.mark.parametrize(
    ("policy", "served"),
    [
        ("", {"net": 20}),
        ("latest { num_versions: 2 }", {"net": 20, "net@3": 3}),
        ("all { }", {"net": 20, "net@1": 1, "net@3": 3}),
        ("specific { versions: [ 3, 1 ] }", {"net": 3, "net@1": 1}),
    ],
)
def test_versions_are_served_as_triton_serves_them(
    tmp_path: Path, policy: str, served: dict[str, int]
) -> None:
    config = ONNX + (f"version_policy: {{ {policy} }}\n" if policy else "")
    write_model(tmp_path / "repo", "net", config, versions="1 3 20")
    assert import_models(ImportOptions(tmp_path / "repo", tmp_path / "to")) == 0
    found = load_settings(tmp_path / "to" / "penstock.yaml").models
    assert {each.name: each.spec.version for each in found} == served


def test_torchscript_takes_its_inputs_by_their_places(tmp_path: Path) -> None:
    two = 'input [ { name: "INPUT__1" data_type: TYPE_INT64 dims: [ 2 ] },'
    config = ONNX.replace("onnxruntime_onnx", "pytorch_libtorch").replace("input [", two)
    spec = imported(tmp_path, config.replace('"x"', '"INPUT__0"'), "model.pt")
    (variant,) = spec.variants
    assert variant.backend == "torch_export"
    assert variant.artifact is not None
    assert variant.artifact.resolve() == tmp_path / "repo/net/1/model.pt"
    assert [each.name for each in spec.inputs] == ["INPUT__0", "INPUT__1"]


def test_free_shapes_of_texts(tmp_path: Path) -> None:
    config = ONNX.replace("TYPE_FP32 dims: [ 4 ]", "TYPE_STRING dims: [ -1 ]")
    (given,) = imported(tmp_path, config).inputs
    assert (given.datatype, given.shape) == ("BYTES", (-1, -1))


def test_no_batch_dimension(tmp_path: Path) -> None:
    spec = imported(tmp_path, ONNX.replace("16", "0").replace("[ 4 ]", "[ -1, 4 ]"))
    assert spec.unbatched
    assert spec.told(spec.inputs[0]) == (-1, 4)


def test_several_instances_priorities_and_a_timeout(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    more = """\
instance_group [ { count: 2 kind: KIND_GPU gpus: [ 0, 1 ] } ]
dynamic_batching {
  preferred_batch_size: [ 4, 8 ]
  priority_levels: 3
  default_priority_level: 2
  default_queue_policy { default_timeout_microseconds: 80000 }
}
"""
    write_model(tmp_path / "repo", "net", ONNX + more)
    assert import_models(ImportOptions(tmp_path / "repo", tmp_path / "to")) == 0
    (served,) = load_settings(tmp_path / "to" / "penstock.yaml").models
    assert served.slo_us == 80_000
    assert served.spec.priorities is not None
    assert (served.spec.priorities.levels, served.spec.priorities.default) == (3, 2)
    said = capsys.readouterr().out
    assert "SLO 80 ms (its queue's timeout)" in said
    assert "note: instance_group is left out" in said
    assert "note: dynamic_batching is left out" in said


def test_labels_and_optional_inputs(tmp_path: Path) -> None:
    config = ONNX.replace("dims: [ 3 ]", 'dims: [ 3 ] label_filename: "labels.txt"')
    second = ', { name: "mask" data_type: TYPE_BOOL dims: [ 4 ] optional: true } ]\noutput'
    config = config.replace(" ]\noutput", second)
    (tmp_path / "repo" / "net").mkdir(parents=True)
    (tmp_path / "repo" / "net" / "labels.txt").write_text("cat\ndog\nbird\n")
    spec = imported(tmp_path, config)
    assert [each.optional for each in spec.inputs] == [False, True]
    assert spec.outputs[0].labels is not None
    assert spec.outputs[0].labels.names == ("cat", "dog", "bird")


@pytest.mark.parametrize(
    "kind", ['platform: "tensorrt_plan"', 'backend: "python"', 'platform: "pytorch_libtorch"']
)
def test_a_triton_that_runs_computes_what_no_backend_loads(tmp_path: Path, kind: str) -> None:
    config = ONNX.replace('platform: "onnxruntime_onnx"', kind)
    (variant,) = imported(tmp_path, config, "model.plan", "triton:8001").variants
    assert (variant.backend, dict(variant.options)) == ("remote", {"url": "triton:8001", "model": "net"})


def of(kind: str) -> str:
    return ONNX.replace("onnxruntime_onnx", kind)


def shaped(words: str) -> str:
    return ONNX.replace("dims: [ 4 ]", words)


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (of("tensorrt_plan"), "it is TensorRT engines, which no backend here loads; --server"),
        (of("pytorch_libtorch"), "1/model.pt2 is missing"),
        (of("own"), "it is of the backend 'own', which no backend here loads"),
        (of("ensemble") + 'ensemble_scheduling { step [ { model_name: "a" } ] }',
         "it is an ensemble of a; no model here calls others"),
        (ONNX + "sequence_batching { }", "it has sequence_batching; write its `sequence:` by hand"),
        (ONNX + "model_transaction_policy { decoupled: true }", "it is decoupled; write a model with"),
        (shaped("dims: [ -1 ] allow_ragged_batch: true"), "input 'x' has ragged batches"),
        (shaped("dims: [ 4 ] reshape { shape: [ 2, 2 ] }"), "'x' has a reshape"),
        (ONNX + "nothing: 3", "no field named \"nothing\""),
        ("max_batch_size: 1", "states no input; expected both"),
    ],
)  # fmt: skip
def test_what_cannot_be_imported_is_refused_by_name_and_the_rest_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], config: str, said: str
) -> None:
    write_model(tmp_path / "repo", "good", ONNX)
    write_model(tmp_path / "repo", "odd", config, "model.odd")
    assert import_models(ImportOptions(tmp_path / "repo", tmp_path / "to")) == 1
    shown = capsys.readouterr()
    assert shown.err.startswith("refused   odd: ")
    assert said in shown.err
    assert "serves 1 of 2 models" in shown.out
    assert [each.spec.name for each in load_settings(tmp_path / "to" / "penstock.yaml").models] == ["good"]


def test_folders_without_a_configuration_or_a_version_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "repo" / "bare").mkdir(parents=True)
    write_model(tmp_path / "repo", "empty", ONNX, versions="")
    assert import_models(ImportOptions(tmp_path / "repo", tmp_path / "to")) == 1
    said = capsys.readouterr().err
    assert "refused   bare: it has no config.pbtxt" in said
    assert "refused   empty: it has no version; expected a folder 1" in said
    assert not (tmp_path / "to").exists()


def test_nothing_is_written_over(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    write_model(tmp_path / "repo", "net", ONNX)
    (tmp_path / "to").mkdir()
    assert import_models(ImportOptions(tmp_path / "repo", tmp_path / "to")) == 2
    assert "is there already; expected a new folder" in capsys.readouterr().err
    assert import_models(ImportOptions(tmp_path / "none", tmp_path / "new")) == 2
    assert import_models(ImportOptions(tmp_path / "to", tmp_path / "new")) == 2
    assert "has no models; expected folders" in capsys.readouterr().err


def test_a_model_that_does_not_run_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_asked: object, **_stated: object) -> Signature:
        raise TargetError("it is broken")

    monkeypatch.setattr(command, "signature_of", broken)
    write_model(tmp_path / "repo", "net", ONNX)
    assert import_models(ImportOptions(tmp_path / "repo", tmp_path / "to")) == 1
    assert import_models(ImportOptions(tmp_path / "repo", tmp_path / "new", slo="70ms")) == 0
    assert load_settings(tmp_path / "new" / "penstock.yaml").models[0].slo_us == 70_000
