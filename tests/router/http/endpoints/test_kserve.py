"""KServe v1 `:predict`: instances and inputs, of one input and of several, JSON, lines and plain texts."""

from base64 import b64encode
from typing import Any

import httpx
import pytest

from tests.router.http.endpoints.worlds import TextServing, embedding, strings

ONES, TWOS = [1] * 16, [2] * 16


async def predict(client: httpx.AsyncClient, named: str, **body: Any) -> httpx.Response:
    return await client.post(f"/v1/models/{named}:predict", json=body)


async def test_instances_of_the_only_input(client: httpx.AsyncClient) -> None:
    rows = [[0.5, 1, 2, 3], [4, 5, 6, 7]]
    assert (await predict(client, "pixels", instances=rows)).json() == {"predictions": rows}
    named = await predict(client, "pixels", instances=[{"X": rows[0]}], signature_name="serving_default")
    assert named.json() == {"predictions": rows[:1]}
    assert (await predict(client, "pixels", inputs=rows)).json() == {"outputs": rows}


async def test_instances_of_several_inputs_are_objects(client: httpx.AsyncClient) -> None:
    rows = [{"INPUT0": ONES, "INPUT1": TWOS}, {"INPUT0": TWOS, "INPUT1": TWOS}]
    answer = await predict(client, "simple", instances=rows)
    assert answer.json()["predictions"] == [
        {"OUTPUT0": [3] * 16, "OUTPUT1": [-1] * 16},
        {"OUTPUT0": [4] * 16, "OUTPUT1": [0] * 16},
    ]
    columns = await predict(client, "simple", inputs={"INPUT1": [TWOS], "INPUT0": [ONES]})
    assert columns.json() == {"outputs": {"OUTPUT0": [[3] * 16], "OUTPUT1": [[-1] * 16]}}


async def test_texts_stand_alone_in_a_list_or_as_base64(
    client: httpx.AsyncClient, serving: TextServing
) -> None:
    packed = {"b64": b64encode(b"a dog").decode()}
    for instances in (["the cat"], [["the cat"]], [{"TEXT": "the cat"}]):
        answer = await predict(client, "letters", instances=instances)
        assert answer.json() == {"predictions": [embedding("the cat")]}
    assert (await predict(client, "letters", instances=[packed])).status_code == 200
    assert strings(serving.calls[-1].inputs[0]) == ["a dog"]


async def test_a_plain_text_and_lines_of_json(client: httpx.AsyncClient) -> None:
    async def send(content_type: str, content: bytes) -> httpx.Response:
        headers = {"content-type": content_type}
        return await client.post("/v1/models/letters:predict", content=content, headers=headers)

    plain = await send("text/plain; charset=utf-8", b"the cat")
    assert plain.json() == {"predictions": [embedding("the cat")]}
    lines = await send("application/x-ndjson", b'"the cat"\r\n\n{"TEXT": "a dog"}\n')
    assert lines.status_code == 400  # some rows name their input and others do not
    lines = await send("application/x-ndjson", b'"the cat"\r\n\n"a dog"\n')
    assert lines.json() == {"predictions": [embedding("the cat"), embedding("a dog")]}
    broken = await send("application/jsonl", b'"the cat"\n{"a":\n')
    assert broken.status_code == 400
    assert "line 2 of the request is not valid JSON" in broken.json()["error"]
    assert (await send("application/jsonl", b"\n\n")).status_code == 400
    assert (
        (await send("text/plain", b"\xff")).json()["error"].startswith("a body of text/plain must be UTF-8")
    )


@pytest.mark.parametrize(
    ("model", "body", "said"),
    [
        ("simple", {}, "either 'instances' or 'inputs'"),
        ("simple", {"instances": [], "inputs": []}, "either 'instances' or 'inputs'"),
        ("simple", {"instances": []}, "'instances' of the request must be a list of rows"),
        ("simple", {"instances": [ONES]}, "must be an object with 'INPUT0', 'INPUT1'"),
        ("simple", {"instances": [{"INPUT0": ONES}]}, "input 'INPUT1' of model 'simple' is missing"),
        (
            "simple",
            {"instances": [{"INPUT0": ONES, "INPUT1": ONES}, {"INPUT0": ONES}]},
            "instances[1] has other inputs than instances[0]",
        ),
        ("simple", {"inputs": {"INPUT0": [ONES], "INPUT1": 3}}, "the batch of input 'INPUT1' must be a list"),
        ("simple", {"inputs": {"INPUT0": [["a"] * 16], "INPUT1": [ONES]}}, "element [0,0] must be a whole"),
        ("pixels", {"instances": [[1, 2, 3]]}, "expected [-1,4], got [1,3]"),
        ("pixels", {"instances": [{"Y": [1, 2, 3, 4]}]}, "no input 'Y'"),
        ("letters", {"instances": [{"b64": "!"}]}, "holds no base64"),
        ("letters", {"instances": [{"b64": 3}]}, 'must be {"b64": TEXT}'),
        ("pixels", {"instances": [[1, 2, 3, None]]}, "element [0,3] must be a number"),
        ("pixels", {"instances": [[1, 2, 3, 4]], "model": "simple"}, "but its path names 'pixels'"),
        ("pixels", {"instances": [[1, 2, 3, 4]], "signature_name": "x"}, "must be serving_default"),
    ],
)
async def test_a_request_that_is_not_valid_says_what_is_wrong(
    client: httpx.AsyncClient, model: str, body: dict[str, object], said: str
) -> None:
    answer = await predict(client, model, **body)
    assert answer.status_code == 400
    assert said in answer.json()["error"]
    assert answer.json()["reason"] == "bad_input"


async def test_an_unknown_model_is_404(client: httpx.AsyncClient) -> None:
    answer = await predict(client, "nobody", instances=[1])
    assert (answer.status_code, answer.json()["reason"]) == (404, "unknown_model")
