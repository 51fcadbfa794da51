"""Promises of rehearsed workers: the wire of real ones, the times of their profiles, and ends that are told.

They are driven through the supervisor and the links of the gateway, as real workers are.
"""

import asyncio
import os
import signal
import struct
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path

import pytest

from serving.profile.curve import Point, Profile
from serving.profile.files.store import ProfileStore
from serving.runtime.workers.link import Link
from serving.runtime.workers.supervisor import Supervisor
from serving.values.rehearsal import RehearsalSpec
from serving.values.slice_specs import Share, SliceSpec
from serving.values.specs import Guard, ModelSpec, SizeHint, TensorSpec
from serving.values.tensor import DATATYPES, ITEM_BYTES
from serving.worker.frames.batches import BatchInput
from serving.worker.frames.orders import MeasureOrder
from serving.worker.frames.wire import INLINE_BYTES_MAX
from tests.runtime.recorder import Recorder, model_spec

pytestmark = [pytest.mark.live, pytest.mark.slow]

KIND, SHARE = "gpu-nvidia-h200", Share.parse("mig:2g.35gb")
SLICE = SliceSpec("g-1", (), device="h-1", part=SHARE, kind=KIND, rehearsed=True)
ROW_US, LOAD_US = 20_000, 30_000


def profile(model: str = "m", share: Share = SHARE, sizes: tuple[int, ...] = (0,)) -> Profile:
    """20 ms for a row, 40 ms for four; each further size takes as much again."""
    points = tuple(
        Point(size, rows, place * us, place * us, 1)
        for place, size in enumerate(sizes, start=1)
        for rows, us in ((1, ROW_US), (4, 2 * ROW_US))
    )
    return Profile(model, "only", KIND, points, LOAD_US, 1 << 20, share=share)


class Stage:
    """Rehearsed workers, and what is heard of them."""

    def __init__(self, folder: Path) -> None:
        self.heard = Recorder()
        self.store = ProfileStore(folder)
        self.store.write(profile())
        self.supervisor = Supervisor(self.heard, profiles=folder)

    async def start(self, spec: SliceSpec = SLICE) -> Link:
        await self.supervisor.start(spec)
        await self.heard.hear("ready")
        return self.heard.links[-1]

    async def load(self, link: Link, model: ModelSpec, replica: int = 1) -> None:
        link.load(replica, model, model.default_variant)
        assert await self.heard.hear("loaded") == (replica, LOAD_US, 1 << 20)


@pytest.fixture
async def stage(tmp_path: Path) -> AsyncIterator[Stage]:
    stage = Stage(tmp_path / "profiles")
    yield stage
    await stage.supervisor.stop(0)
    assert all(link.ended.is_set() for link in stage.heard.links)
    for link in stage.heard.links:
        with pytest.raises(ProcessLookupError):
            os.kill(link.pid, 0)


@pytest.fixture
def model() -> ModelSpec:
    return model_spec(Path("m"), {"X": "FP32"}, {"Y": "FP32"})


def fp32(*rows: float) -> list[BatchInput]:
    return [BatchInput("FP32", (1,), [struct.pack("<f", row) for row in rows])]


async def test_a_batch_takes_what_the_profile_says_and_the_next_begins_when_it_ends(
    stage: Stage, model: ModelSpec
) -> None:
    link = await stage.start()
    assert link.versions["rehearsed"] == "gpu-nvidia-h200 mig:2g.35gb"
    await stage.load(link, model)
    link.run(1, 1, 1, fp32(1), ())
    link.run(2, 1, 4, fp32(1, 2, 3, 4), ())
    first, second = await stage.heard.hear_result(), await stage.heard.hear_result()
    assert (first.batch_id, first.rows, first.compute_us) == (1, 1, ROW_US)
    assert (second.batch_id, second.rows, second.compute_us) == (2, 4, 2 * ROW_US)
    assert second.ended_us - first.ended_us == 2 * ROW_US
    assert second.outputs[0].rows(0, 4) == bytes(16)


@pytest.mark.parametrize("datatype", DATATYPES)
async def test_answers_of_every_datatype_have_the_declared_shapes_inline_and_shared(
    stage: Stage, datatype: str
) -> None:
    model = model_spec(Path("m"), {"X": "FP32"}, {"Y": datatype})
    link = await stage.start()
    await stage.load(link, model)
    item = ITEM_BYTES[datatype] or 4
    for batch, width in ((1, 3), (2, INLINE_BYTES_MAX)):
        link.run(batch, 1, 2, [BatchInput("FP32", (width,), [bytes(8 * width)])], ())
        result = await stage.heard.hear_result()
        assert (result.outputs[0].datatype, result.outputs[0].dims) == (datatype, (width,))
        assert bytes(result.outputs[0].rows(0, 2)) == bytes(2 * width * item)


