"""`generate` and `generate_stream`: flat JSON in, one object or events out, as an ASGI application."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest
from fastapi import FastAPI

from router.http.app import create_app
from router.payloads.bulk.pool import Bulk
from router.protocol.account import Account
from serving.ports import Reply
from serving.values.specs import Limits
from serving.values.vocabulary import BAD_INPUT, MEMORY_FULL, QUEUE_FULL, TOO_LARGE, WORKER_LOST
from tests.router.decoupled import StreamingCore
from tests.router.rpc_edge import Core, completed

SIMPLE = {"INPUT0": list(range(16)), "INPUT1": [1] * 16}


class Exchange:
    """A request, and what comes for it; `send` waits while the client does not `take`."""

    def __init__(self, app: FastAPI, path: str, body: bytes, **fields: str) -> None:
        self.status = 0
        self.fields: dict[str, str] = {}
        self.body = b""
        self.ended = False
        self.taking = asyncio.Event()
        self.taking.set()
        self._came: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._changed = asyncio.Event()
        self._came.put_nowait({"type": "http.request", "body": body, "more_body": False})
        headers = [(name.replace("_", "-").encode(), value.encode()) for name, value in fields.items()]
        scope = {
            "type": "http", "asgi": {"version": "3.0"}, "http_version": "1.1", "method": "POST",
            "path": path, "raw_path": path.encode(), "query_string": b"", "headers": headers,
            "client": ("127.0.0.1", 1), "server": ("test", 80), "scheme": "http", "root_path": "",
        }  # fmt: skip
        self.task = asyncio.ensure_future(app(scope, self._came.get, self._send))

    async def _send(self, message: Any) -> None:
        await self.taking.wait()
        if message["type"] == "http.response.start":
            self.status = message["status"]
            self.fields = {name.decode(): value.decode() for name, value in message["headers"]}
        else:
            self.body += message.get("body", b"")
            self.ended = not message.get("more_body", False)
        self._changed.set()

    def leave(self) -> None:
        self._came.put_nowait({"type": "http.disconnect"})

    async def events(self, count: int) -> list[Any]:
        """So many events, once they have come."""
        async with asyncio.timeout(60):
            while self.body.count(b"\n\n") < count:
                self._changed.clear()
                await self._changed.wait()
        parts = self.body.decode().split("\n\n")[:-1]
        assert all(part.startswith("data: ") for part in parts)
        return [json.loads(part.removeprefix("data: ")) for part in parts]

    async def answer(self) -> Any:
        """The whole answer's JSON."""
        async with asyncio.timeout(60):
            await self.task
        assert self.ended
        return json.loads(self.body)


class House:
    """An application over a core."""

    def __init__(self, core: Core, limits: Limits) -> None:
        self.core = core
        self.bulk = Bulk(limits)
        statistics = core.telemetry.statistics
        self.app = create_app(core, statistics, name="penstock", version="1", bulk=self.bulk)

    def ask(self, model: str, body: object, *, events: bool = False, **fields: str) -> Exchange:
        kind = "generate_stream" if events else "generate"
        text = body if isinstance(body, bytes) else json.dumps(body).encode()
        return Exchange(self.app, f"/v2/models/{model}/{kind}", text, **fields)


@contextlib.asynccontextmanager
async def house(core: Core | None = None, limits: Limits | None = None) -> AsyncIterator[House]:
    here = House(core or Core(), limits or Limits())
    yield here
    await here.bulk.close()


async def until(core: Core, count: int) -> None:
    async with asyncio.timeout(60):
        while len(core.calls) < count:
            await core.change()


async def test_a_model_with_one_answer_gives_it_as_a_flat_object() -> None:
    async with house() as here:
        asked = here.ask("simple", {**SIMPLE, "id": "mine"}, x_request_id="7")
        assert await asked.answer() == {
            "model_name": "simple",
            "model_version": "1",
            "id": "mine",
            "OUTPUT0": [number + 1 for number in range(16)],
            "OUTPUT1": [number - 1 for number in range(16)],
        }
    assert (asked.status, asked.fields["content-type"]) == (200, "application/json")
    assert (asked.fields["x-request-id"], asked.fields["x-penstock-variant"]) == ("7", "exact")


