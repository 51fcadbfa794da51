"""`endpoints:` of a model.yaml: found from the tensors, or said; a fault has its place and a sentence."""

from pathlib import Path

import pytest

from router.settings import load_model, load_settings
from router.verbs.plan import endpoint_lines
from serving.values.applications import Application
from tests.router.settings.samples import model_faults, write_deployment, write_model

MODEL = """\
name: m
inputs: %s
outputs: %s
batch_max: 4
slo_ms: 10
endpoints: %s
"""
TEXT = "{name: TEXT, datatype: BYTES, shape: [-1, 1]}"
OTHER = "{name: OTHER, datatype: BYTES, shape: [-1]}"
PIXELS = "{name: PIXELS, datatype: UINT8, shape: [-1, 4]}"
VECTOR = "{name: VECTOR, datatype: FP32, shape: [-1, 384]}"
SCORE = "{name: SCORE, datatype: FP16, shape: [-1, 1]}"
COUNT = "{name: COUNT, datatype: INT64, shape: [-1, 1]}"


def text(inputs: str, outputs: str, endpoints: str) -> str:
    return MODEL % (f"[{inputs}]", f"[{outputs}]", endpoints)


@pytest.mark.parametrize(
    ("inputs", "outputs", "endpoints", "found"),
    [
        (TEXT, f"{COUNT}, {VECTOR}", "{task: embed}", Application("embed", ("TEXT",), "VECTOR")),
        (
            f"{TEXT}, {OTHER}", SCORE, "{task: rerank, activation: sigmoid}",
            Application("rerank", ("TEXT", "OTHER"), "SCORE", "sigmoid"),
        ),
        (
            f"{TEXT}, {OTHER}", SCORE, "{task: rerank, document: TEXT}",
            Application("rerank", ("OTHER", "TEXT"), "SCORE"),
        ),
        (PIXELS, VECTOR, "{task: classify}", Application("classify", ("PIXELS",), "VECTOR")),
        (
            TEXT, f"{VECTOR}, {SCORE}", "{task: embed, output: SCORE, dimensions: []}",
            Application("embed", ("TEXT",), "SCORE"),
        ),
        (
            TEXT, VECTOR, "{task: embed, dimensions: [128, 64]}",
            Application("embed", ("TEXT",), "VECTOR", dimensions=(64, 128)),
        ),
    ],
)  # fmt: skip
def test_what_is_left_out_follows_from_the_tensors(
    tmp_path: Path, inputs: str, outputs: str, endpoints: str, found: Application
) -> None:
    assert load_model(write_model(tmp_path, text(inputs, outputs, endpoints))).application == found


def test_a_model_that_says_nothing_offers_nothing(tmp_path: Path) -> None:
    assert load_model(write_model(tmp_path, text(TEXT, VECTOR, ""))).application is None


def test_the_first_tokenizer_that_is_there_counts(tmp_path: Path) -> None:
    stated = "{task: embed, tokenizer: ['package:orjson/none.json', build/t.json, u.json], tokens_max: 8}"
    folder = write_model(tmp_path, text(TEXT, VECTOR, stated))
    application = load_model(folder).application
    assert application is not None
    assert application.tokenizer is None
    assert application.tokenizers == ("package:orjson/none.json", "build/t.json", "u.json")
    (folder / "u.json").touch()
    (folder / "build" / "t.json").touch()
    application = load_model(folder).application
    assert application is not None
    assert application.tokenizer == folder / "build" / "t.json"
    packaged = text(TEXT, VECTOR, "{task: embed, tokenizer: 'package:orjson/__init__.py'}")
    found = load_model(write_model(folder, packaged)).application
    assert found is not None
    assert found.tokenizer is not None


