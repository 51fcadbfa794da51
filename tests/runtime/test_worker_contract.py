"""What a link may expect of every worker: of a process here, of one on a node, and of a rehearsed one."""

import struct
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from serving.profile.curve import Point, Profile
from serving.profile.files.store import ProfileStore
from serving.runtime.clocks.clock import now_us
from serving.runtime.workers.contract import Workers
from serving.runtime.workers.link import Link
from serving.runtime.workers.supervisor import Supervisor
from serving.values.slice_specs import Share, SliceSpec
from serving.values.specs import ModelSpec
from serving.worker.frames.batches import BatchInput
from serving.worker.frames.orders import MeasureOrder
from serving.worker.frames.wire import INLINE_BYTES_MAX
from tests.runtime.nodes.estate import estate
from tests.runtime.recorder import PATIENCE_S, Recorder, be_patient, model_spec, write_model

pytestmark = [pytest.mark.live, pytest.mark.slow]

KIND, SHARE = "gpu-nvidia-h200", Share.parse("mps:30")
SPECS = {
    "real": SliceSpec("s", (0,)),
    "rehearsed": SliceSpec("s", (), device="h", part=SHARE, kind=KIND, rehearsed=True),
    "far": SliceSpec("s", (0,), node="n"),
}


@dataclass(frozen=True, slots=True)
class Worker:
    """A worker that is ready, with a model that echoes, of the variant "only"."""

    workers: Workers
    heard: Recorder
    link: Link
    model: ModelSpec

    async def load(self, replica: int = 1) -> None:
        self.link.load(replica, self.model, "only")
        assert (await self.heard.hear("loaded"))[0] == replica

    def run(self, batch: int, rows: int = 1, width: int = 1) -> None:
        self.link.run(batch, 1, rows, [BatchInput("FP32", (width,), [bytes(4 * width * rows)])], ())


@pytest.fixture(params=SPECS)
async def worker(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> AsyncIterator[Worker]:
    monkeypatch.setattr("serving.runtime.workers.ends.KILLED_WAIT_S", PATIENCE_S)
    heard, store = Recorder(), ProfileStore(tmp_path / "profiles")
    points = Point(0, 1, 2000, 2000, 1), Point(0, 8, 4000, 4000, 1)
    store.write(Profile("m", "only", KIND, points, share=SHARE))
    folder = write_model(tmp_path / "m", "return {'Y': inputs['X']}")
    spec = SPECS[request.param]
    async with AsyncExitStack() as beside:
        workers: Workers = Supervisor(heard, profiles=store.folder)
        if spec.node:
            place = await beside.enter_async_context(estate(heard, tmp_path))
            place.node(spec.node)
            await place.joined(spec.node)
            workers = place.far
        await workers.start(spec)
        await heard.hear("ready")
        yield Worker(workers, heard, heard.links[0], model_spec(folder, {"X": "FP32"}, {"Y": "FP32"}))
        await workers.stop(0)
        assert heard.links[0].ended.is_set()


async def test_it_says_who_it_is_and_on_what_it_runs(worker: Worker) -> None:
    assert worker.link.pid > 0
    assert "python" in worker.link.versions


async def test_batches_are_answered_in_order_with_their_rows_and_times(worker: Worker) -> None:
    await worker.load()
    for batch in (1, 2, 3):
        worker.run(batch, rows=batch)
    ended_us = 0
    for batch in (1, 2, 3):
        result = await worker.heard.hear_result()
        assert (result.batch_id, result.rows) == (batch, batch)
        assert bytes(result.outputs[0].rows(0, batch)) == bytes(4 * batch)
        assert result.compute_us > 0
        assert ended_us < result.ended_us <= now_us()
        ended_us = result.ended_us


@pytest.mark.parametrize("width", [INLINE_BYTES_MAX // 8, INLINE_BYTES_MAX, 4 * INLINE_BYTES_MAX])
async def test_payloads_of_any_size_go_and_come(worker: Worker, width: int) -> None:
    await worker.load()
    worker.run(1, rows=2, width=width)
    result = await worker.heard.hear_result()
    assert result.outputs[0].dims == (width,)
    assert bytes(result.outputs[0].rows(0, 2)) == bytes(8 * width)


async def test_an_unload_is_told_once_after_the_batches_before_it(worker: Worker) -> None:
    await worker.load()
    worker.run(1)
    worker.link.unload(1)
    worker.link.unload(1)
    await worker.heard.hear_result()
    assert await worker.heard.hear("unloaded") == (1,)
    await worker.load(2)


async def test_a_measurement_has_at_least_one_and_at_most_the_runs_that_were_asked_for(
    worker: Worker,
) -> None:
    await worker.load()
    for repeats, budget_us in ((4, 10_000_000), (4, 1)):
        worker.link.measure(MeasureOrder(1, 1, 0, repeats, budget_us))
        replica, rows, size, found = await worker.heard.hear("measured")
        assert (replica, rows, size) == (1, 1, 0)
        assert isinstance(found, list)
        assert len(found) == (repeats if budget_us > 1 else 1)


async def test_a_closed_worker_answers_what_it_has_and_exits(worker: Worker) -> None:
    await worker.load()
    worker.run(1)
    worker.link.close()
    await worker.heard.hear_result()
    assert await worker.heard.hear_lost() == "exited with 0"


async def test_a_killed_worker_is_lost_once_with_the_reason(worker: Worker) -> None:
    be_patient(worker.link)
    worker.workers.kill("s", "was ended: a test says so")
    assert await worker.heard.hear_lost() == "was ended: a test says so"


async def test_garbage_of_the_gateway_ends_it(worker: Worker) -> None:
    assert worker.link._transport is not None
    worker.link._transport.write(struct.pack("<40s", b"garbage"))
    assert await worker.heard.hear_lost() == "exited with 2"
