"""What a client is told of its tenant's rate, over REST and over gRPC."""

import grpc
import pytest

from router.grpc.rpc.calls import ending
from router.protocol.explanation import failure_fields
from serving.policy.limits.rate_limits import TenantRate
from serving.ports import Call, Reply
from serving.runtime.calls.rating import limit_lines, sentence_of
from serving.values.objectives import RateSpec
from serving.values.vocabulary import RATE_LIMITED
from tests.router.fakes import SIMPLE
from tests.router.http.fastpath.wire import Running, infer


def refusal() -> Reply:
    rate = TenantRate(RateSpec(requests_per_s=0.25), 0)
    assert rate.enter(1, 0) is None
    found = rate.enter(1, 1_000_000)
    assert found is not None
    reply = Reply(RATE_LIMITED, sentence_of(Call(SIMPLE, (), 1), rate, found))
    reply.retry_us = found.retry_us
    reply.limits = limit_lines(rate, 1_000_000, found)
    return reply


def test_a_refusal_over_grpc_has_the_fields_and_when_to_come_back() -> None:
    code, sentence, fields = ending(refusal())
    assert code is grpc.StatusCode.RESOURCE_EXHAUSTED
    assert "0.25 requests a second" in sentence
    assert fields["grpc-retry-pushback-ms"] == "3000"
    assert fields["ratelimit-policy"] == '"requests";q=1;w=4'
    assert fields["ratelimit"] == '"requests";r=0;t=3'


@pytest.mark.parametrize("direct", [True, False], ids=["fast path", "ASGI"])
def test_over_rest_a_refusal_is_429_and_every_answer_says_what_is_left(direct: bool) -> None:
    running = Running(direct=direct)
    try:
        serve = running.serving.submit

        def submit(call, deliver):  # type: ignore[no-untyped-def]  # as the fake's
            def told(reply: Reply) -> None:
                reply.limits = refusal().limits
                deliver(reply)

            return serve(call, told)

        running.serving.submit = submit  # type: ignore[method-assign]  # what stands before it in a gateway
        answer = running.ask(infer(1))
        assert answer.status == 200
        assert answer.fields["ratelimit"] == '"requests";r=0;t=3'

        def refuse(call, deliver):  # type: ignore[no-untyped-def]  # likewise
            deliver(refusal())
            return 0

        running.serving.submit = refuse  # type: ignore[method-assign]  # likewise
        answer = running.ask(infer(1))
        assert answer.status == 429
        assert answer.fields["x-penstock-reason"] == "rate_limited"
        assert (answer.fields["retry-after"], answer.fields["x-retry-after-ms"]) == ("3", "3000")
        assert answer.fields["ratelimit-policy"] == '"requests";q=1;w=4'
    finally:
        running.stop()


def test_no_answer_of_a_tenant_without_limits_has_the_fields() -> None:
    assert "ratelimit" not in failure_fields(Reply(RATE_LIMITED))
    running = Running()
    try:
        assert "ratelimit" not in running.ask(infer(1)).fields
    finally:
        running.stop()
