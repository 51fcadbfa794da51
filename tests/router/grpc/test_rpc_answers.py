"""What a call is told beside its outputs or its error, and whose call it is: metadata of gRPC."""

import asyncio
import json
from collections.abc import AsyncIterator
from typing import Any  # grpc's clients and messages carry no types

import grpc
import pytest
import tritonclient.grpc.aio as triton_aio
from tritonclient.grpc import service_pb2

from router.grpc.rpc import SERVICE
from serving.ports import Call, Reply
from serving.values.vocabulary import (
    ALL_OUTCOMES,
    BAD_INPUT,
    CLIENT_GONE,
    COMPLETED,
    DEADLINE_QUEUED,
    DRAINING,
    OVERLOAD,
    UNKNOWN_MODEL,
    Downgrade,
    Outcome,
)
from tests.router.rpc_edge import (
    INFER,
    Core,
    completed,
    error_of,
    fields_of,
    raw_infer,
    refused,
    serve,
    simple_inputs,
    simple_request,
)

pytestmark = pytest.mark.usefixtures("both_servers")


async def test_an_answer_says_where_its_time_went_and_who_gave_it() -> None:
    def answer(call: Call) -> Reply:
        reply = completed(call)
        reply.queue_us, reply.batch_us, reply.compute_us = 1_204, 50, 12_000_000
        return reply

    async with serve(Core(answer)) as edge, grpc.aio.insecure_channel(edge.address) as channel:
        call = raw_infer(channel)(simple_request().SerializeToString())
        await call
        fields = dict(await call.trailing_metadata())
    assert fields == {
        "server-timing": "request;dur=0.000, queue;dur=1.204, batch;dur=0.050, input;dur=0.000, "
        "infer;dur=12000.000, output;dur=0.000, answer;dur=0.000",
        "x-penstock-deadline-ms": "100",
        "x-penstock-variant": "exact",
        "x-penstock-batch-rows": "1",
    }


async def test_the_time_of_a_call_begins_before_its_message_is_there() -> None:
    core, asked = Core(), asyncio.Event()

    def now_us() -> int:
        asked.set()
        return core.clock_us

    async def late() -> AsyncIterator[bytes]:
        async with asyncio.timeout(60):
            await asked.wait()
        core.clock_us += 300
        yield simple_request().SerializeToString()

    core.now_us = now_us  # type: ignore[method-assign]
    async with serve(core) as edge, grpc.aio.insecure_channel(edge.address) as channel:
        call = channel.stream_unary(INFER, None, None)(late())
        await call
        fields = dict(await call.trailing_metadata())
    assert fields["server-timing"].startswith("request;dur=0.300, queue;")


@pytest.mark.parametrize(
    "outcome", [each for each in ALL_OUTCOMES if each not in (COMPLETED, CLIENT_GONE)], ids=lambda o: o.reason
)
async def test_every_other_outcome_says_its_reason(outcome: Outcome) -> None:
    async with serve(Core(lambda call: Reply(outcome))) as edge:
        assert await fields_of(edge.infer(simple_request())) == {
            "x-penstock-reason": outcome.reason,
            "x-penstock-deadline-ms": "100",
        }


async def test_a_call_that_was_shed_says_how_long_it_waited() -> None:
    async with serve(Core(lambda call: refused(DEADLINE_QUEUED, queue_us=20_001))) as edge:
        fields = await fields_of(edge.infer(simple_request()))
    assert fields["server-timing"] == "queue;dur=20.001"


@pytest.mark.parametrize(("retry_us", "told"), [(1, "1"), (1_001, "2"), (90_000_000, "90000")])
async def test_who_is_turned_away_is_told_when_to_come_back(retry_us: int, told: str) -> None:
    async with serve(Core(lambda call: refused(OVERLOAD, retry_us))) as edge:
        fields = await fields_of(edge.infer(simple_request()))
    assert fields["retry-pushback-ms"] == fields["grpc-retry-pushback-ms"] == told


