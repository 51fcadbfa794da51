"""Rerank and score, by a model that reads pairs and by the cosine of embeddings, in every client's shape."""

from math import exp
from typing import Any

import httpx
import pytest

from tests.router.http.endpoints.worlds import WORDS, TextServing, cosine, logit, strings

QUERY = "the cat"
DOCUMENTS = ["a dog ran", "the cat sat", "it ran"]


async def rerank(client: httpx.AsyncClient, path: str = "/v1/rerank", **body: Any) -> httpx.Response:
    return await client.post(path, json={"model": "cross", "query": QUERY, **body})


def sigmoid(value: float) -> float:
    return 1 / (1 + exp(-value))


@pytest.mark.parametrize("path", ["/rerank", "/v1/rerank", "/v2/rerank"])
async def test_documents_are_sorted_by_the_models_score(
    client: httpx.AsyncClient, serving: TextServing, path: str
) -> None:
    answer = await rerank(client, path, documents=DOCUMENTS)
    said = answer.json()
    assert [each["index"] for each in said["results"]] == [1, 0, 2]
    scores = [sigmoid(logit(QUERY, DOCUMENTS[place])) for place in (1, 0, 2)]
    assert [each["relevance_score"] for each in said["results"]] == pytest.approx(scores)
    assert "document" not in said["results"][0]
    assert said["usage"]["total_tokens"] == sum(3 + 2 + len(each.split()) for each in DOCUMENTS)
    assert said["id"].startswith("rerank-")
    assert (said["model"], said["meta"]["api_version"]["version"]) == ("cross", "1")
    (call,) = serving.calls
    assert strings(call.inputs[0]) == [QUERY] * 3
    assert strings(call.inputs[1]) == DOCUMENTS


async def test_a_model_of_embeddings_scores_by_their_cosine(
    client: httpx.AsyncClient, serving: TextServing
) -> None:
    answer = await rerank(client, model="letters", documents=DOCUMENTS)
    scores = {place: cosine(QUERY, text) for place, text in enumerate(DOCUMENTS)}
    found = {each["index"]: each["relevance_score"] for each in answer.json()["results"]}
    assert found == pytest.approx(scores)
    assert [*found] == sorted(scores, key=lambda place: -scores[place])
    assert strings(serving.calls[0].inputs[0]) == [QUERY, *DOCUMENTS]


async def test_the_best_ones_alone_with_their_texts(client: httpx.AsyncClient) -> None:
    documents = [{"text": each, "source": "x"} for each in DOCUMENTS]
    answer = await rerank(client, documents=documents, top_n=2, return_documents=True, rank_fields=["text"])
    found = answer.json()["results"]
    assert [(each["index"], each["document"]) for each in found] == [
        (1, {"text": DOCUMENTS[1]}),
        (0, {"text": DOCUMENTS[0]}),
    ]
    everything = await rerank(client, documents=DOCUMENTS, top_n=0)
    assert len(everything.json()["results"]) == 3


async def test_raw_scores_have_no_activation(client: httpx.AsyncClient) -> None:
    answer = await rerank(client, documents=DOCUMENTS, use_activation=False)
    assert [each["relevance_score"] for each in answer.json()["results"]] == [1.0, -1.0, -1.0]


async def test_the_shape_of_text_embeddings_inference(client: httpx.AsyncClient) -> None:
    answer = await rerank(client, "/rerank", texts=DOCUMENTS, return_text=True, raw_scores=True)
    assert answer.json() == [
        {"index": 1, "score": 1.0, "text": DOCUMENTS[1]},
        {"index": 0, "score": -1.0, "text": DOCUMENTS[0]},
        {"index": 2, "score": -1.0, "text": DOCUMENTS[2]},
    ]


async def test_long_documents_are_cut_as_cohere_does_and_refused_as_tei_does(
    client: httpx.AsyncClient, serving: TextServing
) -> None:
    long = " ".join(WORDS)  # with the query and three marks 18 tokens; the model reads 12
    cut = await rerank(client, documents=[long, "cat"])
    assert cut.status_code == 200
    assert strings(serving.calls[-1].inputs[1]) == [" ".join(WORDS[:7]), "cat"]
    assert cut.json()["usage"]["total_tokens"] == 12 + 6
    fewer = await rerank(client, documents=[long], max_tokens_per_doc=8)
    assert fewer.json()["usage"]["total_tokens"] == 8
    refused = await rerank(client, "/rerank", texts=[long])
    assert (refused.status_code, refused.json()["error_type"]) == (400, "Validation")
    assert (await rerank(client, "/rerank", texts=[long], truncate=True)).status_code == 200
    no_room = await rerank(client, query=" ".join(WORDS), documents=["cat"])
    assert no_room.status_code == 400
    assert "shorter query" in no_room.json()["error"]["message"]


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ({}, "'documents' of the request must be a list of texts"),
        ({"documents": []}, "'documents'"),
        ({"documents": ["a", {"title": "b"}]}, "documents[1] must be a string, or an object with a 'text'"),
        ({"documents": ["a"], "query": None}, "'query' of the request must be a string"),
        ({"documents": ["a"], "top_n": -1}, "a whole number, 0 or more"),
        ({"documents": ["a"], "rank_fields": ["title"]}, "'rank_fields' must be ['text']"),
        ({"documents": ["a"], "max_chunks_per_doc": 3}, "'max_chunks_per_doc', which this gateway does not"),
    ],
)
async def test_a_request_that_is_not_valid_says_so_where_cohere_and_openai_look(
    client: httpx.AsyncClient, body: dict[str, Any], said: str
) -> None:
    answer = await rerank(client, **{"documents": None, **body})
    assert answer.status_code == 400
    told = answer.json()
    assert said in (told["error"]["message"] if isinstance(told["error"], dict) else told["error"])
    if isinstance(told["error"], dict):
        assert told["message"] == told["error"]["message"]


async def score(client: httpx.AsyncClient, **body: Any) -> httpx.Response:
    return await client.post("/v1/score", json={"model": "cross", "use_activation": False, **body})


@pytest.mark.parametrize("keys", [("text_1", "text_2"), ("queries", "documents"), ("queries", "items")])
async def test_one_text_is_scored_against_many(client: httpx.AsyncClient, keys: tuple[str, str]) -> None:
    said = (await score(client, **{keys[0]: QUERY, keys[1]: DOCUMENTS})).json()
    assert [each["score"] for each in said["data"]] == [logit(QUERY, each) for each in DOCUMENTS]
    assert [each["index"] for each in said["data"]] == [0, 1, 2]
    assert (said["object"], said["data"][0]["object"]) == ("list", "score")


async def test_pairs_are_scored_one_by_one(client: httpx.AsyncClient) -> None:
    pairs = {"text_1": ["a dog", "it ran"], "text_2": ["a cat", "it ran"]}
    assert [each["score"] for each in (await score(client, **pairs)).json()["data"]] == [0.0, 1.0]
    refused = await score(client, text_1=["a", "b"], text_2=["c"])
    assert refused.status_code == 400
    assert "got 2 and 1" in refused.json()["error"]["message"]
