"""Endpoints ask for keys as all inference does, before they read a body; which model it is for follows."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from router.security.auth.guard import KeyGuard
from router.security.auth.issuing import make_key
from router.security.auth.keys import KeyFile
from router.settings.keys import KeySpec
from serving.values.vocabulary import FORBIDDEN, UNAUTHENTICATED
from tests.router.http.endpoints.worlds import TextServing
from tests.router.http.fastpath.wire import LIMITS, Answer, Running, request

KEY, OTHER = make_key(), make_key()


@pytest.fixture
def running(tmp_path: Path) -> Iterator[Running]:
    """`KEY` infers with `letters` and `cross`, for the tenant gold and in the tier cheap; `OTHER` reads."""
    keys = [
        KeySpec("app", KEY.id, KEY.hash, "gold", ("infer",), ("letters", "cross"), ("cheap",)),
        KeySpec("eyes", OTHER.id, OTHER.hash, "default", ("read",)),
    ]
    running = Running(LIMITS, guard=KeyGuard(KeyFile(keys)), serving=TextServing(tmp_path))
    yield running
    running.stop()


def ask(running: Running, path: str, body: object, key: str = "", **fields: str) -> Answer:
    authorization = {"authorization": f"Bearer {key}"} if key else {}
    return running.ask(request(path, body=json.dumps(body).encode(), **authorization, **fields))


def test_a_bearer_is_the_key_and_says_the_tenant(running: Running) -> None:
    answer = ask(
        running, "/v1/embeddings", {"model": "letters", "input": "cat"}, KEY.text, x_tenant="default"
    )
    assert answer.status == 200
    assert running.serving.calls[0].tenant == "gold"


def test_without_a_key_it_is_401_in_openais_form(running: Running) -> None:
    with running.connect() as wire:
        wire.send(request("/v1/embeddings", content_length="900000"))  # of which nothing comes
        answer = wire.read()
    error = json.loads(answer.body)["error"]
    assert (answer.status, error["type"], error["code"]) == (401, "authentication_error", "invalid_api_key")
    assert running.serving.turned_away == [("", UNAUTHENTICATED, "default")]


def test_another_model_role_or_tier_is_403(running: Running) -> None:
    body = {"model": "mood", "input": "x"}
    refused = ask(running, "/v1/classify", body, KEY.text)
    error = json.loads(refused.body)["error"]
    assert (refused.status, error["type"], error["code"]) == (403, "permission_error", "forbidden")
    assert ask(running, "/v1/models/mood:predict", {"instances": ["x"]}, KEY.text).status == 403
    assert ask(running, "/v1/embeddings", {"model": "letters", "input": "x"}, OTHER.text).status == 403
    gold = ask(running, "/v1/embeddings", {"model": "letters", "input": "x"}, KEY.text, x_tier="gold")
    assert gold.status == 403
    assert [outcome for _, outcome, _ in running.serving.turned_away] == [FORBIDDEN] * 4
    assert running.serving.calls == []


def test_only_models_that_the_key_may_use_could_be_meant(running: Running) -> None:
    answer = ask(running, "/embed", {"inputs": "cat"}, KEY.text)  # the gateway also serves `guess`
    assert answer.status == 200
    assert running.serving.calls[0].model.name == "letters"


def test_lists_hold_what_the_key_may_use(running: Running) -> None:
    def read(path: str, key: str) -> Answer:
        return running.ask(request(path, method="GET", content_length=None, authorization=f"Bearer {key}"))

    assert json.loads(read("/v1/models", KEY.text).body)["models"] == ["letters", "cross"]
    assert read("/v1/models/letters", KEY.text).status == 200
    assert read("/v1/models/mood", KEY.text).status == 403
    assert read("/v1/models/mood", OTHER.text).status == 200
