"""Each test of the contract runs on both ways of inference, and leaves a server that still answers."""

from collections.abc import Callable, Iterator

import pytest

from serving.values.specs import Limits
from serving.values.vocabulary import COMPLETED
from tests.router.http.fastpath.wire import LIMITS, Running, infer, total

Start = Callable[[Limits], Running]


@pytest.fixture(params=[True, False], ids=["fast path", "ASGI"])
def start(request: pytest.FixtureRequest) -> Iterator[Start]:
    """Starts a server with the given limits; afterwards it must answer a good request as ever."""
    started: list[Running] = []

    def begin(limits: Limits) -> Running:
        started.append(Running(limits, direct=request.param))
        return started[-1]

    yield begin
    for running in started:
        serving = running.serving
        serving.held, serving.later_s, serving.outcome = False, None, COMPLETED
        try:
            running.wait_left()  # else a limit on connections may count those that are on their way out
            assert total(running.ask(infer(41))) == 42
        finally:
            running.stop()


@pytest.fixture
def running(start: Start) -> Running:
    """A server with small limits."""
    return start(LIMITS)