async def test_what_names_no_input_is_a_parameter_wherever_it_stands() -> None:
    async with house() as here:
        body = {"IN": "text", "execute_delay_ms": 3, "parameters": {"timeout": 5_000_000}}
        assert (await here.ask("identity", body).answer())["OUT"] == "text"
        (call,) = here.core.calls
        assert (call.parameters, call.timeout_us) == ((("execute_delay_ms", 3),), 5_000_000)
        assert (call.rows, call.inputs[0].datatype, call.inputs[0].shape) == (1, "BYTES", (1, 1))


@pytest.mark.parametrize(
    ("body", "status", "part"),
    [
        (b"{", 400, "not valid JSON"),
        ([], 400, "must be a JSON object"),
        ({"INPUT0": [1] * 16}, 400, "INPUT1"),
        ({**SIMPLE, "temperature": 1}, 400, "unknown parameter 'temperature'"),
        ({**SIMPLE, "parameters": 1}, 400, "'parameters' must be an object"),
        ({**SIMPLE, "INPUT0": [[[1]]]}, 400, "has 3 dimensions"),
        ({**SIMPLE, "INPUT0": ["a"] * 16}, 400, "INPUT0"),
        ({**SIMPLE, "INPUT0": [1] * 100_000}, 413, "generate takes"),
    ],
)
@pytest.mark.parametrize("events", [False, True])
async def test_what_is_wrong_is_said_before_anything_is_computed(
    body: object, status: int, part: str, events: bool
) -> None:
    async with house() as here:
        asked = here.ask("simple", body, events=events)
        answer = await asked.answer()
        assert (asked.status, here.core.calls) == (status, [])
        assert part in answer["error"]
        assert asked.fields["content-type"] == "application/json"
        outcome = TOO_LARGE if status == 413 else BAD_INPUT
        assert here.core.turned_away == [("simple", outcome, "default")]


async def test_events_come_while_the_model_answers() -> None:
    core = StreamingCore()
    async with house(core) as here:
        asked = here.ask("repeat", {"IN": [4, 5], "id": "a"}, events=True)
        await until(core, 1)
        assert asked.status == 0
        for count, value in enumerate((4, 5), start=1):
            core.say(1, value)
            assert (await asked.events(count))[-1] == {
                "model_name": "repeat",
                "model_version": "1",
                "id": "a",
                "OUT": value,
            }
        core.end(1)
        async with asyncio.timeout(60):
            await asked.task
    assert (asked.status, asked.ended) == (200, True)
    assert asked.fields["content-type"] == "text/event-stream; charset=utf-8"


async def test_an_error_after_the_first_event_is_an_event() -> None:
    core = StreamingCore()
    async with house(core) as here:
        asked = here.ask("repeat", {"IN": [4]}, events=True)
        await until(core, 1)
        core.say(1, 4)
        core.end(1, Reply(WORKER_LOST, "the worker was killed"))
        found = await asked.events(2)
        await asked.task
    assert found[1] == {"error": "the worker was killed", "reason": "worker_lost"}
    assert (asked.status, asked.ended) == (200, True)


@pytest.mark.parametrize("events", [False, True])
async def test_an_error_before_any_answer_has_its_status(events: bool) -> None:
    core = StreamingCore()
    async with house(core) as here:
        asked = here.ask("repeat", {"IN": [4]}, events=events)
        await until(core, 1)
        core.end(1, Reply(WORKER_LOST, "the worker was killed"))
        answer = await asked.answer()
    assert (asked.status, answer["reason"]) == (503, "worker_lost")
    assert asked.fields["x-penstock-reason"] == "worker_lost"


async def test_a_model_with_one_answer_gives_one_event() -> None:
    async with house() as here:
        asked = here.ask("simple", SIMPLE, events=True)
        (event,) = await asked.events(1)
        await asked.task
    assert event["OUTPUT1"][0] == -1
    assert asked.ended


@pytest.mark.parametrize(("values", "part"), [((), "gave none"), ((1, 2), "gives more")])
async def test_generate_wants_exactly_one_answer(values: tuple[int, ...], part: str) -> None:
    core = StreamingCore()
    async with house(core) as here:
        asked = here.ask("repeat", {"IN": [4]})
        await until(core, 1)
        core.say(1, *values)
        if not values:
            core.end(1)
        answer = await asked.answer()
    assert asked.status == 400
    assert "generate expects model to produce exactly 1 response" in answer["error"]
    assert part in answer["error"]
    assert core.cancelled == ([1] if values else [])


