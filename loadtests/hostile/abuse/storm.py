"""A worker that is killed or stopped again and again: how many requests find no replica.

Open loop, `simple` on one slice or several. Each fault is SIGKILL or SIGSTOP of one worker, by chance, and 6
to 14 s after the last. The last lines have, by seed and over all of them, the requests that found no worker
(`no_replica`) and those whose model was on none (`not_loaded`): counts, shares, and their sum.
Run: python -m loadtests.hostile.abuse.storm [--seconds 100] [--rate 150] [--slices 2] [--slo-ms 25] [--seed 1
2 3]
"""

import argparse
import os
import random
import signal
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

from loadtests.harness.gateway import Gateway, model_entry, started
from loadtests.harness.wire import ask, post
from loadtests.hostile.abuse.hostile import PATH, good_body, is_right

FIRST_S = 5.0  # before the first fault
GAPS_S = (6.0, 14.0)
CLIENTS = 64
ABSENT = ("no_replica", "not_loaded")
"""Why a request is refused while no worker can take it."""


class Storm:
    """Counts how requests end."""

    def __init__(self, gateway: Gateway, seed: int) -> None:
        self._gateway = gateway
        self._chance = random.Random(seed)
        self._lock = threading.Lock()
        self.endings: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()

    def play(self, seconds: float, rate: float) -> None:
        """Send `rate` requests a second for `seconds`, and strike workers now and then."""
        began_s = time.monotonic()
        fault_s = began_s + FIRST_S
        with ThreadPoolExecutor(CLIENTS) as clients:
            for number in range(int(seconds * rate)):
                due_s = began_s + number / rate
                time.sleep(max(0.0, due_s - time.monotonic()))
                clients.submit(self._ask)
                if due_s >= fault_s:
                    self._strike()
                    fault_s = due_s + self._chance.uniform(*GAPS_S)

    def _ask(self) -> None:
        try:
            answer = ask(self._gateway, post(PATH, good_body()))
            ending = "right" if is_right(answer) else answer.reason or f"status {answer.status}"
        except OSError as error:
            ending = type(error).__name__
        with self._lock:
            self.endings[ending] += 1

    def _strike(self) -> None:
        number = self._chance.choice((signal.SIGKILL, signal.SIGSTOP))
        workers = self._gateway.workers()
        if workers:
            self.faults[number.name] += 1
            with suppress(ProcessLookupError):
                os.kill(self._chance.choice(workers), number)


def absent(endings: Counter[str]) -> str:
    """Return what found no worker: the count and share of each of ABSENT, and of both."""
    count = max(1, endings.total())
    both = sum(endings[reason] for reason in ABSENT)
    each = ", ".join(f"{endings[reason]} {reason} ({endings[reason] / count:.2%})" for reason in ABSENT)
    return f"{each}, together {both / count:.2%} of {endings.total()}"


def main() -> None:
    """Print how many requests ended how, by seed."""
    asked = _arguments()
    sums: Counter[str] = Counter()
    shown = []
    for seed in asked.seed:
        endings = _endings(asked, seed)
        sums += endings
        shown.append(f"seed {seed}: {absent(endings)}")
    print(*shown, sep="\n")
    if len(shown) > 1:
        print(f"all: {absent(sums)}")


def _endings(asked: argparse.Namespace, seed: int) -> Counter[str]:
    names = [f"slice-{number}" for number in range(1, asked.slices + 1)]
    entry = model_entry("simple", slices=names, slo_ms=asked.slo_ms)
    with started([entry], slices=[{"name": name} for name in names]) as gateway:
        storm = Storm(gateway, seed)
        storm.play(asked.seconds, asked.rate)
    count = storm.endings.total()
    faults = ", ".join(f"{times} {name}" for name, times in sorted(storm.faults.items()))
    print(f"seed {seed}: {faults or 'no fault'}; {count} requests")
    for ending, each in storm.endings.most_common():
        print(f"  {ending:24} {each:6} {each / count:7.2%}", flush=True)
    return storm.endings


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=100.0)
    parser.add_argument("--rate", type=float, default=150.0)
    parser.add_argument("--slices", type=int, default=1)
    parser.add_argument("--slo-ms", type=float, default=25.0)
    parser.add_argument("--seed", type=int, nargs="+", default=[1])
    return parser.parse_args()


if __name__ == "__main__":
    main()