@pytest.mark.parametrize(
    ("inputs", "outputs", "endpoints", "where", "said"),
    [
        (TEXT, VECTOR, "{task: embedd}", "6:19: endpoints.task", "unknown task; got 'embedd'"),
        (TEXT, VECTOR, "{}", "endpoints.task", "required"),
        (TEXT, VECTOR, "embed", "6:12: endpoints", "not a mapping"),
        (TEXT, VECTOR, "{task: embed, inputs: TEXT}", "endpoints.inputs", "did you mean input?"),
        (TEXT, COUNT, "{task: embed}", "endpoints.task", "no output of floats of shape [-1, n]"),
        (PIXELS, VECTOR, "{task: embed}", "endpoints.task", "no input that takes one text a row"),
        (f"{TEXT}, {OTHER}", VECTOR, "{task: embed}", "endpoints.task", "fills 1 input, but the model has 2"),
        (TEXT, SCORE, "{task: rerank}", "endpoints.task", "fills 2 inputs, but the model has 1"),
        (
            TEXT, f"{VECTOR}, {SCORE}", "{task: embed}", "endpoints.task",
            "several tensors could be meant; expected output: VECTOR or SCORE",
        ),
        (TEXT, VECTOR, "{task: embed, input: TXET}", "endpoints.input", "did you mean TEXT?"),
        (TEXT, f"{VECTOR}, {COUNT}", "{task: embed, output: COUNT}", "endpoints.output", "'COUNT' is no"),
        (TEXT, VECTOR, "{task: embed, query: TEXT}", "endpoints.query", "no key of task embed; expected"),
        (TEXT, VECTOR, "{task: classify, dimensions: [3]}", "endpoints.dimensions", "no key of task"),
        (TEXT, VECTOR, "{task: embed, dimensions: [384]}", "endpoints.dimensions", "less than the 384"),
        (TEXT, VECTOR, "{task: embed, dimensions: [a]}", "endpoints.dimensions", "not lengths"),
        (TEXT, VECTOR, "{task: embed, activation: softmax}", "endpoints.activation", "an embedding has none"),
        (TEXT, VECTOR, "{task: classify, activation: relu}", "endpoints.activation", "unknown activation"),
        (
            f"{TEXT}, {OTHER}", SCORE, "{task: rerank, activation: softmax}", "endpoints.activation",
            "a document has one score",
        ),
        (
            f"{TEXT}, {OTHER}", SCORE, "{task: rerank, query: TEXT, document: TEXT}", "endpoints.document",
            "is the query's input, too",
        ),
        (TEXT, VECTOR, "{task: embed, tokens_max: 8}", "endpoints.tokens_max", "expected tokenizer"),
        (TEXT, VECTOR, "{task: embed, tokenizer: 3}", "endpoints.tokenizer", "not a file"),
    ],
)  # fmt: skip
def test_a_fault_is_named_with_its_place(
    tmp_path: Path, inputs: str, outputs: str, endpoints: str, where: str, said: str
) -> None:
    (fault,) = model_faults(tmp_path, text(inputs, outputs, endpoints))
    assert where in fault
    assert said in fault


def test_check_says_which_endpoints_a_model_serves(tmp_path: Path) -> None:
    spec = load_model(write_model(tmp_path, text(TEXT, VECTOR, "{task: embed}")))
    (line,) = endpoint_lines(spec)
    assert "/v1/embeddings" in line
    assert "/v1/rerank" in line
    assert "TEXT and VECTOR" in line
    assert "/predict" not in line


def test_check_warns_of_a_tokenizer_that_is_not_there(tmp_path: Path) -> None:
    file = write_deployment(tmp_path)
    folder = tmp_path / "models" / "minilm"
    stated = (folder / "model.yaml").read_text() + "endpoints: {task: embed, tokenizer: t.json}\n"
    write_model(folder, stated)
    (warning,) = [each for each in load_settings(file).warnings if "tokenizer" in each.message]
    assert "tokens are estimated" in warning.message
    assert warning.where == "models[1].path"
    (folder / "t.json").touch()
    assert not [each for each in load_settings(file).warnings if "tokenizer" in each.message]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ("decoupled: true", "an endpoint gives one answer; expected decoupled: false"),
        ("sequence: {}", "an endpoint knows no sequences; expected no sequence"),
    ],
)
def test_a_model_whose_rows_have_not_one_answer_each_has_no_endpoints(
    tmp_path: Path, change: str, sentence: str
) -> None:
    faults = model_faults(tmp_path, f"{text(TEXT, VECTOR, '{task: embed}')}{change}\n")
    assert any(sentence in each for each in faults)
