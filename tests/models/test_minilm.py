"""MiniLM: truncation, padding, precision and the retrieval figures."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
import torch

from router.settings.model_file.models import load_model
from serving.worker.backends.python import PythonBackend
from serving.worker.frames.orders import LoadOrder
from tests.models.samples import MODELS, SampleModel, SizedModel, built, code, loaded, measured, variants
from tests.seeds import some

pytestmark = pytest.mark.slow  # each loads 90 MB of weights

Vectors = np.ndarray[Any, Any]
LONG = (
    b"Return a new array of given shape and type, filled with ones; the order of memory may be C or Fortran. "
    * 12
)
TEXTS = [
    b"",
    b"pump",
    b"A short sentence about water.",
    "Größe, 日本語, naïve".encode(),
    b"\xff\xfe\x00broken \xc3",
    b"def f(x: int) -> int: return x + 1",
    LONG,
]


def _embed(model: SampleModel, *texts: bytes) -> Vectors:
    rows = np.empty((len(texts), 1), object)
    rows[:, 0] = texts
    return model.predict({"TEXT": rows}, {})["EMBEDDING"]


def _one_by_one(model: SampleModel, texts: list[bytes]) -> Vectors:
    return np.concatenate([_embed(model, text) for text in texts])


def _of(precision: str, tokens: int) -> SampleModel:
    return cast(SampleModel, code("minilm").load(None, {"precision": precision, "tokens": tokens}))


def _docstrings(count: int) -> list[bytes]:
    pairs = json.loads(built("minilm", "build/pairs.json").read_text())
    return [text.encode() for pair in pairs[: count // 2] for text in pair]


def test_fp32_gives_the_cosine_of_the_models_own_documentation() -> None:
    """0.8939: the value that the sentence-transformers documentation prints for this pair."""
    first, second = _embed(
        loaded("minilm", "fp32-128"), b"The new movie is awesome", b"The new movie is so great"
    )
    assert float(first @ second) == pytest.approx(0.8939, abs=1e-4)


@pytest.mark.parametrize("variant", variants("minilm"))
def test_embeddings_have_unit_length_for_every_kind_of_text(variant: str) -> None:
    lengths = np.linalg.norm(_embed(loaded("minilm", variant), *TEXTS), axis=1)
    assert lengths == pytest.approx(np.ones(len(TEXTS)), abs=1e-5)


# bf16 has 8 bits of mantissa: another batch adds in another order and rounds apart.
@pytest.mark.parametrize(
    ("variant", "difference"), [("fp32-128", 1e-5), ("int8-16", 1e-5), ("bf16-32", 1e-2)]
)
def test_a_text_does_not_depend_on_what_is_in_its_batch(variant: str, difference: float) -> None:
    model = loaded("minilm", variant)
    assert np.abs(_embed(model, *TEXTS) - _one_by_one(model, TEXTS)).max() <= difference


def test_bf16_in_a_batch_stays_within_the_cosine_of_its_precision() -> None:
    model = loaded("minilm", "bf16-128")
    assert (_embed(model, *TEXTS) * _one_by_one(model, TEXTS)).sum(1).min() >= 0.9998


@pytest.mark.parametrize(("precision", "floor"), [("bf16", 0.9998), ("int8", 0.98)])
@pytest.mark.parametrize("tokens", some([16, 128]))
def test_a_cheaper_precision_points_where_fp32_points(precision: str, floor: float, tokens: int) -> None:
    texts = _docstrings(24)
    cosines = (_one_by_one(_of(precision, tokens), texts) * _one_by_one(_of("fp32", tokens), texts)).sum(1)
    assert cosines.min() >= floor


@pytest.mark.parametrize("only_fp32", [True, False])
def test_an_int8_product_is_exact_on_either_kind_of_cpu(
    only_fp32: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(code("minilm"), "_multiplies_only_fp32", lambda: only_fp32)
    drawn = np.random.default_rng(0)
    weights = np.vstack([drawn.integers(-127, 128, (31, 1536)), np.full((1, 1536), 127)]).T
    tokens = np.vstack([drawn.integers(-127, 128, (17, 1536)), np.full((1, 1536), 127)])
    product = code("minilm")._int8_product(torch.tensor(weights, dtype=torch.float32))
    found = product(torch.tensor(tokens, dtype=torch.float32)).numpy()
    assert np.array_equal(found, (tokens @ weights).astype(np.float32))


def test_bf16_points_in_one_direction_on_either_kind_of_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    found = []
    for only_fp32 in (True, False):
        monkeypatch.setattr(code("minilm"), "_multiplies_only_fp32", lambda only_fp32=only_fp32: only_fp32)
        code("minilm")._encoders.clear()
        found.append(_one_by_one(_of("bf16", 32), TEXTS))
    code("minilm")._encoders.clear()
    assert (found[0] * found[1]).sum(1).min() >= 0.9998


def test_a_text_is_cut_after_the_tokens_of_its_variant() -> None:
    words = [b"water"] * 200
    kept, one_less = (b" ".join(words[:count]) for count in (30, 29))  # and two marks: 32 tokens
    model = loaded("minilm", "bf16-32")
    assert np.array_equal(_embed(model, kept), _embed(model, b" ".join(words)))
    assert not np.array_equal(_embed(model, kept), _embed(model, one_less))


def test_the_padded_size_is_that_of_the_longest_row() -> None:
    model = cast(SizedModel, loaded("minilm", "bf16-64"))
    _embed(model, b"water", b"water water water")
    assert model.padded_size == 5
    _embed(model, b"")
    assert model.padded_size == 2
    _embed(model, b"water", LONG)
    assert model.padded_size == 64


def test_a_text_of_megabytes_costs_no_more_than_what_is_kept_of_it() -> None:
    model = loaded("minilm", "bf16-32")
    assert np.array_equal(_embed(model, LONG * 5000), _embed(model, LONG))


@pytest.fixture(scope="module")
def light(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of light weights, as the build makes it."""
    folder = tmp_path_factory.mktemp("minilm") / "light"
    subprocess.run([sys.executable, MODELS / "minilm" / "build.py", "--light", folder], check=True)
    return folder


