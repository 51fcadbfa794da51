"""`penstock infer`: values become the request that the model's metadata ask for."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from router.commandline.reading import RefusedError, UnreachableError
from router.verbs import infer as verb
from router.verbs.infer import DataError, infer, request_of


def metadata(*inputs: tuple[str, str, list[int]]) -> Mapping[str, Any]:
    return {"inputs": [{"name": name, "datatype": kind, "shape": shape} for name, kind, shape in inputs]}


VECTOR = metadata(("x", "FP32", [-1, 2]))
TEXT = metadata(("TEXT", "BYTES", [-1, 1]))
PAIR = metadata(("QUERY", "BYTES", [-1, 1]), ("DOCUMENT", "BYTES", [-1, 1]))


@pytest.mark.parametrize(
    ("text", "told", "shape", "data"),
    [
        ('{"x": [[1, 2], [3, 4]]}', VECTOR, [2, 2], [1, 2, 3, 4]),
        ('{"x": [1, 2]}', VECTOR, [1, 2], [1, 2]),
        ("[[1, 2]]", VECTOR, [1, 2], [1, 2]),
        ("a text", TEXT, [1, 1], ["a text"]),
        ('["one", "two"]', TEXT, [2, 1], ["one", "two"]),
        ('{"TEXT": [["one"], ["two"]]}', TEXT, [2, 1], ["one", "two"]),
        ("7", metadata(("n", "INT64", [-1])), [1], [7]),
    ],
)
def test_values_become_tensors(text: str, told: Mapping[str, Any], shape: list[int], data: list[Any]) -> None:
    (tensor,) = request_of(text, told)["inputs"]
    assert (tensor["shape"], tensor["data"]) == (shape, data)
    assert tensor["datatype"] == told["inputs"][0]["datatype"]


def test_a_request_of_the_protocol_is_sent_as_it_is() -> None:
    body = {"inputs": [{"name": "x"}], "parameters": {"timeout": 5}}
    assert request_of(json.dumps(body), VECTOR) == body


@pytest.mark.parametrize(
    ("text", "told", "said"),
    [
        ('{"y": [[1, 2]]}', VECTOR, r"unknown input 'y'; expected \{\"x\": FP32 \[-1, 2\]\}"),
        ("a text", PAIR, r"the model has several inputs; expected values by name: \{\"QUERY\": BYTES"),
        ("[[1, 2], [3]]", VECTOR, r"'x' has rows of unlike length; expected shape \[-1, 2\]"),
        ("[]", VECTOR, "'x' has an empty list"),
    ],
)
def test_what_is_no_request_is_named(text: str, told: Mapping[str, Any], said: str) -> None:
    with pytest.raises(DataError, match=said):
        request_of(text, told)


class Answering:
    """A gateway that serves VECTOR, has an example, and adds the values of a row."""

    def __init__(self) -> None:
        self.bodies: list[Any] = []

    def __call__(
        self, url: str, path: str, key_env: str, body: bytes | None = None, wait_s: float = 1.0
    ) -> object:
        if path.endswith("/example"):
            return {"inputs": [{"name": "x", "shape": [1, 2], "datatype": "FP32", "data": [1, 2]}]}
        if body is None:
            return VECTOR
        self.bodies.append(json.loads(body))
        if self.bodies[-1]["inputs"][0]["data"][0] == 0:
            raise RefusedError("answered 503", 503, "no slice is free in time")
        values = [sum(self.bodies[-1]["inputs"][0]["data"])] * 10
        return {"outputs": [{"name": "y", "datatype": "FP32", "shape": [1, 10], "data": values}]}


@pytest.fixture
def gateway(monkeypatch: pytest.MonkeyPatch) -> Answering:
    made = Answering()
    monkeypatch.setattr(verb, "read_json", made)
    return made


def test_an_answer_is_printed_in_a_line_an_output(
    gateway: Answering, capsys: pytest.CaptureFixture[str]
) -> None:
    assert infer("m", '{"x": [[3, 4.5]]}', "u", as_json=False, key_env="K") == 0
    first, last = capsys.readouterr().out.splitlines()
    assert first == "y  FP32 [1, 10]: " + ", ".join(["7.5"] * 8) + ", ... 2 more"
    assert last.startswith("answered in ")
    assert infer("m", None, "u", as_json=True, key_env="K") == 0
    assert json.loads(capsys.readouterr().out)["outputs"][0]["data"][0] == 3


def test_a_refusal_is_the_gateways_own_sentence(
    gateway: Answering, capsys: pytest.CaptureFixture[str]
) -> None:
    assert infer("m", "[[0, 0]]", "u", as_json=False, key_env="K") == 1
    assert capsys.readouterr().err == "no slice is free in time\n"


def test_data_may_be_in_a_file(
    gateway: Answering, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "data.json").write_text("[[1, 1]]")
    assert infer("m", f"@{tmp_path / 'data.json'}", "u", as_json=False, key_env="K") == 0
    assert gateway.bodies[-1]["inputs"][0]["data"] == [1, 1]
    assert infer("m", "@/no/such/file", "u", as_json=False, key_env="K") == 2
    assert capsys.readouterr().err == "/no/such/file cannot be read: No such file or directory\n"


def test_where_no_gateway_is_the_command_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def away(*_: object) -> object:
        raise UnreachableError("No gateway at u (refused); start one with 'penstock serve'.")

    monkeypatch.setattr(verb, "read_json", away)
    assert infer("m", None, "u", as_json=False, key_env="K") == 2
    assert "start one with 'penstock serve'" in capsys.readouterr().err
