"""An open loop of requests to a gateway: each goes out when it is due, and is counted as it ends."""

import http.client
import json
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field

THREADS = 64
PATIENCE_S = 60.0
BODY = json.dumps(
    {
        "inputs": [
            {"name": name, "datatype": "INT32", "shape": [1, 16], "data": [*range(16)]}
            for name in ("INPUT0", "INPUT1")
        ]
    }
)
DOUBLED = [2 * number for number in range(16)]


@dataclass
class Tally:
    """How the requests ended: by HTTP status, "wrong" for a wrong answer, the error where none came."""

    asked: int = 0
    ended: Counter[str] = field(default_factory=Counter)

    @property
    def answered(self) -> int:
        """Requests that got the right answer."""
        return self.ended["200"]


@contextmanager
def asked(address: str, models: Sequence[str], per_second: float = 25.0) -> Iterator[Tally]:
    """Ask models that double numbers, in turns, until the end; then all answers have come."""
    tally, stop, lock = Tally(), threading.Event(), threading.Lock()

    def ask(model: str) -> None:
        how = _ask(address, model)
        with lock:
            tally.ended[how] += 1

    def play(pool: ThreadPoolExecutor) -> None:
        begun = time.monotonic()
        while not stop.wait(max(begun + tally.asked / per_second - time.monotonic(), 0)):
            pool.submit(ask, models[tally.asked % len(models)])
            tally.asked += 1

    with ThreadPoolExecutor(THREADS) as pool:
        player = threading.Thread(target=play, args=(pool,))
        player.start()
        try:
            yield tally
        finally:
            stop.set()
            player.join()


def _ask(address: str, model: str) -> str:
    connection = http.client.HTTPConnection(address, timeout=PATIENCE_S)
    try:
        connection.request("POST", f"/v2/models/{model}/infer", BODY)
        response = connection.getresponse()
        body = response.read()
    except OSError as error:
        return repr(error)
    finally:
        connection.close()
    if response.status != 200:
        return str(response.status)
    outputs = {each["name"]: each["data"] for each in json.loads(body)["outputs"]}
    return "200" if outputs["OUTPUT0"] == DOUBLED else "wrong"