@pytest.mark.parametrize(("outcome", "retry_us"), [(OVERLOAD, 0), (DRAINING, 5_000)])
async def test_where_nobody_can_say_when_nothing_is_said(outcome: Outcome, retry_us: int) -> None:
    async with serve(Core(lambda call: refused(outcome, retry_us))) as edge:
        told = set(await fields_of(edge.infer(simple_request())))
        assert told == {"x-penstock-reason", "x-penstock-deadline-ms"}


async def test_a_retry_policy_of_grpc_comes_back_when_it_was_told_to() -> None:
    """By itself it would wait a minute, and the call's deadline would pass."""
    policy = {
        "maxAttempts": 2,
        "initialBackoff": "60s",
        "maxBackoff": "60s",
        "backoffMultiplier": 1,
        "retryableStatusCodes": ["RESOURCE_EXHAUSTED"],
    }
    config = json.dumps({"methodConfig": [{"name": [{}], "retryPolicy": policy}]})
    replies = [refused(OVERLOAD, 10_000)]
    core = Core(lambda call: replies.pop() if replies else completed(call))
    async with (
        serve(core) as edge,
        grpc.aio.insecure_channel(edge.address, [("grpc.service_config", config)]) as channel,
    ):
        response = await raw_infer(channel)(simple_request().SerializeToString(), timeout=20)
    assert response.model_name == "simple"
    assert len(core.calls) == 2


@pytest.mark.parametrize(
    ("stated", "tenant"),
    [
        ((), "default"),
        ((("x-tenant", "gold"),), "gold"),
        ((("x-tenant", "silver"), ("x-tenant", "batch.jobs")), "batch.jobs"),
        ((("x-tenant", "silver"),), "default"),
        ((("x-tenant", ""),), "default"),
        ((("x-tenant", "g" * 5_000),), "default"),
        ((("x-tenant-bin", b"gold"),), "default"),
    ],
)
async def test_a_call_belongs_to_the_tenant_that_it_names_where_that_is_listed(
    stated: tuple[tuple[str, Any], ...], tenant: str
) -> None:
    bad = simple_request(model_name="absent")
    async with serve() as edge:
        await edge.infer(simple_request(), metadata=stated)
        await error_of(edge.infer(bad, metadata=stated))
        assert edge.core.calls[0].tenant == tenant
        assert edge.core.turned_away == [("absent", UNKNOWN_MODEL, tenant)]


@pytest.mark.parametrize(
    ("stated", "max_age_us", "store"),
    [
        ((), None, True),
        ((("cache-control", "no-cache"),), 0, True),
        ((("cache-control", "no-store"), ("cache-control", "max-age=30")), 30_000_000, False),
    ],
)
async def test_a_call_says_which_kept_answers_it_takes_and_whether_its_own_is_kept(
    stated: tuple[tuple[str, str], ...], max_age_us: int | None, store: bool
) -> None:
    async with serve() as edge:
        await edge.infer(simple_request(), metadata=stated)
        (call,) = edge.core.calls
    assert (call.max_age_us, call.store) == (max_age_us, store)


async def test_a_max_age_that_is_none_is_invalid() -> None:
    async with serve() as edge:
        asked = edge.infer(simple_request(), metadata=(("cache-control", "max-age=soon"),))
        code, sentence = await error_of(asked)
        assert edge.core.turned_away == [("simple", BAD_INPUT, "default")]
    assert code is grpc.StatusCode.INVALID_ARGUMENT
    assert "max-age of cache-control must be a whole number of seconds" in sentence


async def test_an_answer_says_that_it_was_kept_and_how_old_it_is() -> None:
    def answer(call: Call) -> Reply:
        reply = completed(call)
        reply.cache, reply.age_us = "hit", 12_900_000
        return reply

    async with serve(Core(answer)) as edge, grpc.aio.insecure_channel(edge.address) as channel:
        call = raw_infer(channel)(simple_request().SerializeToString())
        await call
        fields = dict(await call.trailing_metadata())
    assert (fields["x-cache"], fields["age"]) == ("hit", "12")


