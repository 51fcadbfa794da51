"""REST asks for keys, on the fast path and before the application, before it reads any of a body."""

import json
import logging
from collections.abc import Iterator

import pytest

from serving.values.vocabulary import FORBIDDEN, TOO_LARGE, UNAUTHENTICATED
from tests.router.http.fastpath.wire import (
    LIMITS,
    Answer,
    Running,
    body_of,
    get,
    infer,
    request,
    total,
)
from tests.router.security.auth.callers import Callers

NO_KEY = (401, "unauthenticated")
MAY_NOT = (403, "forbidden")


@pytest.fixture(params=[True, False], ids=["fast path", "ASGI"])
def direct(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


@pytest.fixture
def callers() -> Callers:
    return Callers()


@pytest.fixture
def running(direct: bool, callers: Callers) -> Iterator[Running]:
    """A server that asks for keys, and that still answers afterwards."""
    running = Running(LIMITS, direct=direct, access=True, guard=callers.guard)
    try:
        yield running
        assert total(running.ask(infer(41, x_api_key=callers.key("app")))) == 42
    finally:
        running.stop()


def told(answer: Answer) -> tuple[int, str]:
    """Status and reason, which stand in the body and in a field; 401 says which scheme would do."""
    reason = json.loads(answer.body)["reason"]
    assert answer.fields["x-penstock-reason"] == reason
    assert answer.fields.get("www-authenticate") == ("Bearer" if answer.status == 401 else None)
    return answer.status, reason


def test_a_key_lets_in_by_either_field(running: Running, callers: Callers) -> None:
    key = callers.key("app")
    assert total(running.ask(infer(1, x_api_key=key))) == 2
    assert total(running.ask(infer(1, authorization=f"Bearer {key}"))) == 2
    assert [call.tenant for call in running.serving.calls] == ["gold", "gold"]
    assert running.serving.turned_away == []


def test_without_a_key_that_counts_it_is_401_and_counted(running: Running, callers: Callers) -> None:
    for fields in (
        {},
        {"x_api_key": callers.key("nobody")},
        {"x_api_key": callers.key("late")},
        {"authorization": "Basic dXNlcjpwYXNz"},
        {"x_tenant": "gold"},
    ):
        assert told(running.ask(infer(1, **fields))) == NO_KEY
    assert running.serving.turned_away == [("simple", UNAUTHENTICATED, "default")] * 5
    assert running.serving.calls == []


def test_a_key_for_something_else_is_403_and_counted_for_its_tenant(
    running: Running, callers: Callers
) -> None:
    assert told(running.ask(infer(1, x_api_key=callers.key("eyes")))) == MAY_NOT
    other = running.ask(infer(1, "/v2/models/identity/infer", x_api_key=callers.key("narrow")))
    assert told(other) == MAY_NOT
    assert other.error == "the API key 'narrow' may not use model 'identity'; its models are 'simple'"
    assert running.serving.turned_away == [
        ("simple", FORBIDDEN, "default"),
        ("identity", FORBIDDEN, "default"),
    ]
    assert told(running.ask(infer(1, "/v2/models/absent/infer", x_api_key=callers.key("narrow")))) == MAY_NOT
    assert running.ask(infer(1, "/v2/models/absent/infer", x_api_key=callers.key("app"))).status == 404


def test_what_a_client_says_of_its_tenant_counts_for_nothing(running: Running, callers: Callers) -> None:
    for name, tenant in (("app", "gold"), ("boss", "default")):
        assert running.ask(infer(1, x_api_key=callers.key(name), x_tenant="batch.jobs")).status == 200
        assert running.serving.calls[-1].tenant == tenant
    bad = request(body=b"{}", x_api_key=callers.key("app"), x_tenant="batch.jobs")
    assert running.ask(bad).status == 400
    large = request(body=b"", content_length=str(LIMITS.body_bytes + 1), x_api_key=callers.key("app"))
    assert running.ask(large).status == 413
    assert [tenant for _, _, tenant in running.serving.turned_away[:1]] == ["gold"]
    if running.direct:
        assert running.serving.turned_away[1] == ("simple", TOO_LARGE, "gold")


def test_only_the_tiers_of_the_key_may_be_named(running: Running, callers: Callers) -> None:
    key = callers.key("narrow")
    assert running.ask(infer(1, x_api_key=key, x_tier="cheap")).status == 200
    assert running.ask(infer(1, x_api_key=key)).status == 200
    refused = running.ask(infer(1, x_api_key=key, x_tier="gold"))
    assert told(refused) == MAY_NOT
    assert refused.error == "the API key 'narrow' may not ask for tier 'gold'; its tiers are 'cheap'"
    named = request(body=body_of(1, parameters={"tier": "gold"}), x_api_key=key)
    assert told(running.ask(named)) == MAY_NOT
    assert running.ask(infer(1, x_api_key=callers.key("app"), x_tier="gold")).status == 200
    assert callers.guard.refused["tier"] == 2


def test_it_is_refused_before_its_body_is_there(running: Running) -> None:
    with running.connect() as wire:
        wire.send(request(content_length="900000"))  # of which nothing comes
        assert told(wire.read()) == NO_KEY
    with running.connect() as wire:
        wire.send(request(content_length="900000", expect="100-continue"))
        status, _ = wire.read_head()  # not 100
        assert status == 401
    with running.connect() as wire:
        wire.send(request(content_length=None, transfer_encoding="chunked"))
        assert told(wire.read()) == NO_KEY


def test_answers_stay_in_order_and_nothing_behind_a_refusal_is_served(
    running: Running, callers: Callers
) -> None:
    key = callers.key("app")
    with running.connect() as wire:
        wire.send(infer(1, x_api_key=key) + infer(2, x_api_key=key) + infer(3))
        assert [total(wire.read()), total(wire.read())] == [2, 3]
        assert told(wire.read()) == NO_KEY


def test_probes_need_no_key_and_all_else_does(running: Running, callers: Callers) -> None:
    for path in ("/livez", "/readyz", "/healthz", "/v2/health/live", "/v2/health/ready"):
        assert running.ask(get(path)).status == 200
    for path in ("/v2", "/v2/models", "/v2/models/simple", "/v2/models/stats", "/docs", "/nothing"):
        assert told(running.ask(get(path))) == NO_KEY
    boss = callers.key("boss")
    assert told(running.ask(request("/v2/cache", method="DELETE"))) == NO_KEY
    assert told(running.ask(request("/v2/cache", method="DELETE", x_api_key=callers.key("app")))) == MAY_NOT
    assert running.ask(request("/v2/cache", method="DELETE", x_api_key=boss)).status == 200
    assert running.ask(request("/nothing", method="GET", x_api_key=boss)).status == 404


def test_a_key_sees_its_models_only(running: Running, callers: Callers) -> None:
    def read(path: str, name: str) -> Answer:
        return running.ask(request(path, method="GET", content_length=None, x_api_key=callers.key(name)))

    assert json.loads(read("/v2/models", "eyes").body) == {"models": ["simple"]}
    assert json.loads(read("/v2/models", "app").body) == {"models": ["simple", "identity", "crash"]}
    stats = json.loads(read("/v2/models/stats", "eyes").body)["model_stats"]
    assert [each["name"] for each in stats] == ["simple"]
    assert read("/v2/models/simple/stats", "eyes").status == 200
    assert told(read("/v2/models/identity/stats", "eyes")) == MAY_NOT
    assert told(read("/v2/models/simple/stats", "app")) == MAY_NOT


def test_a_path_that_is_written_otherwise_needs_the_same(running: Running, callers: Callers) -> None:
    for path in (
        "/v2/models/%73imple/infer",
        "/v2/models/simple/infer?x=1",
        "/v2/models/simple/versions/1/infer",
    ):
        assert told(running.ask(infer(1, path))) == NO_KEY
        assert told(running.ask(infer(1, path, x_api_key=callers.key("eyes")))) == MAY_NOT
        assert running.ask(infer(1, path, x_api_key=callers.key("narrow"))).status == 200
    for path in ("/v2/models/%69dentity/infer", "/v2/models/identity/versions/1/infer"):
        assert told(running.ask(infer(1, path, x_api_key=callers.key("narrow")))) == MAY_NOT


def test_a_key_that_is_taken_away_ends_at_once_on_open_connections(
    running: Running, callers: Callers
) -> None:
    guard, keys = callers.guard, callers.guard.keys
    with running.connect() as wire:
        wire.send(infer(1, x_api_key=callers.key("app")))
        assert total(wire.read()) == 2
        guard.keys = type(keys)([each for each in keys.specs if each.name != "app"])
        wire.send(infer(1, x_api_key=callers.key("app")))
        assert told(wire.read()) == NO_KEY
    guard.keys = keys


def test_no_line_and_no_answer_holds_a_key(
    running: Running, callers: Callers, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    answers = []
    for name in ("app", "late", "nobody", "eyes"):
        key = callers.key(name)
        answers += [
            running.ask(infer(1, x_api_key=key)),
            running.ask(infer(1, authorization=f"Bearer {key}")),
        ]
        answers.append(running.ask(request(body=b"{}", x_api_key=key)))
        answers.append(running.ask(infer(1, "/v2/models/crash/infer", x_api_key=key)))
    written = caplog.text + repr(answers) + repr([vars(each) for each in caplog.records])
    assert "pk_" not in written
    assert len(caplog.records) >= len(answers)


def test_where_no_key_is_asked_for_one_changes_nothing(direct: bool, callers: Callers) -> None:
    running = Running(LIMITS, direct=direct)
    try:
        assert total(running.ask(infer(1, x_api_key=callers.key("eyes"), x_tenant="gold"))) == 2
        assert running.serving.calls[0].tenant == "gold"
    finally:
        running.stop()
