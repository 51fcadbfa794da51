"""Jobs in place of a plan: each waits at a pipe, until the test has looked at what goes on."""

import json
import os
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

from router.verbs.place.live.advising import Advice, AdviceTask

SLICES = {"cpu-a": ["digits", "minilm"]}
BODY = {
    "slices": [{"name": "cpu-a", "cores": 1, "threads": 1}],
    "models": {"digits": {"slices": ["cpu-a"]}, "minilm": {"slices": ["cpu-a"]}},
}


def wait_and_advise(asked: AdviceTask) -> Iterator[Advice | str]:
    """Advise what the pipe says: a plan, one that breaks a promise, or a sentence."""
    lost = ",".join(asked.outages.lost)
    said = pipe(asked.settings.path.parent, asked.reason, lost).read_text()
    match said:
        case "plan":
            content = json.dumps(BODY).encode()
            yield Advice(
                asked.reason, f"without {lost}", content, SLICES, {"digits": 1.0}, (), f"at {asked.door}"
            )
        case "broken":
            yield Advice(asked.reason, "", b"{}", {}, {"digits": 0.5}, ("digits is late",), "")
        case "error":
            raise RuntimeError("the job broke")
        case _:
            yield said


def pipe(home: Path, reason: str, lost: str = "") -> Path:
    """Return the pipe at which the job for that reason and those losses waits."""
    found = home / f"{reason} {lost}"
    with suppress(FileExistsError):
        os.mkfifo(found)
    return found
