"""What clients make the gateway hold stays within one limit, at the cost of the client that holds most."""

import contextlib
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.protocol.account import Account
from serving.policy.limits.memory import SMALL_BYTES, Level
from serving.values.specs import Limits
from serving.values.vocabulary import MEMORY_FULL
from tests.router.http.fastpath.wire import Running, Wire, body_of, chunked, infer, request, total

LIMIT = 1000


class Holding:
    """An upload or a reader that a test makes larger."""

    def __init__(self, account: Account, address: str) -> None:
        self._account = account
        self._address = address
        self.size = 0
        self.paused = False
        self.said: list[str] = []

    def held_bytes(self) -> int:
        return self.size

    def address(self) -> str:
        return self._address

    def give_up(self, _sentence: str) -> None:
        self.size = 0
        self.paused = False
        self.said.append(_sentence)

    def is_growing(self) -> bool:
        return not self.paused

    def hold_back(self) -> None:
        self.paused = True

    def go_on(self) -> None:
        self.paused = False

    def grow(self, size: int) -> None:
        self.size += size
        self._account.hold(self, self.size)


def account(calls: int = 0) -> Account:
    found = Account(Limits(held_bytes=LIMIT))
    found.count("calls", lambda: calls)
    return found


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 700), st.booleans()), max_size=40))
def test_the_limit_holds_whatever_comes(steps: list[tuple[int, int, bool]]) -> None:
    books = account(calls=100)
    observed = [Holding(books, f"10.0.0.{number % 3}") for number in range(6)]
    for number, size, ends in steps:
        one = observed[number]
        if ends:
            one.size = 0
            books.release(one)
        else:
            one.grow(size)
        held = sum(each.size for each in observed)
        assert books.by_kind() == {"uploads": held, "answers": 0, "calls": 100}
        assert books.held_bytes == held + 100 <= LIMIT
        there = [each for each in observed if each.size]
        assert not there or not all(each.paused for each in there)
    assert books.given_up == sum(len(each.said) for each in observed)


def test_the_address_that_holds_most_loses_its_largest() -> None:
    books = account()
    lone, crowd = Holding(books, "10.0.0.1"), [Holding(books, "10.0.0.2") for _ in range(4)]
    lone.grow(300)
    for size, each in zip((100, 250, 150, 150), crowd, strict=True):
        each.grow(size)
    crowd[0].grow(60)
    assert [len(each.said) for each in (lone, *crowd)] == [0, 0, 1, 0, 0]
    assert crowd[1].said == [
        "the gateway holds 1000 bytes at most for all its clients (limits.held_mb); "
        "of all uploads, those from 10.0.0.2 were the largest"
    ]


def test_unsent_answers_count_until_they_are_taken() -> None:
    books = account()
    reader, upload = Holding(books, "10.0.0.1"), Holding(books, "10.0.0.2")
    reader.size = 700
    books.fall_behind(reader)
    upload.grow(200)
    assert books.by_kind() == {"uploads": 200, "answers": 700, "calls": 0}
    upload.grow(50)
    assert (reader.said != [], upload.said) == (True, [])
    reader.size = 900
    books.fall_behind(reader)
    assert len(reader.said) == 2
    reader.size = 600
    books.fall_behind(reader)
    books.catch_up(reader)
    upload.grow(600)
    assert upload.said == []


def test_calls_are_never_given_up() -> None:
    books = account(calls=2000)
    upload = Holding(books, "10.0.0.1")
    upload.grow(1)
    assert len(upload.said) == 1
    assert books.held_bytes == 2000


def test_uploads_are_paused_at_80_percent_and_go_on_below_75() -> None:
    books = account()
    large, small = Holding(books, "10.0.0.1"), Holding(books, "10.0.0.1")
    large.grow(500)
    small.grow(299)
    assert not large.paused
    small.grow(1)
    assert (large.paused, small.paused, books.paused_count) == (True, False, 1)
    small.size = 0
    books.release(small)
    assert not large.paused


def test_where_all_that_is_left_is_paused_the_smallest_goes_on() -> None:
    books = account()
    calls = 0
    books.count("calls", lambda: calls)
    first, second, third = (Holding(books, "10.0.0.1") for _ in range(3))
    for each, size in ((first, 300), (second, 290), (third, 210)):
        each.grow(size)
    third.grow(20)
    assert [each.paused for each in (first, second, third)] == [True, True, False]
    calls = third.size
    books.release(third)  # it has become a call
    assert [each.paused for each in (first, second)] == [True, False]


def test_large_requests_are_refused_from_90_percent_on_and_are_told_when_to_come_back() -> None:
    books = account(899)
    assert (books.level, books.refusal()) == (Level.PAUSE, None)
    books.count("calls", lambda: 900)
    refusal = books.refusal()
    assert refusal is not None
    assert (refusal.outcome, refusal.retry_us) == (MEMORY_FULL, 1_000_000)
    assert "90% of the 1000 bytes" in refusal.message


# over the wire

SMALL = Limits(body_bytes=1 << 20, held_bytes=1 << 20)


@pytest.fixture
def running() -> Iterator[Running]:
    found = Running(SMALL)
    try:
        yield found
        assert total(found.ask(infer(41))) == 42
    finally:
        found.stop()


