"""The client really is open-loop, and accounts for every arrival once, whatever the server does."""

import asyncio
import contextlib
import sys
import time
from collections import Counter
from itertools import accumulate

import numpy as np
import pytest

from loadtests import openloop
from loadtests.harness import dispatch
from loadtests.harness.dispatch import Dispatcher, Load
from loadtests.harness.dispatch import Server as Address
from loadtests.harness.gateway import free_ports
from loadtests.harness.pace import FineAlarm
from loadtests.harness.record import CLOSED, NO_ANSWER, NO_CONNECTION, NO_TIME, REFUSED, UNREADABLE, Record
from loadtests.harness.report import Promise, outcome_name, summarise
from serving.simulation.traffic.patterns import RateStep, draw
from tests.loadtests.server import PATIENCE_S, SLOW_S, request, serving, until

pytestmark = pytest.mark.live

EXPECTED = {
    "ok": "200 in time", "slow": "200 in time", "pieces": "200 in time", "last": "200 in time",
    "surplus": "200 in time", "failing": "503 flooded", "close": CLOSED, "garbage": UNREADABLE,
    "silent": NO_ANSWER,
}  # fmt: skip


def load(kind: str, rate: float, seconds: float, seed: int = 1) -> Load:
    return Load(draw([RateStep(rate, seconds)], 1.0, np.random.default_rng(seed)), [request(kind)])


def outcomes(record: Record, of_load: int) -> Counter[str]:
    rows = zip(record.loads, record.statuses, record.reasons, strict=True)
    return Counter(outcome_name(status, why, True) for owner, status, why in rows if owner == of_load)


@pytest.mark.slow
async def test_every_arrival_ends_once_as_the_server_treated_it() -> None:
    loads = [load(kind, 60, 0.6, seed) for seed, kind in enumerate(EXPECTED)]  # few: each may need two files
    silent = len(loads[[*EXPECTED].index("silent")].due_s)
    async with serving() as server:
        dispatcher = Dispatcher(loads, Address("127.0.0.1", server.port, patience_s=PATIENCE_S))
        running = asyncio.ensure_future(dispatcher.run())
        await until(lambda: dispatcher.record.left == server.asked["silent"] == silent)
        dispatcher._over.set_result(None)  # as the end of its patience, once nothing else is under way
        record, client = await running
    for number, (kind, outcome) in enumerate(EXPECTED.items()):
        count = len(loads[number].due_s)
        assert outcomes(record, number) == {outcome: count}, kind
        assert server.asked[kind] == count, kind
    assert record.left == 0
    assert min(record.done_ns) > 0
    assert client.connections_opened == server.connections
    slow = list(EXPECTED).index("slow")
    told = [done - due for owner, due, done in zip(record.loads, record.due_ns, record.done_ns, strict=True)
            if owner == slow]  # fmt: skip
    assert min(told) >= SLOW_S * 1e9 - 1e6  # uvloop's timers may fire 1 ms early


@pytest.mark.slow
async def test_a_server_that_stalls_does_not_slow_the_arrivals_and_pays_for_all_that_waited() -> None:
    arrivals = load("ok", 200, 1)
    count = len(arrivals.due_s)
    async with serving() as server:
        server.holds_from = 50
        address = Address("127.0.0.1", server.port, patience_s=PATIENCE_S)
        running = asyncio.ensure_future(Dispatcher([arrivals], address).run())
        await until(lambda: server.asked["ok"] == count)  # it is asked all the while it stalls
        ended_ns = time.monotonic_ns()
        server.open.set()
        record, client = await running
    assert outcomes(record, 0) == {"200 in time": count}
    stalled = [due for due, done in zip(record.due_ns, record.done_ns, strict=True) if done >= ended_ns]
    assert count - len(stalled) < server.holds_from
    assert client.connections_peak >= len(range(server.holds_from, count + 1))
    report = summarise(record, [Promise("a", 100)], 1, client)
    assert report.total.latency["max_ms"] * 1e6 >= ended_ns - min(stalled)
    late = [due for due in stalled if due < ended_ns - 100_000_000]
    assert len(late) > 50
    assert report.total.good <= count - len(late)


@pytest.mark.slow
async def test_arrivals_over_the_bound_of_connections_are_not_sent_and_void_the_run() -> None:
    arrivals = load("silent", 100, 0.5)
    async with serving() as server:
        address = Address("127.0.0.1", server.port, connections_max=4, patience_s=0.2)
        record, client = await Dispatcher([arrivals], address).run()
        await until(lambda: server.asked["silent"] == 4)
    count = len(arrivals.due_s)
    assert outcomes(record, 0) == {NO_CONNECTION: count - 4, NO_ANSWER: 4}
    assert server.asked == {"silent": 4}
    given_up_ns = [done for done, why in zip(record.done_ns, record.reasons, strict=True) if why == NO_ANSWER]
    assert min(given_up_ns) >= max(record.sent_ns) + 0.199e9  # uvloop's timers may fire 1 ms early
    voids = summarise(record, [Promise("a", 100)], 0.5, client).voids
    assert f"{count - 4} arrivals were never sent ({NO_CONNECTION}, of 4 connections)" in voids


