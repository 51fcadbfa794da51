"""What `penstock explain --request` shows of a request, for each way in which one may end."""

from router.observing.requests.body import BatchBody, MateBody, RequestBody
from router.observing.requests.words import request_lines, table
from tests.goldens.conftest import Golden

MATES = [MateBody(number=at, name=f"mate-{at}" if at % 2 else "", rows=1) for at in range(1, 13)]
BATCH = BatchBody(
    slice="cpu-1", variant="cnn", rows=14, requests=12, started_ms=20.0, predicted_ms=12.0, typical_ms=10.0,
    elapsed_ms=13.0, compute_ms=11.0, mates=MATES,
)  # fmt: skip
WELL = RequestBody(
    number=2, name="", model="digits", tenant="default", tier="", rows=1, size=0,
    arrived_unix_s=1_790_000_000.25, due_ms=50.0, latency_ms=34.0, in_time=True, ending="ok", detail="",
    variant="cnn", may_answer=["cnn", "linear"], downgrade="", cache="", queue_ms=15.0, fill_ms=5.0,
    input_ms=0.5, compute_ms=11.0, output_ms=0.02, batch=BATCH, latest_batch=None,
)  # fmt: skip


def late(**changed: object) -> RequestBody:
    """An answer that came too late."""
    return {**WELL, "in_time": False, "ending": "late", "latency_ms": 61.0, **changed}  # type: ignore[typeddict-item]


def refused(ending: str, **changed: object) -> RequestBody:
    """A request that had no batch."""
    left = {"in_time": False, "ending": ending, "variant": "", "batch": None, "queue_ms": 0.0, "fill_ms": 0.0}
    return {**WELL, **left, "compute_ms": 0.0, "input_ms": 0.0, "output_ms": 0.0, **changed}  # type: ignore[typeddict-item]


REQUESTS: dict[str, RequestBody] = {
    "in time": WELL,
    "by a lesser variant, of a tier": {
        **WELL,
        "downgrade": "load",
        "tier": "gold",
        "name": "mine",
        "size": 40,
    },
    "a name that a terminal would obey": {**WELL, "name": "\x1b[2Jgone", "batch": None},
    "kept": {**WELL, "cache": "hit", "batch": None, "compute_ms": 0.0},
    "late in the queue": late(queue_ms=40.0),
    "late as its batch was disturbed": late(batch={**BATCH, "elapsed_ms": 40.0}),
    "given up": refused("deadline_unmet", queue_ms=45.0, latency_ms=45.0, latest_batch=BATCH),
    "refused at once": refused("overload", latency_ms=0.1, latest_batch=BATCH),
    "with a mate's name that a terminal would obey": {
        **WELL,
        "batch": {**BATCH, "mates": [MateBody(number=9, name="\x1b[2Jmate", rows=1)]},
    },
    "its input was bad": refused("bad_input", batch=BATCH, detail="no picture"),
    "its client left": refused("client_gone", latest_batch=BATCH),
    "no batch before": refused("no_replica", latency_ms=0.1),
    "over its rate": refused("rate_limited", latency_ms=0.1),
    "the model raised": refused("model_error", batch=BATCH, detail="ValueError: no digit (model.py:7)"),
}


def test_requests(golden: Golden) -> None:
    listed = table([each for each in REQUESTS.values() if not each["in_time"]])
    scenes = {name: "\n".join(request_lines(each)) for name, each in REQUESTS.items()}
    golden("requests", {**scenes, "a list": "\n".join(listed), "an empty list": "\n".join(table([]))})
