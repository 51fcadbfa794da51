"""`/v1/embeddings` and `/embed`: all forms of input and answer, tokens counted, long texts cut or refused."""

from base64 import b64decode
from typing import Any

import httpx
import numpy as np
import pytest

from tests.router.http.endpoints.worlds import WORDS, TextServing, embedding, strings

LONG = " ".join(WORDS)  # 13 words, 15 tokens; the model reads 8


async def embed(client: httpx.AsyncClient, **body: Any) -> httpx.Response:
    return await client.post("/v1/embeddings", json={"model": "letters", **body})


def vectors(answer: httpx.Response) -> list[list[float]]:
    assert answer.status_code == 200, answer.text
    return [each["embedding"] for each in answer.json()["data"]]


@pytest.mark.parametrize("texts", [["the cat"], ["the cat", "a dog", ""]])
async def test_texts_have_their_embeddings_in_order_and_their_tokens_counted(
    client: httpx.AsyncClient, serving: TextServing, texts: list[str]
) -> None:
    answer = await embed(client, input=texts, user="someone")
    assert vectors(answer) == [embedding(text) for text in texts]
    said = answer.json()
    assert (said["object"], said["model"]) == ("list", "letters")
    assert [(each["object"], each["index"]) for each in said["data"]] == [
        ("embedding", index) for index in range(len(texts))
    ]
    tokens = sum(2 + len(text.split()) for text in texts)
    assert said["usage"] == {"prompt_tokens": tokens, "total_tokens": tokens}
    (call,) = serving.calls
    assert (call.rows, strings(call.inputs[0])) == (len(texts), texts)
    assert call.size == max(len(text) for text in texts)


async def test_one_text_is_a_list_of_one(client: httpx.AsyncClient) -> None:
    assert vectors(await embed(client, input="cat")) == [embedding("cat")]


async def test_base64_holds_the_same_floats(client: httpx.AsyncClient) -> None:
    (packed,) = vectors(await embed(client, input="cat", encoding_format="base64"))
    assert isinstance(packed, str)
    assert np.frombuffer(b64decode(packed), "<f4").tolist() == embedding("cat")


@pytest.mark.parametrize("wrapped", [False, True])
async def test_token_ids_are_the_text_that_they_spell(
    client: httpx.AsyncClient, serving: TextServing, wrapped: bool
) -> None:
    ids = [1, 3, 4, 5, 2]  # [CLS] the cat sat [SEP]
    answer = await embed(client, input=[ids, [4]] if wrapped else ids)
    assert vectors(answer)[0] == embedding("the cat sat")
    assert strings(serving.calls[0].inputs[0])[0] == "the cat sat"
    assert answer.json()["usage"]["prompt_tokens"] == (8 if wrapped else 5)


@pytest.mark.parametrize("ids", [[0, 3], [100_000], [2**31 - 1]])
async def test_ids_of_another_tokenizer_are_refused(client: httpx.AsyncClient, ids: list[int]) -> None:
    answer = await embed(client, input=ids)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "input"
    assert "do not read back" in answer.json()["error"]["message"]


async def test_dimensions_cut_what_the_model_was_trained_for_and_nothing_else(
    client: httpx.AsyncClient,
) -> None:
    (whole,) = vectors(await embed(client, input="cat", dimensions=4))
    assert whole == embedding("cat")
    (short,) = vectors(await embed(client, input="cat", dimensions=2))
    assert short == pytest.approx(np.array([2, 2]) / np.sqrt(8))
    refused = await embed(client, input="cat", dimensions=3)
    assert refused.status_code == 400
    assert "2 or 4" in refused.json()["error"]["message"]
    assert refused.json()["error"]["param"] == "dimensions"


async def test_a_long_text_is_refused_as_openai_does_and_cut_where_that_is_asked(
    client: httpx.AsyncClient, serving: TextServing
) -> None:
    refused = await embed(client, input=["cat", LONG])
    error = refused.json()["error"]
    assert (refused.status_code, error["code"]) == (400, "context_length_exceeded")
    assert "text 1" in error["message"]
    assert "15 tokens" in error["message"]
    assert "maximum context length is 8 tokens" in error["message"]
    cut = await embed(client, input=["cat", LONG], truncate_prompt_tokens=-1)
    assert cut.json()["usage"]["prompt_tokens"] == 3 + 8
    assert strings(serving.calls[-1].inputs[0]) == ["cat", " ".join(WORDS[:6])]
    shorter = await embed(client, input=LONG, truncate_prompt_tokens=4)
    assert shorter.json()["usage"]["prompt_tokens"] == 4


async def test_without_a_tokenizer_tokens_are_estimated_and_ids_refused(client: httpx.AsyncClient) -> None:
    answer = await client.post("/v1/embeddings", json={"model": "guess", "input": "abcde fghij"})
    assert answer.json()["usage"]["prompt_tokens"] == 3
    for body in ({"input": [1, 2]}, {"input": "a", "truncate_prompt_tokens": 5}):
        refused = await client.post("/v1/embeddings", json={"model": "guess", **body})
        assert refused.status_code == 400
        assert "no tokenizer" in refused.json()["error"]["message"]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({}, "'input' of the request must be a string or a list of strings, got none"),
        ({"input": []}, "'input'"),
        ({"input": [1, "a"]}, "must hold token ids"),
        ({"input": ["a", 1]}, "input[1] must be a string, got 1"),
        ({"input": [[]]}, "input[0] must be a list of token ids"),
        ({"input": [True]}, "input[0] must be a string, got true"),
        ({"input": {"a": 1}}, "'input'"),
        ({"input": "a", "encoding_format": "hex"}, "float or base64"),
        ({"input": "a", "dimensions": 0}, "a whole number, 1 or more"),
        ({"input": "a", "inputs": "b"}, "unknown key 'inputs'; did you mean 'input'?"),
        ({"input": "a", "parameters": 3}, "'parameters' of the request must be an object"),
        ({"input": "a", "parameters": {"nothing": 1}}, "unknown parameter 'nothing'"),
        ({"input": "a", "parameters": {"binary_data_output": True}}, "concerns tensors"),
        ({"input": "a", "model": 3}, "'model' of the request must be a string, got 3"),
        ({"input": "a", "model": ""}, "must name a model"),
    ],
)
async def test_a_request_that_is_not_valid_says_what_is_wrong(
    client: httpx.AsyncClient, serving: TextServing, body: dict[str, object], said: str
) -> None:
    answer = await embed(client, **body)
    error = answer.json()["error"]
    assert (answer.status_code, error["type"], error["code"]) == (400, "invalid_request_error", "bad_input")
    assert said in error["message"]
    assert serving.calls == []
    assert len(serving.turned_away) == 1


async def test_the_embed_of_text_embeddings_inference(client: httpx.AsyncClient) -> None:
    answer = await client.post("/embed", json={"inputs": ["cat", "a dog"], "model": "letters"})
    raw = np.array([embedding("cat"), embedding("a dog")])
    assert np.array(answer.json()) == pytest.approx(raw / np.linalg.norm(raw, axis=1, keepdims=True))
    body = {"inputs": LONG, "model": "letters", "normalize": False}
    refused = await client.post("/embed", json=body)
    assert (refused.status_code, refused.json()["error_type"]) == (400, "Validation")
    assert "15 tokens" in refused.json()["error"]
    cut = await client.post("/embed", json={**body, "truncate": True})
    assert cut.json() == [embedding(" ".join(WORDS[:6]))]
    left = await client.post("/embed", json={**body, "truncate": True, "truncation_direction": "left"})
    assert left.status_code == 400
