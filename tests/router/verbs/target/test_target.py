"""`penstock serve MODEL`: what names a model, and which settings it becomes."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from router.settings import load_model, load_settings
from router.verbs.target import writing
from router.verbs.target.asked import settings_file
from router.verbs.target.errors import TargetError
from router.verbs.target.options import TargetOptions
from router.verbs.target.target import Target, read_target
from serving.worker.backends.signature import Signature, Tensor
from tests.router.settings.samples import write_deployment


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def signed(monkeypatch: pytest.MonkeyPatch, signature: Signature) -> None:
    """Let every target have this signature: processes that find one are in tests/acceptance."""
    monkeypatch.setattr(writing, "signature_of", lambda _target, _sizes, _python="": signature)


LINEAR = Signature((Tensor("x", "FP32", ("batch", 4)),), (Tensor("y", "FP32", ("batch", 3)),), 0.4)


def test_a_target_is_named_by_its_file_folder_or_server(home: Path) -> None:
    for name in ("my net.onnx", "a.py", "b.pt2"):
        (home / name).touch()
    (home / "texts").mkdir()
    found = [read_target(text) for text in ("my net.onnx", "a.py", "b.pt2", "hf:texts", "hf:org/name")]
    assert found == [
        Target("my net.onnx", "my-net", "onnx", str(home / "my net.onnx")),
        Target("a.py", "a", "python", str(home / "a.py")),
        Target("b.pt2", "b", "torch_export", str(home / "b.pt2")),
        Target("hf:texts", "texts", "transformers", str(home / "texts")),
        Target("hf:org/name", "name", "transformers", "org/name"),
    ]
    assert read_target("remote:h:8001/net") == Target("remote:h:8001/net", "net", "remote", "h:8001/net")


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "none.onnx",
            "none.onnx is not there; expected a .py, .onnx, .xml, .pt2, .joblib or .pkl file, hf:FOLDER",
        ),
        ("a.txt", "a.txt is no model that Penstock knows; expected a .py"),
        ("empty", "empty is a folder without model.yaml, and without a model file; expected"),
        ("two", "two is a folder without model.yaml, and with 2 model files; expected"),
        ("remote:host/net", "remote:host/net names no model of a server; expected remote:HOST:PORT/MODEL"),
    ],
)
def test_what_names_no_model_is_refused(home: Path, text: str, said: str) -> None:
    (home / "a.txt").touch()
    (home / "empty").mkdir()
    (home / "two").mkdir()
    for name in ("a.onnx", "b.onnx", ".c.onnx"):
        (home / "two" / name).touch()
    with pytest.raises(TargetError) as told:
        read_target(text)
    assert str(told.value).startswith(said)


def test_the_settings_that_it_writes_serve_the_model(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "net.onnx").touch()
    signed(monkeypatch, LINEAR)
    file = settings_file("net.onnx", Path("unused.yaml"), TargetOptions(slo="1.5s"))
    (served,) = load_settings(file).models
    spec = served.spec
    assert (spec.name, served.slo_us, spec.batch_max) == ("net", 1_500_000, 64)
    assert [each.shape for each in (*spec.inputs, *spec.outputs)] == [(-1, 4), (-1, 3)]
    (variant,) = spec.variants
    assert (variant.backend, variant.artifact) == ("onnx", home / "net.onnx")
    (bulk,) = served.tiers
    assert (bulk.tier, bulk.slo_us) == ("bulk", 30_000_000)


def test_a_folder_with_one_model_file_is_that_file_under_a_name_of_its_operator(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "stored").mkdir()
    (home / "stored" / "model.onnx").touch()
    assert read_target("stored") == Target("stored", "model", "onnx", str(home / "stored" / "model.onnx"))
    signed(monkeypatch, LINEAR)
    file = settings_file("stored", Path("unused.yaml"), TargetOptions(slo="1s", name="iris"))
    assert [each.name for each in load_settings(file).models] == ["iris"]


@pytest.mark.parametrize(
    ("text", "name", "said"),
    [
        ("net.onnx", "a b", "--name a b is no name of a model; expected one such as a-b"),
        ("models/digits", "other", "--name other: models/digits/model.yaml names the model digits"),
    ],
)
def test_a_name_that_cannot_be_is_refused(home: Path, text: str, name: str, said: str) -> None:
    (home / "net.onnx").touch()
    write_deployment(home)
    with pytest.raises(TargetError) as told:
        settings_file(text, Path("unused.yaml"), TargetOptions(name=name))
    assert str(told.value).startswith(said)


@pytest.mark.parametrize(("latency_ms", "slo_ms"), [(0.01, 10), (1.9, 20), (60, 1_000), (1e9, 60_000)])
def test_an_slo_is_derived_where_none_is_stated(
    home: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    latency_ms: float,
    slo_ms: int,
) -> None:
    (home / "net.onnx").touch()
    signed(monkeypatch, Signature(LINEAR.inputs, LINEAR.outputs, latency_ms))
    file = settings_file("net.onnx", Path("unused.yaml"), TargetOptions())
    assert load_settings(file).models[0].slo_us == slo_ms * 1000
    assert f"the SLO is {slo_ms} ms" in capsys.readouterr().out


def test_sizes_labels_and_more_keys_are_written(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "texts").mkdir()
    keys = {
        "size_hint": {"input": "TEXT", "unit": "text", "buckets": [8, 64]},
        "endpoints": {"task": "classify"},
    }
    texts, scores = (
        Tensor("TEXT", "BYTES", ("batch", 1)),
        Tensor("SCORES", "FP32", ("batch", 2), ("no", "yes")),
    )
    signed(monkeypatch, Signature((texts,), (scores,), 1, artifact=str(home / "texts"), keys=keys))
    file = settings_file("hf:texts", Path("unused.yaml"), TargetOptions(dims=("tokens=16",)))
    spec = load_settings(file).models[0].spec
    assert spec.sizes == (8, 64)
    assert spec.application is not None
    assert spec.outputs[0].labels is not None
    assert spec.outputs[0].labels.names == ("no", "yes")
    assert dict(spec.variants[0].options) == {"dim.tokens": 16}


def test_a_python_file_and_a_server_need_no_artifact(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "net.py").touch()
    signed(monkeypatch, LINEAR)
    spec = load_settings(settings_file("net.py", Path(), TargetOptions())).models[0].spec
    assert (spec.code, spec.variants[0].artifact) == (home / "net.py", None)
    spec = load_settings(settings_file("remote:h:1/net", Path(), TargetOptions())).models[0].spec
    assert dict(spec.variants[0].options) == {"url": "h:1", "model": "net"}


def test_two_models_of_one_name_have_their_own_settings(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "net.py").touch()
    signed(monkeypatch, LINEAR)
    files = [settings_file(text, Path(), TargetOptions()) for text in ("net.py", "remote:h:1/net", "net.py")]
    assert files[0] == files[2] != files[1]


def test_settings_that_the_operator_keeps_are_never_overwritten(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "net.py").touch()
    signed(monkeypatch, LINEAR)
    kept = TargetOptions(save=home / "kept.yaml")
    assert settings_file("net.py", Path(), kept) == home / "kept.yaml"
    assert load_model(home / "models" / "net").name == "net"
    with pytest.raises(TargetError, match=r"kept\.yaml is there already; .*expected a new file"):
        settings_file("net.py", Path(), kept)


def test_a_model_folder_keeps_its_own_model_yaml(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "net.py").touch()
    signed(monkeypatch, LINEAR)
    settings_file("net.py", Path(), TargetOptions(save=home / "kept.yaml"))
    file = settings_file("models/net", Path(), TargetOptions(slo="40ms"))
    assert load_settings(file).models[0].slo_us == 40_000
    assert load_settings(file).models[0].spec.folder == home / "models" / "net"


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (TargetOptions(slo="soon"), "--slo is no time; got 'soon', expected a time such as 50ms or 2s"),
        (TargetOptions(slo="0ms"), "--slo is no time"),
        (TargetOptions(dims=("seq",)), "--dim is no size; got 'seq', expected NAME=SIZE"),
    ],
)
def test_a_wrong_option_is_named(home: Path, options: TargetOptions, said: str) -> None:
    (home / "net.py").touch()
    with pytest.raises(TargetError, match=said):
        settings_file("net.py", Path(), options)


def test_a_settings_file_is_served_as_it_is() -> None:
    assert settings_file(None, Path("a.yaml"), TargetOptions()) == Path("a.yaml")
    assert settings_file("b.yaml", Path("a.yaml"), TargetOptions()) == Path("b.yaml")
    with pytest.raises(TargetError, match="are for one model; got none"):
        settings_file(None, Path("a.yaml"), TargetOptions(slo="5ms"))


def test_names_of_tensors_need_no_care(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "net.onnx").touch()
    odd = "serving_default: a'b\"#{}"
    signed(monkeypatch, Signature((Tensor(odd, "FP32", ("batch", 4)),), LINEAR.outputs, 1))
    spec = load_settings(settings_file("net.onnx", Path(), TargetOptions())).models[0].spec
    assert spec.inputs[0].name == odd
    assert json.dumps(odd) in (home / ".penstock/net/model/model.yaml").read_text()


def test_another_interpreter_is_stated_for_every_slice(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "net.onnx").touch()
    signed(monkeypatch, LINEAR)
    options = TargetOptions(python=Path(sys.executable))
    with_python = load_settings(settings_file("net.onnx", Path(), options))
    without = load_settings(settings_file("net.onnx", Path(), TargetOptions()))
    assert {each.python for each in with_python.slices} == {sys.executable}
    assert [replace(each, python="") for each in with_python.slices] == list(without.slices)


def test_an_interpreter_that_is_none_is_refused(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / "net.onnx").touch()
    signed(monkeypatch, LINEAR)
    with pytest.raises(TargetError, match="--python: nowhere/python is no program"):
        settings_file("net.onnx", Path(), TargetOptions(python=Path("nowhere/python")))