def test_light_weights_answer_as_those_of_the_package_to_the_bit(light: Path) -> None:
    carried = code("minilm").load(light, {"precision": "bf16", "tokens": 128})
    assert np.array_equal(_embed(carried, *TEXTS), _embed(_of("bf16", 128), *TEXTS))
    assert sum(path.stat().st_size for path in light.iterdir()) < 46e6


def test_light_weights_are_those_of_bf16_only(light: Path) -> None:
    with pytest.raises(ValueError, match="light weights are bf16; int8-16 needs package gt_all"):
        code("minilm").load(light, {"precision": "int8", "tokens": 16})


@pytest.mark.parametrize("name", ["model.safetensors", "tokenizer.json"])
def test_light_weights_that_were_damaged_on_the_way_are_refused(
    light: Path, tmp_path: Path, name: str
) -> None:
    shutil.copytree(light, tmp_path, dirs_exist_ok=True)
    content = bytearray((tmp_path / name).read_bytes())
    content[-2] ^= 1
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=rf"{name} has SHA-256 [0-9a-f]+, expected .*carry it again"):
        code("minilm").load(tmp_path, {"precision": "bf16", "tokens": 16})


def test_without_the_package_light_weights_are_used_where_they_are(
    light: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"precision": "bf16", "tokens": 16}
    monkeypatch.setattr(code("minilm"), "PACKAGE", "there_is_no_such_package")
    monkeypatch.setattr(code("minilm"), "LIGHT", tmp_path)
    with pytest.raises(ModuleNotFoundError, match=r"no light weights in .*: make it with `python .*--light"):
        code("minilm").load(None, options)
    monkeypatch.setattr(code("minilm"), "LIGHT", light)
    assert _embed(code("minilm").load(None, options), b"water").shape == (1, 384)


def test_int8_on_a_gpu_is_refused_with_what_computes_there() -> None:
    with pytest.raises(ValueError, match="int8-16 needs a CPU, not cuda:0; bf16 and fp32 take both"):
        code("minilm").load(None, {"precision": "int8", "tokens": 16, "device": "cuda:0"})


@pytest.mark.parametrize("size", [0, 1, 64, 512])
def test_a_sample_has_the_size_that_was_asked_for(size: int) -> None:
    texts = loaded("minilm", "fp32-128").sample(2, size)["TEXT"]
    assert [len(text) for text in texts.ravel()] == [size, size]


@pytest.mark.parametrize("variant", some(["int8-16", "bf16-32"]))  # the others take half a minute
def test_retrieval_accuracy_equals_the_stated_one_exactly(variant: str) -> None:
    texts = _docstrings(600)
    vectors = _one_by_one(loaded("minilm", variant), texts)
    nearest = (vectors[0::2] @ vectors[1::2].T).argmax(1)
    assert float((nearest == np.arange(len(nearest))).mean()) == measured("minilm")[variant]


def test_more_tokens_find_more() -> None:
    accuracies = measured("minilm")
    by_tokens = [accuracies[name] for name in ("int8-16", "bf16-32", "bf16-64", "bf16-128")]
    assert by_tokens == sorted(by_tokens)
    assert accuracies["bf16-128"] == pytest.approx(accuracies["fp32-128"], abs=0.02)


def test_a_missing_package_is_named_with_what_installs_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code("minilm"), "PACKAGE", "gt_no_such_package")
    with pytest.raises(ValueError, match="fp32-16 needs package gt_no_such_package: run `make setup`"):
        _of("fp32", 16)


def test_weights_that_are_not_the_expected_ones_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(code("minilm"), "WEIGHTS_SHA256", "0" * 64)
    monkeypatch.setattr(code("minilm"), "_encoders", {})
    with pytest.raises(ValueError, match=r"SHA-256 53aa5117.*expected 0000"):
        _of("fp32", 16)


@pytest.mark.in_turn(3)
def test_runtimes_are_variants_of_one_model_with_the_same_vectors(tmp_path: Path) -> None:
    script = MODELS / "minilm" / "export.py"
    folder = tmp_path / "runtimes"
    subprocess.run([sys.executable, script, folder, "--pairs", "20"], check=True, capture_output=True)
    spec = load_model(folder)
    assert {each.name: each.accuracy for each in spec.variants}.keys() == {
        "torch-fp32", "torch-bf16", "torch-int8", "onnx-fp32", "onnx-int8", "openvino-fp32"
    }  # fmt: skip
    backend = PythonBackend(1)
    rows = np.empty((len(TEXTS), 1), object)
    rows[:, 0] = TEXTS
    found = {}
    for each in spec.variants:
        model = backend.load(LoadOrder.of(1, spec, each.name))
        found[each.name] = np.asarray(model.predict({"TEXT": rows.copy()}, {})["EMBEDDING"])
    cosines = {name: float((found["torch-fp32"] * each).sum(1).min()) for name, each in found.items()}
    assert min(cosines["onnx-fp32"], cosines["openvino-fp32"]) > 0.99999
    assert min(cosines["onnx-int8"], cosines["torch-int8"]) > 0.85
