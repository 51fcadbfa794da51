"""An open-loop client that reads every answer: the right one, one clear error, or neither.

Requests leave when they are due, whether or not earlier ones were answered, each on a connection that no
other waits on.
"""

import asyncio
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Protocol

from loadtests.harness.gateway import Gateway
from loadtests.harness.wire import Answer, parse_head

ANSWER_S = 60.0  # a request without an answer by then is counted as unanswered
RIGHT, WRONG, NO_ANSWER = "200", "200 wrong", "no answer"


class Question(Protocol):
    """A request, and how its answer is known."""

    @property
    def request(self) -> bytes:
        """All of its bytes."""
        ...

    def fault(self, answer: Answer) -> str:
        """Return the fault of an answer 200, or "" if it is right."""
        ...


@dataclass(slots=True)
class Sent:
    """One request; instants are seconds of `time.monotonic`. `what`: RIGHT, WRONG, the status and reason of
    an error, or NO_ANSWER and why."""

    question: Question
    due_s: float
    sent_s: float = 0.0
    done_s: float = 0.0
    what: str = NO_ANSWER

    def in_time(self, slo_s: float) -> bool:
        return self.what == RIGHT and self.done_s - self.due_s <= slo_s


class Client:
    """As many connections as the answers that are awaited need."""

    def __init__(self, gateway: Gateway) -> None:
        self._address = gateway.host, gateway.rest_port
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        self.sent: list[Sent] = []
        self.surplus_bytes = 0

    async def run(self, due_s: Iterable[float], questions: Iterator[Question]) -> None:
        """Send the next question at each of these instants from now, and wait for every answer."""
        start_s = time.monotonic()
        async with asyncio.TaskGroup() as tasks:
            for at_s in due_s:
                sent = Sent(next(questions), start_s + at_s)
                await asyncio.sleep(max(0.0, sent.due_s - time.monotonic()))
                sent.sent_s = time.monotonic()
                self.sent.append(sent)
                tasks.create_task(self._ask(sent))
        await self._close()

    async def _ask(self, sent: Sent) -> None:
        try:
            async with asyncio.timeout(ANSWER_S):
                answer = await self._answer(sent.question)
        except (OSError, asyncio.IncompleteReadError, TimeoutError) as error:
            sent.what = f"{NO_ANSWER}: {type(error).__name__}"
        else:
            sent.what = _verdict(sent.question, answer)
        sent.done_s = time.monotonic()

    async def _answer(self, question: Question) -> Answer:
        reader, writer = self._idle.pop() if self._idle else await asyncio.open_connection(*self._address)
        writer.write(question.request)
        status, headers = parse_head(await reader.readuntil(b"\r\n\r\n"))
        body = await reader.readexactly(int(headers["content-length"]))
        if headers.get("connection") == "close":
            writer.close()
        else:
            self._idle.append((reader, writer))
        return Answer(status, headers, body)

    async def _close(self) -> None:
        """Close every connection, which must be silent now: more bytes would be a second answer to a
        request."""
        for reader, writer in self._idle:
            try:
                async with asyncio.timeout(0.01):
                    self.surplus_bytes += len(await reader.read(1 << 16))
            except TimeoutError:
                pass
            writer.close()


def _verdict(question: Question, answer: Answer) -> str:
    if answer.status == 200:
        return WRONG if question.fault(answer) else RIGHT
    return f"{answer.status} {answer.reason or answer.body.decode(errors='replace')[:80]}"
