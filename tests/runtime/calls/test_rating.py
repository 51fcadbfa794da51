"""Calls over a tenant's rate are answered at once; each answer says what is left; others pay nothing."""

import re
from dataclasses import replace

from serving.ports import Call, Reply
from serving.runtime.calls.rating import RatedServing
from serving.runtime.calls.splitting import Split
from serving.values.objectives import RateSpec
from serving.values.specs import TenantSpec
from serving.values.vocabulary import CLIENT_GONE, COMPLETED, RATE_LIMITED
from tests.router.fakes import SIMPLE
from tests.router.rpc_edge import Core

SHOP = TenantSpec("gold", rate=RateSpec(requests_per_s=2, rows_per_s=10, burst_s=2, concurrent=3))


class Desk:
    def __init__(self, *limited: TenantSpec) -> None:
        self.core = Core()
        self.serving = RatedServing(self.core, limited=limited)
        self.replies: list[Reply] = []

    def put(self, tenant: str = "gold", rows: int = 1) -> int:
        call = Call(SIMPLE, (), rows)
        call.tenant = tenant
        return self.serving.submit(call, self.replies.append)

    def hold(self) -> None:
        """Keep calls open from now on."""
        self.core.answer = lambda _call: None

    @property
    def open(self) -> int:
        return self.serving.rates.by_tenant["gold"].open


def fields(reply: Reply) -> dict[str, str]:
    lines = reply.limits.split("\r\n")[1:]
    return dict(line.split(": ", 1) for line in lines)


def left(reply: Reply) -> dict[str, int]:
    return {name: int(count) for name, count in re.findall(r'"(\w+)";r=(\d+)', fields(reply)["ratelimit"])}


async def test_what_is_over_the_rate_is_refused_and_told_when_to_come_back() -> None:
    desk = Desk(SHOP)
    desk.core.answer = lambda _call: Reply(COMPLETED)
    for _ in range(5):
        desk.put()
    assert [reply.outcome for reply in desk.replies] == [COMPLETED] * 4 + [RATE_LIMITED]
    assert [left(reply)["requests"] for reply in desk.replies] == [3, 2, 1, 0, 0]
    assert fields(desk.replies[0])["ratelimit-policy"] == (
        '"requests";q=4;w=2, "rows";q=20;w=2;penstock-unit=rows, "concurrent";q=3;qu="concurrent-requests"'
    )
    assert desk.replies[-1].retry_us == 500_000
    assert desk.core.turned_away == [(SIMPLE.name, RATE_LIMITED, "gold")]
    desk.core.clock_us += 500_000
    desk.put()
    assert desk.replies[-1].outcome is COMPLETED
    assert len(desk.core.calls) == 5


async def test_rows_and_open_calls_have_limits_of_their_own() -> None:
    desk = Desk(SHOP)
    desk.hold()
    held = [desk.put(rows=19), desk.put()]
    assert all(held)
    assert desk.put(rows=2) == 0
    assert "rows_per_s" in desk.replies[-1].detail
    desk.core.clock_us += 1_000_000
    assert desk.put()
    assert desk.put() == 0
    assert "concurrent" in desk.replies[-1].detail
    assert left(desk.replies[-1])["concurrent"] == 0
    desk.serving.cancel(held[0])
    assert desk.replies[-1].outcome is CLIENT_GONE
    assert desk.open == 2
    assert desk.put()


async def test_tenants_without_limits_are_let_through_as_they_are() -> None:
    desk = Desk(SHOP)
    desk.core.answer = lambda _call: Reply(COMPLETED)
    for _ in range(10):
        desk.put("default")
    assert {(reply.outcome, reply.limits) for reply in desk.replies} == {(COMPLETED, "")}


async def test_other_limits_count_at_once() -> None:
    desk = Desk()
    desk.core.answer = lambda _call: Reply(COMPLETED)
    desk.put()
    desk.serving.follow([SHOP])
    desk.put()
    desk.serving.follow([])
    desk.put()
    assert [bool(reply.limits) for reply in desk.replies] == [False, True, False]


async def test_an_answer_of_a_candidate_says_which_version_it_is() -> None:
    desk = Desk()
    desk.core.answer = lambda _call: Reply(COMPLETED)
    spec = replace(SIMPLE.spec, version=3, name=f"{SIMPLE.name}@3")
    candidate = replace(SIMPLE, spec=spec)
    desk.put()
    desk.serving.splits.by_model[SIMPLE.name] = Split(candidate, 1.0, "none")
    desk.put()
    assert [reply.version for reply in desk.replies] == [0, 3]
    assert desk.core.calls[-1].model is candidate


async def test_a_stream_that_a_candidate_version_answers_says_so_with_each_answer() -> None:
    present = replace(SIMPLE, spec=replace(SIMPLE.spec, version=2, decoupled=True))
    candidate = replace(present, spec=replace(present.spec, name=f"{SIMPLE.name}@3", version=3))
    desk = Desk()
    desk.hold()
    desk.serving.splits.by_model[SIMPLE.name] = Split(candidate, 1.0, "none")
    call = Call(present, (), 1)
    stated: list[int] = []
    call.on_answer = lambda _outputs, version: stated.append(version)
    desk.serving.submit(call, desk.replies.append)
    (asked,) = desk.core.calls
    assert asked.model is candidate
    assert asked.on_answer is not None
    asked.on_answer((), 0)
    asked.on_answer((), 4)  # what has its name by now
    assert stated == [3, 4]