async def test_what_a_client_that_is_too_late_has_not_sent_is_given_up_and_voids_the_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(dispatch, "BEHIND_S", -60.0)  # as if it were that much later than it is
    now, far = Load(np.zeros(3), [request("ok")]), Load(60 + np.arange(5) / 100, [request("slow")])
    async with serving() as server:
        record, client = await Dispatcher([now, far], Address("127.0.0.1", server.port)).run()
    assert record.left == 0
    assert outcomes(record, 1) == {NO_TIME: 5}
    assert record.sent_ns[3:] == [0] * 5
    assert server.asked["slow"] == 0
    first = outcomes(record, 0)  # a stall lets them have the same fate
    assert first.total() == 3
    assert first.keys() <= {"200 in time", NO_ANSWER, NO_TIME}
    voids = summarise(record, [Promise("now", 100), Promise("far", 100)], 60.05, client).voids
    bound = client.connections_max
    assert f"{5 + first[NO_TIME]} arrivals were never sent ({NO_TIME}, of {bound} connections)" in voids


async def test_a_port_where_nobody_listens_is_told_at_once_or_refuses_each_arrival() -> None:
    arrivals = load("ok", 500, 0.05)
    with pytest.raises(OSError, match="takes no connections"):
        await Dispatcher([arrivals], Address("127.0.0.1", free_ports(1)[0])).run()
    address = Address("127.0.0.1", free_ports(1)[0], connections_min=0)
    record, _ = await Dispatcher([arrivals], address).run()
    assert outcomes(record, 0) == {REFUSED: len(arrivals.due_s)}


async def test_connections_are_used_again() -> None:
    arrivals = Load(np.arange(40) / 400, [request("ok")])
    async with serving() as server:
        address = Address("127.0.0.1", server.port, 2, patience_s=PATIENCE_S)
        record, client = await Dispatcher([arrivals], address).run()
    assert server.asked["ok"] == 40
    came = sorted([(at_ns, 1) for at_ns in record.sent_ns] + [(at_ns, -1) for at_ns in record.done_ns])
    most = max(accumulate(step for _, step in came))
    assert client.connections_opened <= max(2, most)  # a new one only where every other was in use


def test_an_arrival_cannot_end_twice() -> None:
    record = Record([1, 2], [0, 0])
    record.settle(1, 200)
    with pytest.raises(RuntimeError, match=r"arrival 1 ended twice: 200 , then 503 flooded"):
        record.settle(1, 503, "flooded")
    assert record.left == 1


async def test_the_alarm_rings_once_for_the_last_instant_set_and_not_before_it() -> None:
    rung: asyncio.Queue[int] = asyncio.Queue()
    alarm = FineAlarm(lambda: rung.put_nowait(time.monotonic_ns()))
    now = time.monotonic_ns()
    alarm.set(now + 5_000_000)
    alarm.set(now + 2_300_000)
    assert await rung.get() >= now + 2_300_000
    alarm.set(now)  # past: at once
    await rung.get()
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(rung.get(), 0.006)
        pytest.fail("it rang for the instant that was replaced")
    alarm.close()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--load", "digits"], "expected [TENANT/]MODEL[:VARIANT]=RATE, got 'digits'"),
        (["--load", "/digits=3"], "expected [TENANT/]MODEL[:VARIANT]=RATE"),
        (["--load", "a=1,a=2"], "a is given more than once"),
        (["--load", "a=1", "--slo", "b=3"], "no load asks for b"),
        (["--load", "a=1", "--slo", "a=soon"], "expected MODEL=MILLISECONDS, got 'a=soon'"),
        (["--load", "a=0.0001"], "has no arrivals; raise its rate"),
        (["--load", "a=5"], "nobody answers at http://127.0.0.1:"),
    ],
)
def test_what_cannot_be_run_is_said_in_a_sentence_and_exits_2(
    arguments: list[str], said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["openloop", "--port", str(free_ports(1)[0]), *arguments])
    assert openloop.main() == 2
    assert said in capsys.readouterr().err


def test_a_load_names_its_tenant_and_variant() -> None:
    first, second = openloop.read_loads(["noisy/digits:linear=100:5+300:5", "mlp=20"], {"mlp": 50.0})
    assert (first.target.tenant, first.target.model, first.target.variant) == ("noisy", "digits", "linear")
    assert (first.target.name, first.pattern, first.slo_ms) == ("noisy/digits:linear", "100:5+300:5", None)
    assert (second.target.name, second.slo_ms) == ("mlp", 50.0)
