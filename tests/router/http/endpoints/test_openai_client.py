"""OpenAI's own Python client at the endpoints: answers, lists, and its errors with their retries."""

from collections.abc import Iterator
from pathlib import Path

import openai
import pytest

from serving.values.vocabulary import DEADLINE_QUEUED, OVERLOAD, QUOTA
from tests.router.http.endpoints.worlds import WORDS, TextServing, embedding
from tests.router.http.fastpath.wire import LIMITS, Running


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    running = Running(LIMITS, serving=TextServing(tmp_path))
    yield running
    running.stop()


@pytest.fixture
def client(running: Running) -> Iterator[openai.OpenAI]:
    url = f"http://127.0.0.1:{running.port}/v1"
    with openai.OpenAI(base_url=url, api_key="none", max_retries=0, timeout=60) as client:
        yield client


def test_embeddings_come_as_base64_and_as_floats(client: openai.OpenAI) -> None:
    found = client.embeddings.create(model="letters", input=["the cat", "a dog"])
    assert [each.embedding for each in found.data] == [embedding("the cat"), embedding("a dog")]
    assert (found.model, found.usage.prompt_tokens) == ("letters", 8)
    plain = client.embeddings.create(model="letters", input="cat", encoding_format="float", user="u")
    assert plain.data[0].embedding == embedding("cat")
    ids = client.embeddings.create(model="letters", input=[[3, 4]])
    assert ids.data[0].embedding == embedding("the cat")


def test_models_are_listed(client: openai.OpenAI) -> None:
    assert "letters" in [each.id for each in client.models.list()]
    assert client.models.retrieve("letters").owned_by == "penstock"
    with pytest.raises(openai.NotFoundError):
        client.models.retrieve("nobody")


def test_its_errors_are_the_ones_that_it_knows(client: openai.OpenAI, running: Running) -> None:
    with pytest.raises(openai.BadRequestError) as long:
        client.embeddings.create(model="letters", input=" ".join(WORDS))
    assert long.value.code == "context_length_exceeded"
    with pytest.raises(openai.NotFoundError) as unknown:
        client.embeddings.create(model="nobody", input="x")
    assert (unknown.value.code, unknown.value.param) == ("model_not_found", "model")
    for outcome, kind, status in (
        (QUOTA, openai.RateLimitError, 429),
        (OVERLOAD, openai.InternalServerError, 503),
        (DEADLINE_QUEUED, openai.InternalServerError, 504),
    ):
        running.serving.outcome = outcome
        with pytest.raises(kind) as failed:
            client.embeddings.create(model="letters", input="x")
        assert failed.value.status_code == status


def test_it_tries_again_when_it_is_told_to(client: openai.OpenAI, running: Running) -> None:
    running.serving.outcome, running.serving.retry_us = QUOTA, 1_000
    with pytest.raises(openai.RateLimitError):
        client.with_options(max_retries=2).embeddings.create(model="letters", input="x")
    assert len(running.serving.calls) == 3