async def test_generate_of_a_decoupled_model_with_one_answer_gives_it() -> None:
    core = StreamingCore()
    async with house(core) as here:
        asked = here.ask("repeat", {"IN": [4]})
        await until(core, 1)
        core.say(1, 4)
        core.end(1)
        assert (await asked.answer())["OUT"] == 4


async def test_a_stream_without_answers_has_no_events() -> None:
    core = StreamingCore()
    async with house(core) as here:
        asked = here.ask("repeat", {"IN": []}, events=True)
        await until(core, 1)
        core.end(1)
        await asked.task
    assert (asked.status, asked.body, asked.ended) == (200, b"", True)


@pytest.mark.parametrize("after", [0, 1])
async def test_a_client_that_leaves_cancels_the_call(after: int) -> None:
    core = StreamingCore()
    async with house(core) as here:
        asked = here.ask("repeat", {"IN": [4]}, events=True)
        await until(core, 1)
        if after:
            core.say(1, 4)
            await asked.events(1)
        asked.leave()
        async with asyncio.timeout(60):
            await asked.task
    assert core.cancelled == [1]


async def test_answers_that_are_not_taken_are_bounded_and_counted() -> None:
    core, limits = StreamingCore(), Limits(infer_stream_bytes=100_000)
    async with house(core, limits) as here:
        account = Account(limits)
        here.bulk.use(account)
        asked = here.ask("repeat", {"IN": [4]}, events=True)
        await until(core, 1)
        core.say(1, 4)
        await asked.events(1)
        asked.taking.clear()
        core.say(1, *range(1300))
        assert account.by_kind()["answers"] > 65_536
        core.say(1, *range(1300))
        assert core.cancelled == [1]
        asked.taking.set()
        await asked.task
        assert account.held_bytes == 0
    assert json.loads(asked.body.split(b"data: ")[-1])["reason"] == MEMORY_FULL.reason.value


async def test_a_client_that_takes_nothing_for_too_long_loses_its_answers() -> None:
    core, limits = StreamingCore(), Limits(slow_client_s=0.1)
    async with house(core, limits) as here:
        asked = here.ask("repeat", {"IN": [4]}, events=True)
        await until(core, 1)
        asked.taking.clear()
        core.say(1, 4)
        await core.change()
        assert core.cancelled == [1]
        asked.taking.set()
        await asked.task


async def test_answers_over_the_count_are_refused() -> None:
    core = StreamingCore()
    async with house(core, Limits(infer_stream_count=1)) as here:
        first = here.ask("repeat", {"IN": [4]}, events=True)
        await until(core, 1)
        second = here.ask("repeat", {"IN": [4]}, events=True)
        answer = await second.answer()
        assert (second.status, answer["reason"]) == (503, "queue_full")
        assert "limits.infer_stream_count" in answer["error"]
        assert core.turned_away == [("repeat", QUEUE_FULL, "default")]
        core.end(1)
        await first.task
        third = here.ask("repeat", {"IN": [4]})
        await until(core, 2)
        core.say(2, 4)
        core.end(2)
        assert (await third.answer())["OUT"] == 4


async def test_infer_of_a_decoupled_model_is_refused_in_tritons_words() -> None:
    core = StreamingCore()
    async with house(core) as here:
        body = {"inputs": [{"name": "IN", "datatype": "INT32", "shape": [1, 1], "data": [1]}]}
        asked = Exchange(here.app, "/v2/models/repeat/infer", json.dumps(body).encode())
        answer = await asked.answer()
    assert asked.status == 400
    assert "HTTP end point doesn't support models with decoupled transaction policy" in answer["error"]


async def test_an_answer_of_bytes_that_are_no_text_is_refused_as_it_is_asked_for() -> None:
    core = Core(completed)
    async with house(core) as here:
        asked = here.ask("identity", {"IN": [1, 2]})
        assert (await asked.answer())["OUT"] == [1, 2]
        assert core.calls[0].inputs[0].datatype == "INT64"