def test_uploads_beyond_the_limit_are_refused_and_the_rest_goes_on(running: Running) -> None:
    with running.connect() as first, running.connect() as second:
        first.send(request(content_length="1000000") + bytes(700_000))
        running.settle()
        second.send(request(content_length="1000000") + bytes(500_000))
        answer = first.read()
        assert (answer.status, answer.fields["connection"]) == (503, "close")
        assert "(limits.held_mb); of all uploads, those from 127.0.0.1 were the largest" in answer.error
        assert first.at_end()
        assert total(running.ask(infer(1))) == 2
        second.send(bytes(500_000))
        assert second.read().status == 400  # it arrived whole, and is no JSON
    assert next(outcome for _, outcome, _ in running.serving.turned_away) is MEMORY_FULL
    assert running.server.account.held_bytes == 0


def test_a_body_that_waits_for_its_turn_counts_too(running: Running) -> None:
    running.serving.held = True
    padded = body_of(1, id="x" * SMALL_BYTES)
    with running.connect() as first:
        first.send(infer(1) + request(body=padded))
        running.settle()
        assert running.server.account.held_bytes == len(padded)
        with running.connect() as second:
            second.send(request(content_length="1048576") + bytes((1 << 20) - len(padded)))
            running.settle()
            second.send(b"x")
            assert second.read().status == 503
        running.serving.held = False
        running.serving.release()
        assert total(first.read()) == 2
        assert first.read().status in (200, 413)
    running.wait_left()
    assert running.server.account.held_bytes == 0


def test_a_client_that_leaves_in_the_middle_holds_nothing(running: Running) -> None:
    with running.connect() as wire:
        wire.send(request(content_length="1000000") + bytes(600_000))
        running.settle()
    running.wait_left()
    assert running.server.account.held_bytes == 0


def test_a_client_that_takes_no_answers_is_cut_off(running: Running) -> None:
    tensor = '{"name":"IN","datatype":"UINT8","shape":[1,700000],"parameters":{"binary_data_size":700000}}'
    head = f'{{"inputs":[{tensor}],"parameters":{{"binary_data_output":true}}}}'.encode()
    fields = {"inference_header_content_length": str(len(head))}
    question = request("/v2/models/identity/infer", head + bytes(700_000), **fields)
    with running.connect(4096) as slow, running.connect(4096) as slower:
        rests = {slow: b"", slower: b""}
        while running.server.account.given_up == 0:  # the system takes some megabytes of answers first
            for wire, rest in rests.items():
                rests[wire] = send_what_goes(wire, rest or question)
            running.settle()
    running.wait_left()
    assert running.server.account.held_bytes == 0


def test_above_90_percent_large_bodies_are_refused_at_their_head_and_small_requests_go_on(
    running: Running,
) -> None:
    held = 950_000
    running.server.account.count("calls", lambda: held)
    answer = running.ask(request(content_length="100000"))
    assert (answer.status, answer.fields["retry-after"], answer.fields["connection"]) == (503, "1", "close")
    assert answer.fields["x-penstock-reason"] == "memory_full"
    assert "91% of the 1048576 bytes" in answer.error
    with running.connect() as wire:  # one that does not say how large it is
        wire.send(request(content_length=None, transfer_encoding="chunked") + chunked(bytes(70_000), 10_000))
        assert wire.read().status == 503
    assert [outcome for _, outcome, _ in running.serving.turned_away] == [MEMORY_FULL] * 2
    assert total(running.ask(infer(1))) == 2
    held = 0
    assert running.ask(request(body=bytes(100_000))).status == 400  # read, and no JSON


def test_an_upload_that_is_held_back_goes_on_and_is_answered(running: Running) -> None:
    padded = body_of(1, id="x" * 500_000)
    with running.connect() as first, running.connect() as second:
        first.send(request(body=padded)[:-1])
        running.settle()
        second.send(request(content_length="1000000") + bytes(400_000))
        while not running.server.account.paused_count:
            running.settle()
        first.send(padded[-1:])
        second.close()
        assert first.read().status == 413  # it was read to its end: its id is too long


@pytest.mark.slow
def test_an_upload_for_which_there_is_no_memory_in_time_is_refused(running: Running) -> None:
    account = running.server.account
    account.count("calls", lambda: 300_000)
    head = request(content_length="1000000")
    with running.connect() as first, running.connect() as second, running.connect() as third:
        first.send(head + bytes(500_000))
        running.settle()
        second.send(head + bytes(100_000))
        while not account.paused_count:
            running.settle()
        running.pass_time(SMALL.slow_client_s * 0.6)
        third.send(head + bytes(100_000))
        while account.held_bytes < 1_000_000:
            running.settle()
        second.close()  # it is not read, so its end is not seen before its time is over
        running.pass_time(SMALL.slow_client_s * 0.6)
        while account.held_bytes > 900_000:
            running.settle()
        answer = first.read()
        assert (answer.status, answer.fields["x-penstock-reason"]) == (503, "memory_full")
        assert "no memory for the rest of the request for 30 s" in answer.error


def send_what_goes(wire: Wire, data: bytes) -> bytes:
    """Without waiting for the other side to read; returns the rest."""
    wire.socket.setblocking(False)
    with contextlib.suppress(OSError):
        return data[wire.socket.send(data) :]
    return data