@pytest.mark.parametrize(
    ("metadata", "parameters", "promised"),
    [
        ((), {}, ("", 0.0)),
        ((("x-tier", "gold"),), {}, ("gold", 0.9)),
        ((), {"tier": "gold", "accuracy_min": 0.95}, ("gold", 0.95)),
        ((("x-tenant", "batch.jobs"),), {}, ("cheap", 0.0)),
        ((("x-tenant", "batch.jobs"), ("x-accuracy-min", "0.5")), {"accuracy_min": "0.7"}, ("cheap", 0.7)),
    ],
)
async def test_a_call_is_promised_what_it_asks_for_else_what_its_tenant_has(
    metadata: tuple[tuple[str, str], ...], parameters: dict[str, Any], promised: tuple[str, float]
) -> None:
    request = simple_request()
    for name, value in parameters.items():
        kind = "double_param" if isinstance(value, float) else "string_param"
        setattr(request.parameters[name], kind, value)
    async with serve() as edge:
        await edge.infer(request, metadata=metadata)
        (call,) = edge.core.calls
    assert (call.objective.tier, call.objective.accuracy_min) == promised


@pytest.mark.parametrize(
    ("metadata", "sentence"),
    [
        (("x-tier", "best"), "model 'simple' has no tier 'best'; its tiers are 'gold', 'cheap'"),
        (("x-accuracy-min", "1.5"), "x-accuracy-min must be a number from 0 to 1 (0.95 for 95 %), got '1.5'"),
    ],
)
async def test_what_cannot_be_promised_is_invalid_and_says_what_can(
    metadata: tuple[str, str], sentence: str
) -> None:
    async with serve() as edge:
        told = await error_of(edge.infer(simple_request(), metadata=(metadata,)))
        assert edge.core.turned_away == [("simple", BAD_INPUT, "default")]
    assert told == (grpc.StatusCode.INVALID_ARGUMENT, sentence)


async def test_an_answer_says_how_good_it_is() -> None:
    def answer(call: Call) -> Reply:
        reply = completed(call)
        reply.accuracy, reply.downgrade = 0.99837, Downgrade.DEADLINE
        reply.confidence, reply.votes, reply.query = 0.5, "1/2", "q-1"
        return reply

    async with serve(Core(answer)) as edge, grpc.aio.insecure_channel(edge.address) as channel:
        call = raw_infer(channel)(simple_request().SerializeToString())
        await call
        fields = dict(await call.trailing_metadata())
    assert {name: fields[name] for name in fields if name.startswith("x-penstock")} == {
        "x-penstock-deadline-ms": "100",
        "x-penstock-variant": "exact",
        "x-penstock-batch-rows": "1",
        "x-penstock-accuracy": "0.9984",
        "x-penstock-downgrade": "deadline",
        "x-penstock-confidence": "0.5",
        "x-penstock-votes": "1/2",
        "x-penstock-query": "q-1",
    }


async def test_the_triton_client_sends_its_tenant_as_a_header() -> None:
    async with serve() as edge, triton_aio.InferenceServerClient(edge.address) as client:
        await client.infer("simple", simple_inputs(triton_aio), headers={"x-tenant": "gold"})
        assert edge.core.calls[0].tenant == "gold"


async def test_what_is_refused_before_the_core_says_its_reason() -> None:
    async with serve() as edge, grpc.aio.insecure_channel(edge.address) as channel:
        assert (await fields_of(raw_infer(channel)(b"\xff")))["x-penstock-reason"] == "bad_input"
        metadata = channel.unary_unary(f"/{SERVICE}/ModelMetadata")
        absent = service_pb2.ModelMetadataRequest(name="absent").SerializeToString()
        assert (await fields_of(metadata(absent)))["x-penstock-reason"] == "unknown_model"
