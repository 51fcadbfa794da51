"""Traces as Triton writes them: a JSON array of a model, and the instants of its request, by the same `id`
(https://github.com/triton-inference-server/server/blob/main/docs/user_guide/trace.md)."""

import os
from collections.abc import Iterator
from pathlib import Path

import orjson

from router.observing.telemetry.counting.journal import Entry
from serving.values.versions import model_of

Event = dict[str, object]


class TraceFile:
    """A file that is a whole array after each write, and open only then: with `log_frequency` there may be
    thousands. OSError where it cannot be written."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._empty = True
        path.write_bytes(b"[]")

    def write(self, events: list[Event]) -> None:
        """Add these events."""
        text = b",\n".join(orjson.dumps(each) for each in events)
        with self._path.open("r+b") as file:
            file.seek(-1, os.SEEK_END)
            file.write((b"\n" if self._empty else b",\n") + text + b"]")
        self._empty = False


def events_of(entry: Entry, version: str, number: int, epoch_us: int) -> list[Event]:
    """Return what a trace file says of a request. `version`: of its model; `number`: the trace's id."""
    model: Event = {"id": number, "model_name": model_of(entry.model), "model_version": int(version)}
    if entry.name:
        model["request_id"] = entry.name
    times = [{"name": name, "ns": (epoch_us + at_us) * 1000} for name, at_us in _instants(entry)]
    return [model, {"id": number, "timestamps": times}]


def _instants(entry: Entry) -> Iterator[tuple[str, int]]:
    begun_us, ended_us = entry.arrived_us, entry.arrived_us + entry.latency_us
    yield "REQUEST_START", begun_us
    yield "QUEUE_START", begun_us
    if entry.compute_us:
        started_us = begun_us + entry.queue_us + entry.batch_us
        yield "COMPUTE_START", started_us
        yield "COMPUTE_INPUT_END", started_us + entry.input_us
        yield "COMPUTE_OUTPUT_START", started_us + entry.input_us + entry.compute_us
        yield "COMPUTE_END", min(started_us + entry.input_us + entry.compute_us + entry.output_us, ended_us)
    yield "INFER_RESPONSE_COMPLETE", ended_us
    yield "REQUEST_END", ended_us
