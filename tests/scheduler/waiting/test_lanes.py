"""What lanes and queues promise: whatever joins and leaves, they agree with a plain sorted list."""

from collections.abc import Hashable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from serving.scheduler.waiting.lanes import Queue
from serving.scheduler.waiting.requests import Piece
from tests.scheduler.values import allow, request_of
from tests.seeds import drawn

picks = st.integers(0, 99)
SHAPES = ("x", "y")


class Lines(RuleBasedStateMachine):
    """A queue beside a list of (deadline, order of arrival, piece); some pieces come back, maybe apart."""

    def __init__(self) -> None:
        super().__init__()
        self.queue = Queue()
        self.now_us = 0
        self.count = 0
        self.waiting: list[tuple[int, int, Piece]] = []
        self.away: list[tuple[int, int, Piece]] = []

    def lines(self) -> dict[Hashable, list[Piece]]:
        lines: dict[Hashable, list[Piece]] = {}
        for _, _, piece in sorted(self.waiting, key=lambda entry: entry[:2]):
            lines.setdefault((piece.request.lane_key, piece.apart), []).append(piece)
        return lines

    @rule(shape=st.sampled_from(SHAPES), rows=st.lists(st.integers(1, 4), min_size=1, max_size=3),
          slack_us=st.integers(0, 12), protected=st.booleans(), size=st.sampled_from([0, 3, 9]))  # fmt: skip
    def insert(self, shape: str, rows: list[int], slack_us: int, protected: bool, size: int) -> None:
        self.now_us += self.count % 4
        request = allow(request_of(1, sum(rows), self.now_us, slack_us), ("a",), shape, 9, size=size)
        request.protected = protected
        for count in rows:
            self.count += 1
            piece = Piece(request, 0, count)
            self.queue.insert(piece)
            self.waiting.append((piece.deadline_us, self.count, piece))

    @precondition(lambda self: self.waiting)
    @rule(shape=picks, first=st.sampled_from([0, 0, 1, 2]), count=st.integers(1, 5), step=st.integers(1, 2))
    def take(self, shape: int, first: int, count: int, step: int) -> None:
        """Mostly from the head, sometimes others."""
        lanes = list(self.queue.lanes)
        lane = lanes[shape % len(lanes)]
        taken = lane.pieces[first::step][:count] or lane.pieces[:1]
        self.queue.take(lane, taken)
        assert all(piece.lane is None for piece in taken)
        self.away += [entry for entry in self.waiting if entry[2] in taken]
        self.waiting = [entry for entry in self.waiting if entry[2] not in taken]

    @precondition(lambda self: self.waiting)
    @rule(pick=picks)
    def remove(self, pick: int) -> None:
        entry = self.waiting.pop(pick % len(self.waiting))
        self.queue.remove(entry[2])
        assert entry[2].lane is None

    @precondition(lambda self: self.waiting)
    @rule(pick=picks, change_us=st.integers(-12, 12))
    def move(self, pick: int, change_us: int) -> None:
        deadline_us, order, piece = self.waiting.pop(pick % len(self.waiting))
        before = self.queue.version
        self.queue._move(piece, deadline_us + change_us)
        assert (self.queue.version != before) == (change_us != 0)
        self.waiting.append((deadline_us + change_us, order, piece))

    @precondition(lambda self: self.away)
    @rule(pick=picks, part=st.integers(0, 2))
    def come_back(self, pick: int, part: int) -> None:
        entry = self.away.pop(pick % len(self.away))
        entry[2].returned = True
        entry[2].apart = entry[2].apart or part
        self.queue.insert(entry[2])
        self.waiting.append(entry)

    @invariant()
    def agrees_with_the_list(self) -> None:
        lines = self.lines()
        assert self.queue.backlog.rows == sum(piece.rows for _, _, piece in self.waiting)
        lanes = list(self.queue.lanes)
        assert len(lanes) == len(lines), "a lane was forgotten with pieces in it, or kept without"
        for lane in lanes:
            head = lane.pieces[0]
            expected = lines[head.request.lane_key, head.apart]
            assert lane.pieces == expected
            assert lane.closed == (head.apart > 0)
            assert lane.protected == [piece for piece in expected if piece.request.protected]
            assert lane.size == max(piece.request.size for piece in expected)
            assert lane.rows == sum(piece.rows for piece in expected)
            assert lane.oldest_us == min(piece.arrived_us for piece in expected)
            assert all(piece.lane is lane for piece in expected)


Lines.TestCase.settings = settings(max_examples=drawn(100), stateful_step_count=40)
TestLines = pytest.mark.slow(Lines.TestCase)


@given(st.integers(1, 500))
def test_what_left_is_not_remembered_without_bound(count: int) -> None:
    queue = Queue()
    first = Piece(request_of(1, slack_us=1), 0, 1)
    queue.insert(first)
    lane = next(iter(queue.lanes))
    for number in range(count):
        piece = Piece(request_of(2 + number, arrived_us=number), 0, 1)
        queue.insert(piece)
        queue.remove(piece)
        assert len(lane._arrivals) <= 2 * len(lane.pieces) + 17
    assert lane.oldest_us == 0


def test_a_lane_says_who_may_answer_and_of_which_bucket_it_is() -> None:
    queue = Queue()
    queue.insert(Piece(allow(request_of(), ("b", "a"), "x", 16, size=5), 0, 1))
    lane = next(iter(queue.lanes))
    assert (lane.key, lane.variants, lane.bucket) == (("x", ("b", "a"), 16), ("b", "a"), 16)


@given(st.lists(st.sampled_from([0, 3, 7, 9]), min_size=1, max_size=9), st.data())
def test_a_lane_is_of_the_size_of_the_largest_that_waits_in_it(sizes: list[int], data: st.DataObject) -> None:
    queue = Queue()
    pieces = [Piece(allow(request_of(), ("a",), "x", 9, size=size), 0, 1) for size in sizes]
    for piece in pieces:
        queue.insert(piece)
    lane = next(iter(queue.lanes))
    while pieces:
        assert lane.size == max(piece.size for piece in pieces)
        queue.remove(pieces.pop(data.draw(st.integers(0, len(pieces) - 1))))
        if data.draw(st.booleans()):
            pieces.append(Piece(allow(request_of(), ("a",), "x", 9, size=data.draw(st.integers(0, 9))), 0, 1))
            queue.insert(pieces[-1])
            lane = next(iter(queue.lanes))


def test_pieces_that_are_tried_apart_share_a_lane_with_none_but_their_part() -> None:
    queue = Queue()
    pieces = [Piece(request_of(number), 0, 1) for number in range(5)]
    for piece, part in zip(pieces, (0, 3, 3, 4, 0), strict=True):
        piece.apart = part
        queue.insert(piece)
    assert [(lane.pieces, lane.closed) for lane in queue.lanes] == [
        ([pieces[0], pieces[4]], False),
        (pieces[1:3], True),
        ([pieces[3]], True),
    ]


def test_only_what_waits_can_be_removed() -> None:
    with pytest.raises(ValueError, match="only a waiting piece"):
        Queue().remove(Piece(request_of(), 0, 1))
