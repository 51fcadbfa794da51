"""kill -9 of a worker under steady load: every request has to get exactly one answer.

Open loop: requests leave at fixed instants, whether or not earlier ones were answered, each on a connection
that no other waits on. Run: python -m loadtests.worker_kill [--rate 300] [--seconds 12] [--kills 2]
"""

import argparse
import asyncio
import json
import os
import signal
import sys
import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from loadtests.gateway import Gateway, model_entry, started
from loadtests.wire import Answer, DigitsQuestion, ask, digits_question, parse_head

ANSWER_S = 60.0  # a request without an answer by then is counted as unanswered
BACK_S = 60.0
CALM_S = 2.0  # of load before the first kill and after the last


@dataclass(slots=True)
class Sent:
    """One request: when it was due, when its answer was complete, and what the answer was."""

    due_s: float
    done_s: float = 0.0
    what: str = "no answer"


class Client:
    """An open-loop client with as many connections as the answers that are awaited need."""

    def __init__(self, gateway: Gateway, question: DigitsQuestion) -> None:
        self._gateway = gateway
        self._question = question
        self._idle: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
        self.sent: list[Sent] = []
        self.surplus_bytes = 0

    async def run(self, rate: float, seconds: float) -> None:
        """Send at the rate for so long, and wait for every answer."""
        start_s = time.monotonic()
        async with asyncio.TaskGroup() as tasks:
            for number in range(int(rate * seconds)):
                due_s = start_s + number / rate
                await asyncio.sleep(max(0.0, due_s - time.monotonic()))
                self.sent.append(Sent(due_s))
                tasks.create_task(self._ask(self.sent[-1]))
        await self._close()

    async def _ask(self, sent: Sent) -> None:
        try:
            async with asyncio.timeout(ANSWER_S):
                answer = await self._answer()
        except (OSError, asyncio.IncompleteReadError, TimeoutError) as error:
            sent.what = f"no answer: {type(error).__name__}"
        else:
            sent.what = self._verdict(answer)
        sent.done_s = time.monotonic()

    async def _answer(self) -> Answer:
        address = self._gateway.host, self._gateway.rest_port
        reader, writer = self._idle.pop() if self._idle else await asyncio.open_connection(*address)
        writer.write(self._question.request)
        status, headers = parse_head(await reader.readuntil(b"\r\n\r\n"))
        body = await reader.readexactly(int(headers["content-length"]))
        if headers.get("connection") == "close":
            writer.close()
        else:
            self._idle.append((reader, writer))
        return Answer(status, headers, body)

    def _verdict(self, answer: Answer) -> str:
        if answer.status == 200:
            return "200 wrong" if self._question.fault(answer) else "200"
        return f"{answer.status} {answer.reason or answer.body.decode(errors='replace')[:80]}"

    async def _close(self) -> None:
        """Every connection must be silent now: more bytes would be a second answer to something."""
        for reader, writer in self._idle:
            try:
                async with asyncio.timeout(0.01):
                    self.surplus_bytes += len(await reader.read(1 << 16))
            except TimeoutError:
                pass
            writer.close()


async def kill_workers(gateway: Gateway, kills: int, every_s: float) -> list[tuple[float, float]]:
    """Kill the worker so often; the instants of the kill and of the next worker's start."""
    moments = []
    await asyncio.sleep(CALM_S)
    for _ in range(kills):
        (victim,) = gateway.workers()
        killed_s = time.monotonic()
        os.kill(victim, signal.SIGKILL)
        async with asyncio.timeout(BACK_S):
            while gateway.workers() in ([], [victim]):  # noqa: ASYNC110 (/proc tells nobody of a new child)
                await asyncio.sleep(0.05)
        moments.append((killed_s, time.monotonic()))
        await asyncio.sleep(max(0.0, killed_s + every_s - time.monotonic()))
    return moments


async def _experiment(
    asked: argparse.Namespace, gateway: Gateway
) -> tuple[Client, list[tuple[float, float]]]:
    client = Client(gateway, digits_question())
    every_s = (asked.seconds - 2 * CALM_S) / asked.kills
    async with asyncio.TaskGroup() as tasks:
        load = tasks.create_task(client.run(asked.rate, asked.seconds))
        kills = tasks.create_task(kill_workers(gateway, asked.kills, every_s))
        await load
    return client, await kills


def main() -> int:
    """0 where every request got one right answer or one clear error, and the last ones were right."""
    asked = _arguments()
    model = model_entry("digits", variants=["linear"], default_variant="linear")
    with started([model]) as gateway:
        client, moments = asyncio.run(_experiment(asked, gateway))
        after = digits_question().fault(ask(gateway, digits_question().request))
    counts = Counter(one.what for one in client.sent)
    ends_s = [killed_s for killed_s, _ in moments[1:]] + [float("inf")]
    kills = [_recovery(client.sent, *moment, end) for moment, end in zip(moments, ends_s, strict=True)]
    faults = _faults(client, counts, after)
    if asked.json:
        print(json.dumps({"sent": len(client.sent), "counts": counts, "kills": kills, "faults": faults}))
    else:
        _print(asked, counts, kills, faults)
    return 1 if faults else 0


def _recovery(sent: Sequence[Sent], killed_s: float, started_s: float, end_s: float) -> dict[str, float]:
    """Seconds from the kill to the new process, to the first right answer to a request sent after the kill,
    and to the last failed answer before `end_s`, the next kill."""
    right = [one.done_s for one in sent if one.due_s > killed_s and one.what == "200"]
    failed = [one.done_s for one in sent if killed_s < one.done_s < end_s and one.what != "200"]
    return {
        "new process": round(started_s - killed_s, 3),
        "first right answer": round(min(right, default=float("inf")) - killed_s, 3),
        "last failed answer": round(max(failed, default=killed_s) - killed_s, 3),
    }


def _faults(client: Client, counts: Counter[str], after: str) -> list[str]:
    faults = [
        f"{number} x {what}" for what, number in counts.items() if what.startswith(("no answer", "200 wrong"))
    ]
    if client.surplus_bytes:
        faults.append(f"{client.surplus_bytes} bytes came that nobody had asked for")
    if client.sent[-1].what != "200":
        faults.append(f"the last request of the run was answered with {client.sent[-1].what}")
    if after:
        faults.append(f"after the run: {after}")
    return faults


def _print(
    asked: argparse.Namespace, counts: Counter[str], kills: Sequence[dict[str, float]], faults: Sequence[str]
) -> None:
    total = sum(counts.values())
    print(f"{total} requests at {asked.rate:.0f}/s; worker killed {asked.kills} times")
    for what, number in counts.most_common():
        print(f"{number:8}  {what}")
    for times in kills:
        print("seconds after the kill: " + ", ".join(f"{name} {value:.3f}" for name, value in times.items()))
    for fault in faults:
        print(f"FAULT: {fault}")
    if not faults:
        print("every request got exactly one answer, and the worker came back")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rate", type=float, default=300, help="requests a second")
    parser.add_argument("--seconds", type=float, default=16)
    parser.add_argument("--kills", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
