"""Decoupled models over a real worker: answers as they come, one end for each request, whatever happens."""

import asyncio
import os
import signal
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from serving.ports import Call, Reply
from serving.values.specs import Limits
from serving.values.tensor import Tensor
from serving.values.vocabulary import (
    CLIENT_GONE,
    COMPLETED,
    DEADLINE_RUNNING,
    MODEL_ERROR,
    WORKER_LOST,
)
from tests.runtime.house import MODELS, House, house, until

pytestmark = pytest.mark.live

PATIENT_US = 20_000_000
"""An SLO that no stall of the machine uses up."""

BREAKING = """\
import numpy as np

class Model:
    def stream(self, inputs, parameters):
        for row, text in enumerate(inputs["IN"][:, 0]):
            yield row, {"OUT": inputs["IN"][row:row + 1]}
        for row, text in enumerate(inputs["IN"][:, 0]):
            if text == b"raise":
                raise ValueError("as it was asked")
            if text == b"shape":
                yield row, {"OUT": inputs["IN"][row]}
            yield row, None

    def sample(self, rows, size):
        return {"IN": np.full((rows, 1), b"x", object)}

def load(artifact, options):
    return Model()
"""
BREAKING_YAML = """\
name: breaking
inputs: [{name: IN, datatype: BYTES, shape: [-1, 1]}]
outputs: [{name: OUT, datatype: BYTES, shape: [-1, 1]}]
batch_max: 4
slo_ms: 1000
decoupled: true
"""


class Asked:
    """A call of `repeat`, its answers so far and its end."""

    def __init__(self, here: House, numbers: list[int], delay_ms: int = 0) -> None:
        count = len(numbers)
        call = Call(here.gateway.models["repeat"], [], 1)
        call.inputs = [
            Tensor("IN", "INT32", (1, count), np.array(numbers, np.int32).tobytes()),
            Tensor("DELAY", "UINT32", (1, count), np.full(count, delay_ms, np.uint32).tobytes()),
            Tensor("WAIT", "UINT32", (1, 1), bytes(4)),
        ]
        self.answers: list[tuple[int, int]] = []
        self.ends: list[Reply] = []
        call.on_answer = self._take
        self.call = call
        self.id = 0

    def _take(self, outputs: Sequence[Tensor], _version: int) -> None:
        out, index = outputs
        self.answers.append(
            (int(np.frombuffer(out.data, "<i4")[0]), int(np.frombuffer(index.data, "<u4")[0]))
        )

    def submit(self, here: House) -> "Asked":
        self.id = here.gateway.submit(self.call, self.ends.append)
        return self

    async def end(self) -> Reply:
        await until(lambda: bool(self.ends))
        await asyncio.sleep(0)
        (reply,) = self.ends
        return reply


async def test_requests_that_share_a_batch_get_each_its_own_answers(tmp_path: Path) -> None:
    async with house(tmp_path, models=(MODELS / "repeat",)) as here:
        asked = [Asked(here, [10 * n, 10 * n + 1, 10 * n + 2]).submit(here) for n in range(5)]
        none = Asked(here, []).submit(here)
        for number, each in enumerate(asked):
            assert (await each.end()).outcome is COMPLETED
            assert each.answers == [(10 * number + place, place) for place in range(3)]
        reply = await none.end()
        assert (reply.outcome, reply.outputs, none.answers) == (COMPLETED, (), [])
        kinds = [each.kind for each in here.tally.row_answers]
        assert (kinds.count("success"), kinds.count("empty_response")) == (15, 6)
        assert reply.compute_us > 0


async def test_a_client_that_leaves_stops_its_rows_and_no_other(tmp_path: Path) -> None:
    async with house(tmp_path, models=(MODELS / "repeat",)) as here:
        with here.stopped():  # so that they share a batch
            first = Asked(here, [0], 0).submit(here)
            here.dispatch()
            leaving, staying = (Asked(here, list(range(200)), 5).submit(here) for _ in range(2))
        await until(lambda: len(leaving.answers) > 1)
        here.gateway.cancel(leaving.id)
        assert (await leaving.end()).outcome is CLIENT_GONE
        had = len(leaving.answers)
        assert (await staying.end()).outcome is COMPLETED
        assert len(staying.answers) == 200
        assert len(leaving.answers) == had < 150
        assert (await first.end()).outcome is COMPLETED


async def test_the_last_client_that_leaves_ends_the_models_work(tmp_path: Path) -> None:
    async with house(tmp_path, models=(MODELS / "repeat",)) as here:
        asked = Asked(here, list(range(1000)), 20).submit(here)  # 20 s, if all of it was computed
        await until(lambda: len(asked.answers) > 1)
        here.gateway.cancel(asked.id)
        async with asyncio.timeout(15):
            assert (await Asked(here, [7]).submit(here).end()).outcome is COMPLETED


async def test_a_deadline_ends_a_request_on_time_with_what_it_had(tmp_path: Path) -> None:
    async with house(tmp_path, models=(MODELS / "repeat",)) as here:
        asked = Asked(here, list(range(1000)), 20)
        asked.call.timeout_us = 400_000
        assert (await asked.submit(here).end()).outcome is DEADLINE_RUNNING
        assert 0 < len(asked.answers) < 1000
        assert (await Asked(here, [7]).submit(here).end()).outcome is COMPLETED


async def test_a_killed_worker_ends_each_request_once_and_none_is_answered_twice(tmp_path: Path) -> None:
    async with house(tmp_path, models=(MODELS / "repeat",), slo_us=PATIENT_US) as here:
        asked = Asked(here, list(range(1000)), 20).submit(here)
        await until(lambda: len(asked.answers) > 2)
        pid = here.fleet.pid("s")
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        reply = await asked.end()
        assert reply.outcome is WORKER_LOST
        assert "the worker of slice s" in reply.detail
        assert asked.answers == [(place, place) for place in range(len(asked.answers))]
        await here.until(lambda: here.gateway.model_ready("repeat"))
        assert (await Asked(here, [7]).submit(here).end()).outcome is COMPLETED
        assert len(asked.ends) == 1


async def test_a_stream_that_is_longer_than_any_profile_says_is_no_stalled_batch(tmp_path: Path) -> None:
    async with house(tmp_path, models=(MODELS / "repeat",), limits=Limits(stall_us=500_000)) as here:
        asked = Asked(here, list(range(15)), 100).submit(here)
        assert (await asked.end()).outcome is COMPLETED
        assert len(asked.answers) == 15


async def test_a_model_that_raises_fails_the_requests_that_have_not_ended(tmp_path: Path) -> None:
    folder = tmp_path / "breaking"
    folder.mkdir()
    (folder / "model.py").write_text(BREAKING)
    (folder / "model.yaml").write_text(BREAKING_YAML)
    async with house(tmp_path, models=(folder,)) as here:
        for text, part in ((b"raise", "ValueError: as it was asked"), (b"shape", "has shape [1]")):
            data = len(text).to_bytes(4, "little") + text
            call = Call(here.gateway.models["breaking"], [Tensor("IN", "BYTES", (1, 1), data)], 1)
            answers: list[object] = []
            call.on_answer = lambda outputs, _version, there=answers: there.append(outputs)
            _, future = here.submit(call)
            reply = await future
            assert (reply.outcome, len(answers)) == (MODEL_ERROR, 1)  # it had one before: no second try
            assert part in reply.detail
