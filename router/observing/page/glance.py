"""A status as the page takes it: named parts, so that only those that changed are sent again."""

from collections.abc import Mapping, Sequence
from typing import Final, NotRequired, TypedDict

import orjson

from router.logs.events import Event
from router.observing.reasons import ENDINGS
from router.observing.status.attention import attention
from router.observing.status.document import ModelStatus, Status

MODEL: Final = "model/"
"""The start of the name of a model's part."""
WHOLE: Final = (
    "slices", "gpus", "nodes", "cells", "move", "edges", "rates", "tls", "proposal", "rollouts", "shifts",
    "tenants"
)  # fmt: skip
"""Parts that are parts of the status as they are."""

_WORDS: Final = orjson.dumps({str(code): words for code, words in ENDINGS.items()})
"""What each ending means, for a page that shows its code."""

Parts = dict[str, bytes]


class ModelGlance(TypedDict):
    """The part of a model: figures as in `ModelStatus` and its counters. `replicas`: (ready, all)."""

    name: str
    ready: bool
    slo_us: int
    objective: float | None
    variant: str
    replicas: tuple[int, int]
    slices: list[str]
    queue_rows: int
    requests: int
    completed: int
    offered: int
    good: int
    rows: int
    goodput_rows: int
    batches: int
    batch_rows: int
    burn: dict[str, float]
    missed: dict[str, int]
    answers: dict[str, int]
    latency_counts: list[int]
    scaling: str
    version: NotRequired[int]  # of a model with versions


def parts_of(status: Status, unix_s: float, missed: Mapping[str, Mapping[str, int]]) -> Parts:
    """Return the parts by name, each as JSON. `missed`: as `attention` takes it."""
    gateway = {
        "ready": status["ready"],
        "uptime_s": status["uptime_s"],
        "open_requests": status["open_requests"],
        "unix_s": unix_s,
        "bounds_us": status["models"][0]["counters"]["latency_bounds_us"] if status["models"] else [],
    }
    parts = {
        "words": _WORDS,
        "gateway": orjson.dumps(gateway),
        "attention": orjson.dumps(attention(status, missed)),
    }
    for name in WHOLE:
        if name in status:
            parts[name] = orjson.dumps(status[name])
    for model in status["models"]:
        parts[f"{MODEL}{model['name']}"] = orjson.dumps(model_glance(model))
    return parts


def model_glance(model: ModelStatus) -> ModelGlance:
    """Return a model's part."""
    counters, replicas = model["counters"], model["replicas"]
    answers: dict[str, int] = {}
    for by_variant in counters["answers"].values():
        for variant, count in by_variant.items():
            answers[variant] = answers.get(variant, 0) + count
    scaling = model.get("scaling")
    glance: ModelGlance = {
        "name": model["name"],
        "ready": model["ready"],
        "slo_us": model["slo_us"],
        "objective": model.get("objective"),
        "variant": model["answering_variant"],
        "replicas": (sum(each["state"] == "ready" for each in replicas), len(replicas)),
        "slices": sorted({each["slice"] for each in replicas}),
        "queue_rows": model["queue_rows"],
        "requests": counters["requests"],
        "completed": counters["completed"],
        "offered": counters["offered"],
        "good": counters["good"],
        "rows": counters["rows"],
        "goodput_rows": counters["goodput_rows"],
        "batches": counters["batches"],
        "batch_rows": counters["batch_rows"],
        "burn": counters["burn"],
        "missed": counters["missed"],
        "answers": answers,
        "latency_counts": counters["latency_counts"],
        "scaling": scaling["why"] if scaling is not None else "",
    }
    if "version" in model:
        glance["version"] = model["version"]
    return glance


def message(number: int, parts: Parts, gone: Sequence[str], events: Sequence[Event], whole: bool) -> bytes:
    """Return a server-sent event (WHATWG HTML, 9.2.6): what a page is to put in place of what it has."""
    inner = b",".join(b"%b:%b" % (orjson.dumps(name), part) for name, part in parts.items())
    rest = orjson.dumps({"gone": list(gone), "events": list(events), "whole": whole})
    return b'id: %d\ndata: {"parts":{%b},%b\n\n' % (number, inner, rest[1:])
