"""Promises of cells at their meetings, over a real Redis: one map for all, and it holds on without Redis."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Mapping, Set

import pytest

from loadtests.stand.redis_server import RedisServer
from serving.cache.spec import RedisSpec
from serving.policy.cells import leading
from serving.policy.cells.leading import CellReport
from serving.runtime.cells import cells as cells_module
from serving.runtime.cells import meeting
from serving.runtime.cells.cells import Cells
from serving.runtime.cells.meeting import Meeting
from serving.runtime.cells.serving import Route
from serving.runtime.cells.spec import CellsSpec

pytestmark = [pytest.mark.live, pytest.mark.slow]

MODELS = ("m", "n", "o", "p")
WAIT_S = 20


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Meetings follow each other faster."""
    monkeypatch.setattr(meeting, "GONE_S", 0.5)
    monkeypatch.setattr(cells_module, "BEAT_S", 0.02)
    monkeypatch.setattr(leading, "SETTLE_US", 200_000)


class Routes:
    """What a `CellsServing` is told."""

    def __init__(self) -> None:
        self.passed: dict[tuple[str, str], int] = {("b", "completed"): 7}
        self.routes: Mapping[str, Route] = {}
        self.away: Set[str] = frozenset()

    def route(self, routes: Mapping[str, Route], away: Set[str], homed: Set[str] = frozenset()) -> None:
        self.routes, self.away = routes, away

    def look_again(self) -> None:
        pass


class Member:
    """A cell whose gateway loads at once what it is to serve."""

    def __init__(self, server: RedisServer, name: str, slices: float = 2) -> None:
        self.name = name
        self.slices = slices
        self.served: Set[str] = frozenset()
        self.unfit: Set[str] = frozenset()
        self.sent: Mapping[str, float] = {}
        self.routes = Routes()
        spec = CellsSpec(name, RedisSpec(server.url), token="0123456789abcdef")  # noqa: S106
        self.cells = Cells(spec, self.look)
        self.task: asyncio.Task[None] | None = None

    def look(self) -> CellReport:
        work = dict.fromkeys(self.served, 0.1)
        ready, unfit = frozenset(self.served), frozenset(self.unfit)
        return CellReport(self.name, self.slices, frozenset(MODELS), work, ready, unfit, self.sent)

    def follow(self, models: Set[str]) -> None:
        self.served = frozenset(models)

    async def start(self) -> "Member":
        own = await self.cells.join()
        self.served = frozenset(MODELS if own is None else own)
        self.cells.follow, self.cells.serving = self.follow, self.routes
        self.task = asyncio.create_task(self.cells.run())
        return self

    async def stop(self) -> None:
        if self.task is not None:
            self.task.cancel()
            await asyncio.wait([self.task])
        await self.cells.close()

    async def die(self) -> None:
        """End without a word."""
        self.cells.stays = True
        await self.stop()


@pytest.fixture
async def join(server: RedisServer) -> AsyncIterator[Callable[..., Member]]:
    made: list[Member] = []

    def make(name: str, slices: float = 2) -> Member:
        made.append(Member(server, name, slices))
        return made[-1]

    yield make
    for each in made:
        await each.stop()


