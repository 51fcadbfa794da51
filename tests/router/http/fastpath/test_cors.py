"""Which web pages may call REST from a browser: the origins that the operator names, and no others."""

import asyncio
from collections.abc import Iterator

import pytest

from router.security.auth.guard import KeyGuard
from router.security.auth.keys import KeyFile
from tests.router.grpc.fastrpc.rest_edge import Asked, edges, over_http2
from tests.router.http.fastpath.wire import SIMPLE_INFER, Running, body_of, get, infer, request, total

OURS, OTHERS = "https://app.example.com", "https://evil.example.com"
ALLOW = "access-control-allow-origin"


def asks(origin: str) -> bytes:
    """A browser's question before a call."""
    return request(
        method="OPTIONS",
        content_length=None,
        origin=origin,
        access_control_request_method="POST",
        access_control_request_headers="content-type,x-api-key",
    )


@pytest.fixture
def running() -> Iterator[Running]:
    server = Running(cors=(OURS,))
    yield server
    server.stop()


def test_a_page_of_an_allowed_origin_gets_its_answer_with_leave_to_read_it(running: Running) -> None:
    answer = running.ask(infer(41, origin=OURS, connection="close"))
    assert total(answer) == 42
    assert answer.fields[ALLOW] == OURS
    assert answer.fields["vary"] == "Origin"
    assert running.ask(get("/v2").replace(b"\r\n\r\n", b"\r\norigin: %b\r\n\r\n" % OURS.encode())).fields[
        ALLOW
    ]


def test_a_refusal_can_be_read_by_the_page_too(running: Running) -> None:
    answer = running.ask(request(body=b"{}", origin=OURS, connection="close"))
    assert (answer.status, answer.fields[ALLOW]) == (400, OURS)
    assert answer.error


def test_a_page_of_another_origin_gets_no_leave(running: Running) -> None:
    assert ALLOW not in running.ask(infer(41, origin=OTHERS, connection="close")).fields


def test_a_client_that_is_no_page_takes_the_fast_path_as_ever(running: Running) -> None:
    answer = running.ask(infer(41, connection="close"))
    assert total(answer) == 42
    assert ALLOW not in answer.fields


def test_the_question_before_a_call_is_answered(running: Running) -> None:
    answer = running.ask(asks(OURS))
    assert answer.status == 200
    assert answer.fields[ALLOW] == OURS
    assert "POST" in answer.fields["access-control-allow-methods"]
    assert "x-api-key" in answer.fields["access-control-allow-headers"]
    refused = running.ask(asks(OTHERS))
    assert refused.status == 400
    assert ALLOW not in refused.fields


def test_the_question_needs_no_key_but_the_call_does() -> None:
    running = Running(cors=(OURS,), guard=KeyGuard(KeyFile(())))
    try:
        assert running.ask(asks(OURS)).status == 200
        refused = running.ask(infer(41, origin=OURS, connection="close"))
        assert (refused.status, refused.fields[ALLOW]) == (401, OURS)
    finally:
        running.stop()


def test_any_origin_may_be_allowed() -> None:
    running = Running(cors=("*",))
    try:
        assert running.ask(infer(41, origin=OTHERS, connection="close")).fields[ALLOW] == "*"
    finally:
        running.stop()


def test_it_is_the_same_over_http2() -> None:
    async def ask() -> None:
        async with edges(cors=(OURS,)) as found:
            for origin, leave in ((OURS, OURS), (OTHERS, None)):
                asked = Asked("POST", SIMPLE_INFER, body_of(41), (("origin", origin),))
                answer = await over_http2(found.ports[0], asked)
                assert total(answer) == 42
                assert answer.fields.get(ALLOW) == leave

    asyncio.run(ask())
