"""Large requests and answers are read, counted and written in a bulk process, with the same result."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from serving.values.specs import Limits
from tests.router.http.endpoints.worlds import TextServing, cosine, embedding
from tests.router.http.fastpath.wire import Running, request

pytestmark = pytest.mark.live

TEXTS = [f"the cat {'sat ' * (place % 3)}" for place in range(4000)]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    running = Running(Limits(), processes=1, serving=TextServing(tmp_path_factory.mktemp("world")))
    yield running
    running.stop()


def ask(running: Running, path: str, body: object) -> tuple[int, Any]:
    answer = running.ask(request(path, body=json.dumps(body).encode()))
    return answer.status, json.loads(answer.body)


@pytest.mark.parametrize("model", ["letters", "guess"])
def test_thousands_of_texts_are_embedded(running: Running, model: str) -> None:
    status, said = ask(running, "/v1/embeddings", {"model": model, "input": TEXTS})
    assert status == 200
    assert [each["embedding"] for each in said["data"]] == [embedding(text) for text in TEXTS]
    if model == "letters":
        assert said["usage"]["prompt_tokens"] == sum(2 + len(text.split()) for text in TEXTS)


def test_thousands_of_documents_are_ranked(running: Running) -> None:
    body = {"model": "letters", "query": "cat", "documents": TEXTS, "top_n": 1, "return_documents": True}
    status, said = ask(running, "/v1/rerank", body)
    assert status == 200
    (best,) = said["results"]
    assert best["relevance_score"] == pytest.approx(max(cosine("cat", text) for text in TEXTS))
    assert best["document"]["text"] == TEXTS[best["index"]]


def test_what_is_wrong_in_it_is_said_from_there(running: Running) -> None:
    status, said = ask(running, "/v1/embeddings", {"model": "letters", "input": [*TEXTS, "the cat " * 9]})
    assert (status, said["error"]["code"]) == (400, "context_length_exceeded")
    status, said = ask(
        running, "/v1/embeddings", {"model": "letters", "input": [*TEXTS, 7], "x": "y" * 70_000}
    )
    assert (status, said["error"]["code"]) == (400, "bad_input")