async def until(holds: Callable[[], object]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


async def started(*members: Member) -> None:
    await asyncio.gather(*(each.start() for each in members))
    await until(lambda: all(len(each.cells.reports) == len(members) for each in members))


def served(*members: Member) -> list[str]:
    return sorted(model for each in members for model in each.served)


Join = Callable[..., Member]


async def test_cells_that_start_together_share_the_models(join: Join) -> None:
    a, b = join("a"), join("b")
    await started(a, b)
    assert served(a, b) == sorted(MODELS)
    assert a.served
    assert b.served
    assert a.cells.homes == b.cells.homes
    assert a.cells.decided_by in ("a", "b")


async def test_a_cell_alone_serves_everything(join: Join) -> None:
    a = await join("a").start()
    assert served(a) == sorted(MODELS)


async def test_the_models_of_a_cell_that_dies_are_taken_by_others(join: Join) -> None:
    a, b = join("a"), join("b")
    await started(a, b)
    await b.die()
    await until(lambda: served(a) == sorted(MODELS))
    await until(lambda: [each.name for each in a.cells.reports] == ["a"])


async def test_a_cell_that_leaves_keeps_its_models_until_others_have_them(join: Join) -> None:
    a, b = join("a"), join("b")
    await started(a, b)
    before = b.served
    await until(b.cells.is_needed)
    b.cells.leaving = True
    await until(lambda: served(a) == sorted(MODELS))
    await until(lambda: not b.cells.is_needed())
    assert before <= a.served
    await b.stop()
    await until(lambda: [each.name for each in a.cells.reports] == ["a"])


async def test_a_cell_that_comes_back_soon_has_what_it_had(join: Join) -> None:
    a, b = join("a"), join("b")
    await started(a, b)
    before = b.served
    await b.die()
    again = join("b")
    own = await again.cells.join()
    assert own == before
    assert not again.cells._said  # it said nothing: the old one may still be there
    assert served(a, b) == sorted(MODELS)


async def test_a_model_that_a_cell_cannot_load_goes_to_another(join: Join) -> None:
    a, b = join("a"), join("b")
    await started(a, b)
    (model, *_) = sorted(b.served)
    b.unfit = frozenset({model})
    await until(lambda: model in a.served)
    await until(lambda: model not in b.served or "b" not in a.cells.homes[model])


async def test_the_map_holds_on_while_redis_is_not_there(
    join: Join, server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    a, b = join("a"), join("b")
    await started(a, b)
    homes = a.cells.homes
    server.kill()
    await until(lambda: a.cells.fault and b.cells.fault)
    assert "cannot meet the other cells: Redis at unix://" in a.cells.fault
    await asyncio.sleep(0.6)
    assert a.cells.homes == homes
    assert served(a, b) == sorted(MODELS)
    server.start()  # it has forgotten everything
    await until(lambda: not (a.cells.fault or b.cells.fault))
    await asyncio.sleep(0.4)
    assert {model: {*parts} for model, parts in a.cells.homes.items()} == {
        model: {*parts} for model, parts in homes.items()
    }
    assert served(a, b) == sorted(MODELS)
    assert caplog.text.count("cell a meets the other cells") == 2


async def test_without_redis_a_cell_serves_all_models(
    join: Join, server: RedisServer, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(cells_module, "JOIN_S", 0.2)
    server.kill()
    try:
        a = await join("a").start()
        assert served(a) == sorted(MODELS)
        assert "no map has it after 0.2 s; it serves all models" in caplog.text
    finally:
        server.start()


async def test_two_gateways_of_one_name_are_said(join: Join, caplog: pytest.LogCaptureFixture) -> None:
    a, twin = join("a"), join("a")
    await a.start()
    await twin.start()
    await until(lambda: "two gateways have the name a in `cells:`" in caplog.text)


async def test_only_the_cell_that_leads_publishes_a_map(server: RedisServer) -> None:
    spec = RedisSpec(server.url)
    a, b = Meeting(spec, "a", "a/1"), Meeting(spec, "b", "b/1")
    record = b'{"at":["","",""],"slices":1,"file":[],"work":{},"ready":[],"unfit":[]}'
    assert (await a.meet(record)).leads
    assert not (await b.meet(record)).leads
    assert not await b.publish(b'{"version":9}')
    assert await a.publish(b'{"version":1}')
    assert (await b.meet(record)).map == {"version": 1}
    await a.leave(record)
    seen = await b.meet(record)
    assert seen.leads
    assert [*seen.cells] == ["b"]
    await a.close()
    await b.close()


async def test_the_next_gateway_of_a_cell_is_not_taken_back(server: RedisServer) -> None:
    spec = RedisSpec(server.url)
    old, new = Meeting(spec, "a", "a/1"), Meeting(spec, "a", "a/2")
    await old.meet(b'{"old":1}')
    await new.meet(b'{"new":1}')
    await old.leave(b'{"old":1}')
    assert [*(await new.meet(b'{"new":1}')).cells] == ["a"]
    await old.close()
    await new.close()


async def test_a_cell_of_another_release_is_not_heard(
    join: Join, server: RedisServer, caplog: pytest.LogCaptureFixture
) -> None:
    a = await join("a").start()
    other = Meeting(RedisSpec(server.url), "z", "z/1")
    await other.meet(b'{"who":"z/1","version":1,"at":["","",""],"slices":"many"}')
    await until(lambda: "cell z says what this release does not understand" in caplog.text)
    assert [each.name for each in a.cells.reports] == ["a"]
    assert served(a) == sorted(MODELS)
    await other.close()


async def test_what_no_gateway_wrote_ends_no_meetings(join: Join, server: RedisServer) -> None:
    a = await join("a").start()
    server.client().set("penstock:cells:map", b"{no map")
    await until(lambda: a.cells.fault)
    assert served(a) == sorted(MODELS)
    server.client().set("penstock:cells:map", b'{"map": "other"}')
    await until(lambda: "holds what no cell has written (KeyError('version'))" in a.cells.fault)
    server.client().delete("penstock:cells:map")
    await until(lambda: not a.cells.fault)


async def test_all_hear_what_tenants_send_to_each(join: Join) -> None:
    a, b = join("a"), join("b")
    heard: dict[str, dict[str, float]] = {}
    a.sent, b.sent = {"shop": 30.0}, {"shop": 10.0}
    a.cells.met = lambda reports: heard.update({each.name: dict(each.sent) for each in reports})
    await started(a, b)
    await until(lambda: heard == {"a": {"shop": 30.0}, "b": {"shop": 10.0}})


async def test_routes_name_what_others_answer(join: Join) -> None:
    a, b = join("a"), join("b")
    await started(a, b)
    await until(lambda: a.routes.away == b.served)
    assert [each.passed for each in a.cells.cells()] == [0, 7]
    assert a.cells.rest_of(min(b.served)) == ""
