"""What `status` and `explain` say of a model's worker processes."""

import pytest

from router.observing.isolation import IsolationStatus, isolation_lines, isolation_sentence, isolation_status
from serving.control.isolating import Isolation

LATELY = "worker processes died busy with it in 5 minutes"


def told(stated: str = "auto", *processes: str, why: str = "", deaths: int = 0) -> IsolationStatus:
    return isolation_status(Isolation(stated, processes, why, deaths, deaths))


@pytest.mark.parametrize(
    ("status", "sentence"),
    [
        (told(), "it shares its slices' processes"),
        (told("never", deaths=4), f"it shares its slices' processes (isolate: never); 4 {LATELY}"),
        (
            told(deaths=1),
            "it shares its slices' processes; 1 worker process died busy with it in 5 minutes; from 3 on it "
            "gets a process of its own, where others share with it",
        ),
        (told("always", "a+m", "b+m"), "it has a process of its own on a, b (isolate: always)"),
        (
            told("auto", "a+m", why="its load holds the interpreter for 2.0 s", deaths=7),
            f"it has a process of its own on a (its load holds the interpreter for 2.0 s); 7 {LATELY}",
        ),
    ],
)
def test_it_says_where_the_model_runs_why_and_what_died(status: IsolationStatus, sentence: str) -> None:
    assert isolation_sentence(status) == sentence


def test_status_has_a_line_of_those_alone_of_which_there_is_something_to_say() -> None:
    assert [*isolation_lines({"m": told(), "n": told("never")})] == []
    heading, line, empty = isolation_lines({"quiet": told(), "m": told("always", "a+m")})
    assert (heading, empty) == (" worker processes of models:", "")
    assert line == "   m   it has a process of its own on a (isolate: always)"
