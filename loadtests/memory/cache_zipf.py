"""What the result cache is worth where some questions are asked more than others: minilm, Zipf(1.0).

    python -m loadtests.memory.cache_zipf [--seconds 10] [--rounds 4] [--worker-cores 1]

Two gateways, one with a cache and one without, are asked the same seeded stream of texts, in turn, each by so
many connections that ask again as soon as they are answered. The stream goes on from round to round, and what
was kept stays: the first round finds an empty cache.
"""

import argparse
import asyncio
import os
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import cycle
from statistics import median

import numpy as np

from loadtests.harness.gateway import Gateway, model_entry, started
from loadtests.harness.payloads import Contents, Target, fetch_metadata, make_questions
from loadtests.harness.processes import cpu_us, pin
from loadtests.harness.wire import parse_head

DRAWS = 1_000_000  # then the stream begins again
SLO_MS = 10_000.0  # nobody is turned away: what counts is how many are answered


@dataclass(slots=True)
class Round:
    """What one round of one gateway showed. `results`: answers by `x-cache` ("" where it was not asked)."""

    seconds: float = 0.0
    cpu_us: float = 0.0
    results: Counter[str] = field(default_factory=Counter)
    failures: int = 0

    @property
    def answers_per_s(self) -> float:
        return self.results.total() / self.seconds

    @property
    def hit_rate(self) -> float:
        """Answers without a computation of their own."""
        return (self.results["hit"] + self.results["join"]) / max(self.results.total(), 1)


class Subject:
    """A gateway and the place in the stream that it has come to."""

    def __init__(self, name: str, gateway: Gateway, requests: Sequence[bytes], stream: np.ndarray) -> None:
        self.name = name
        self.gateway = gateway
        self._requests = requests
        self._stream: Iterator[int] = cycle(stream.tolist())
        self.rounds: list[Round] = []

    async def play(self, connections: int, seconds: float) -> None:
        """Ask for so long."""
        seen = Round()
        begin_us, begin_s = cpu_us(self.gateway.pid), time.monotonic()
        until_s = begin_s + seconds
        await asyncio.gather(*(self._ask(seen, until_s) for _ in range(connections)))
        seen.seconds = time.monotonic() - begin_s
        seen.cpu_us = cpu_us(self.gateway.pid) - begin_us
        self.rounds.append(seen)

    async def _ask(self, seen: Round, until_s: float) -> None:
        reader, writer = await asyncio.open_connection(self.gateway.host, self.gateway.rest_port)
        while time.monotonic() < until_s:
            writer.write(self._requests[next(self._stream)])
            head = await reader.readuntil(b"\r\n\r\n")
            status, headers = parse_head(head[:-4])
            await reader.readexactly(int(headers["content-length"]))
            if status == 200:
                seen.results[headers.get("x-cache", "")] += 1
            else:
                seen.failures += 1
        writer.close()
        await writer.wait_closed()


def zipf(keys: int, draws: int, exponent: float, seed: int) -> np.ndarray:
    """Draw numbers below `keys`, with the number of rank r in proportion to r ** -exponent."""
    rng = np.random.default_rng(seed)
    shares = np.arange(1, keys + 1) ** -exponent
    return rng.choice(keys, draws, p=shares / shares.sum())


def main() -> int:
    """Return 0 if every request was answered, 1 if some failed."""
    asked = _arguments()
    entry = model_entry("minilm", variants=[asked.variant], default_variant=asked.variant, slo_ms=SLO_MS)
    cache = {"memory_mb": asked.memory_mb}
    with (
        started([entry], asked.worker_cores, cache=cache) as cached,
        started([entry], asked.worker_cores) as plain,
    ):
        url = f"http://{cached.host}:{cached.rest_port}"
        contents = Contents(distinct=asked.keys, seed=asked.seed)
        questions = make_questions(Target("minilm"), fetch_metadata(url, "minilm"), contents)
        requests = [question.request for question in questions]
        stream = zipf(asked.keys, DRAWS, asked.exponent, asked.seed)
        subjects = [
            Subject("cache", cached, requests, stream),
            Subject("no cache", plain, requests, stream),
        ]
        for subject in subjects:
            pin(subject.gateway.pid, asked.server_cores)
        for number in range(asked.rounds):
            for subject in subjects if number % 2 == 0 else reversed(subjects):
                asyncio.run(subject.play(asked.connections, asked.seconds))
    _report(asked, subjects)
    return 1 if any(each.failures for subject in subjects for each in subject.rounds) else 0


def _report(asked: argparse.Namespace, subjects: Sequence[Subject]) -> None:
    print(
        f"minilm {asked.variant}, Zipf({asked.exponent:g}) over {asked.keys} texts, {asked.connections} "
        f"connections, {asked.rounds} rounds of {asked.seconds:g} s, in turn; cache of {asked.memory_mb:g} MB"
    )
    for subject in subjects:
        rates = " ".join(f"{each.answers_per_s:.0f}" for each in subject.rounds)
        cpu = median(each.cpu_us / max(each.results.total(), 1) for each in subject.rounds)
        print(f"{subject.name:10} answers/s {rates}; gateway CPU {cpu:.0f} us an answer", end="")
        print(f"; {failed} failed" if (failed := sum(each.failures for each in subject.rounds)) else "")
    cached, plain = subjects
    rates = " ".join(f"{each.hit_rate:.3f}" for each in cached.rounds)
    ratio = median(each.answers_per_s for each in cached.rounds) / median(
        each.answers_per_s for each in plain.rounds
    )
    print(f"hits and joins, of all answers: {rates}")
    print(f"answers/s with the cache to without, medians: {ratio:.2f}")


def _cores(text: str) -> list[int]:
    return [int(core) for core in text.split(",")]


def _arguments() -> argparse.Namespace:
    mine = sorted(os.sched_getaffinity(0))
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--variant", default="fp32-128")
    parser.add_argument("--exponent", type=float, default=1.0)
    parser.add_argument("--keys", type=int, default=10_000, help="different texts")
    parser.add_argument("--memory-mb", type=float, default=64.0)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=10.0, help="of a round")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--server-cores", type=_cores, default=mine[:1], metavar="0", help="for the gateways")
    parser.add_argument("--worker-cores", type=_cores, default=mine[-1:], metavar="1", help="for the workers")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