async def test_an_answer_holds_what_its_guard_takes(stage: Stage, model: ModelSpec) -> None:
    guarded = replace(model, outputs=(TensorSpec("Y", "FP32", (-1, 2), Guard(least=1, most=3)),))
    link = await stage.start()
    await stage.load(link, guarded)
    link.run(1, 1, 1, fp32(1), ())
    result = await stage.heard.hear_result()
    assert struct.unpack("<2f", result.outputs[0].rows(0, 1)) == (2.0, 2.0)
    assert not result.refused


@pytest.mark.parametrize(("text", "times"), [(b"a" * 9, 1), (b"a" * 80, 2)])
async def test_a_batch_takes_as_long_as_the_size_of_its_longest_row(
    stage: Stage, text: bytes, times: int
) -> None:
    stage.store.write(profile("t", sizes=(16, 128)))
    model = replace(
        model_spec(Path("t"), {"X": "BYTES"}, {"Y": "FP32"}), size_hint=SizeHint("X", (16, 128), "text")
    )
    link = await stage.start()
    await stage.load(link, model)
    element = struct.pack("<I", len(text)) + text
    link.run(1, 1, 1, [BatchInput("BYTES", (1,), [element])], ())
    took_us = (await stage.heard.hear_result()).compute_us
    assert ROW_US * (times - 1) < took_us <= ROW_US * times


async def test_what_no_profile_tells_cannot_be_loaded_and_the_sentence_says_how(
    stage: Stage, model: ModelSpec
) -> None:
    link = await stage.start(replace(SLICE, part=Share.parse("mig:7g.141gb")))
    link.load(1, model, "only")
    replica, message = await stage.heard.hear("replica_failed")
    assert replica == 1
    assert "mig:7g.141gb of gpu-nvidia-h200" in str(message)
    assert "penstock profile --import" in str(message)
    stage.store.write(profile(share=Share.parse("mig:7g.141gb")))
    await stage.load(link, model, 2)  # it is read anew


async def test_a_measurement_repeats_the_profile_and_an_unload_comes_after_batches(
    stage: Stage, model: ModelSpec
) -> None:
    link = await stage.start()
    await stage.load(link, model)
    link.measure(MeasureOrder(1, 1, 0, 5, 3 * ROW_US))
    assert await stage.heard.hear("measured") == (1, 1, 0, [ROW_US] * 3)
    link.run(1, 1, 1, fp32(1), ())
    link.unload(1)
    await stage.heard.hear_result()
    assert await stage.heard.hear("unloaded") == (1,)


async def test_a_closed_worker_answers_before_it_ends_and_a_killed_one_ends_alone(
    stage: Stage, model: ModelSpec
) -> None:
    link, other = await stage.start(), await stage.start(replace(SLICE, name="g-2"))
    assert link.pid == other.pid
    for each in (link, other):
        await stage.load(each, model)
    link.run(1, 1, 1, fp32(1), ())
    link.close()
    await stage.heard.hear_result()
    assert await stage.heard.hear_lost() == "exited with 0"
    other.run(2, 1, 1, fp32(1), ())
    stage.supervisor.kill("g-2", "was ended: a test says so")
    assert await stage.heard.hear_lost() == "was ended: a test says so"
    again = await stage.start()
    assert again.pid == link.pid


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
async def test_a_host_that_dies_or_hangs_takes_all_its_workers_and_the_next_start_brings_another(
    stage: Stage, model: ModelSpec, how: signal.Signals
) -> None:
    links = [await stage.start(replace(SLICE, name=f"g-{number}")) for number in range(3)]
    os.kill(links[0].pid, how)
    if how is signal.SIGSTOP:
        stage.supervisor.kill("g-1", "was ended: it hangs")
    reasons = {str((await stage.heard.hear("lost"))[1]) for _ in links}
    lost = "was lost: the process of the rehearsed slices was killed by SIGKILL"
    assert reasons == ({lost, "was ended: it hangs"} if how is signal.SIGSTOP else {lost})
    link = await stage.start()
    assert link.pid != links[0].pid
    await stage.load(link, model)


async def test_a_worker_is_lost_as_its_rehearsal_says(stage: Stage) -> None:
    rehearsal = RehearsalSpec(crash_every_s=0.2, seed=3)
    spec = replace(SLICE, rehearsal=rehearsal)
    await stage.start(spec)
    assert await stage.heard.hear_lost() == "was lost, as its rehearsal says"
    await stage.start(spec)
    assert await stage.heard.hear_lost() == "was lost, as its rehearsal says"


async def test_many_slices_share_one_process_and_one_thread(stage: Stage) -> None:
    names = [f"g-{number}" for number in range(56)]
    await asyncio.gather(*(stage.supervisor.start(replace(SLICE, name=name)) for name in names))
    for _ in names:
        await stage.heard.hear("ready")
    pids = {link.pid for link in stage.heard.links}
    assert len(pids) == 1
    assert len(os.listdir(f"/proc/{pids.pop()}/task")) == 1
