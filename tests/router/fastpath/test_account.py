"""What clients make the gateway hold stays within one limit, at the cost of the client that holds most."""

import contextlib
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.fastpath.account import COUNTED_BYTES, Account
from serving.specs import Limits
from serving.vocabulary import MEMORY_FULL
from tests.router.fastpath.wire import Running, Wire, body_of, infer, request, total

LIMIT = 1000


class Holding:
    """An upload or a reader that a test makes larger."""

    def __init__(self, account: Account, address: str) -> None:
        self._account = account
        self._address = address
        self.size = 0
        self.said: list[str] = []

    def held_bytes(self) -> int:
        return self.size

    def address(self) -> str:
        return self._address

    def give_up(self, _sentence: str) -> None:
        self.size = 0
        self.said.append(_sentence)

    def grow(self, size: int) -> None:
        self.size += size
        self._account.hold(self, self.size)


def account(calls: int = 0) -> Account:
    found = Account(Limits(held_bytes=LIMIT))
    found.calls = lambda: calls
    return found


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(1, 700), st.booleans()), max_size=40))
def test_the_limit_holds_whatever_comes(steps: list[tuple[int, int, bool]]) -> None:
    books = account(calls=100)
    holdings = [Holding(books, f"10.0.0.{number % 3}") for number in range(6)]
    for number, size, ends in steps:
        one = holdings[number]
        if ends:
            one.size = 0
            books.release(one)
        else:
            one.grow(size)
        assert books.bytes_by_kind() == (sum(each.size for each in holdings), 100, 0)
        assert sum(books.bytes_by_kind()) <= LIMIT
    assert books.given_up == sum(len(each.said) for each in holdings)


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
    upload.grow(300)
    assert books.bytes_by_kind() == (300, 0, 700)
    upload.grow(1)
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
    assert books.bytes_by_kind() == (0, 2000, 0)


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
    assert running.server.account.bytes_by_kind() == (0, 0, 0)


def test_a_body_that_waits_for_its_turn_counts_too(running: Running) -> None:
    running.serving.held = True
    padded = body_of(1, id="x" * COUNTED_BYTES)
    with running.connect() as first:
        first.send(infer(1) + request(body=padded))
        running.settle()
        assert running.server.account.bytes_by_kind()[0] == len(padded)
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
    assert running.server.account.bytes_by_kind() == (0, 0, 0)


def test_a_client_that_leaves_in_the_middle_holds_nothing(running: Running) -> None:
    with running.connect() as wire:
        wire.send(request(content_length="1000000") + bytes(600_000))
        running.settle()
    running.wait_left()
    assert running.server.account.bytes_by_kind() == (0, 0, 0)


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
    assert running.server.account.bytes_by_kind() == (0, 0, 0)


def send_what_goes(wire: Wire, data: bytes) -> bytes:
    """Without waiting for the other side to read; returns the rest."""
    wire.socket.setblocking(False)
    with contextlib.suppress(OSError):
        return data[wire.socket.send(data) :]
    return data
