"""Single requests can be asked for: by name or number, with their batch, in memory of a bounded size."""

import pytest

from router.observing.telemetry.counting.journal import LAST, MATES_MAX, Journal
from serving.ports import Reply
from serving.scheduler.commands import RunBatch
from serving.scheduler.waiting.requests import Piece, Request
from serving.values.vocabulary import COMPLETED, OVERLOAD


def request(number: int, name: str = "", model: str = "m") -> Request:
    made = Request(number, model, 2, 1_000, 51_000)
    made.name, made.variants = name, ("a", "b")
    return made


def ran(journal: Journal, *requests: Request) -> None:
    """A batch with these requests comes back."""
    pieces = [Piece(each, 0, 2) for each in requests]
    batch = RunBatch(7, "cpu0", pieces, 2 * len(pieces))
    batch.model, batch.variant, batch.predicted_us, batch.started_us = requests[0].model, "a", 9_000.0, 5_000
    journal.ran(batch, 8_000, 10_000)


def done(journal: Journal, ended: Request, within: bool = True) -> None:
    reply = Reply(COMPLETED)
    reply.variant, reply.queue_us, reply.compute_us = "a", 4_000, 8_000
    journal.done(ended, reply, 20_000, within)


def refused(journal: Journal, ended: Request) -> None:
    journal.done(ended, Reply(OVERLOAD, "too many"), 10, False)


def test_an_answered_request_has_its_phases_and_its_batch_with_its_mates() -> None:
    journal, first, second = Journal(), request(1, "mine"), request(2)
    ran(journal, first, second)
    done(journal, first)
    entry = journal.find("mine")
    assert entry is not None
    assert (entry.queue_us, entry.compute_us, entry.due_us, entry.variants) == (
        4_000,
        8_000,
        50_000,
        ("a", "b"),
    )
    assert entry.batch is not None
    assert (entry.batch.rows, entry.batch.requests, entry.batch.elapsed_us) == (4, 2, 10_000)
    assert entry.batch.mates == [(1, "mine", 2), (2, "", 2)]
    assert journal.notable("", 9) == []


def test_a_refused_request_has_the_latest_batch_of_its_model() -> None:
    journal = Journal()
    refused(journal, request(1))
    ran(journal, request(2))
    refused(journal, request(3, "turned-away"))
    first, last = journal.find("1"), journal.find(LAST)
    assert first is not None
    assert last is not None
    assert (first.then, last.name, last.detail, last.batch) == (None, "turned-away", "too many", None)
    assert last.then is not None
    assert last.then.elapsed_us == 10_000


def test_the_newest_of_a_name_is_found_and_a_flood_drives_out_no_notable_one() -> None:
    journal = Journal(kept=4)
    refused(journal, request(1, "mine"))
    done(journal, request(2, "late", "other"), within=False)
    for number in range(3, 20):
        done(journal, request(number, "same"))
    found = journal.find("same")
    assert found is not None
    assert found.number == 19
    assert journal.find("3") is None
    assert journal.find("mine") is not None
    assert [each.number for each in journal.notable("", 9)] == [2, 1]
    assert [each.number for each in journal.notable("m", 9)] == [1]
    assert [each.number for each in journal.notable("", 1)] == [2]


@pytest.mark.parametrize("name", ["", "0", "-1", "9" * 99, "9" * 5000, "٣", "nothing", LAST])
def test_what_is_not_there_is_not_found(name: str) -> None:
    journal = Journal()
    done(journal, request(3))
    assert journal.find(name) is None or name == ""


def test_a_batch_names_a_bounded_number_of_mates() -> None:
    journal, requests = Journal(), [request(number) for number in range(1, 2 * MATES_MAX)]
    ran(journal, *requests)
    done(journal, requests[0])
    entry = journal.find("1")
    assert entry is not None
    assert entry.batch is not None
    assert (len(entry.batch.mates), entry.batch.requests) == (MATES_MAX, 2 * MATES_MAX - 1)
