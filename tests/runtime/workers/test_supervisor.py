"""Promises of real worker processes: they answer, fail alone, die noticed, and never outlive the gateway."""

import asyncio
import os
import select
import signal
import struct
import sys
import time
from collections.abc import AsyncIterator
from pathlib import Path

import numpy as np
import pytest

from serving.runtime.workers import ends
from serving.runtime.workers.link import Link
from serving.runtime.workers.supervisor import Supervisor
from serving.values.slice_specs import SliceSpec
from serving.values.specs import ModelSpec, TensorSpec, VariantSpec
from serving.values.tensor import ANY, DATATYPES, ITEM_BYTES
from serving.worker.frames.batches import BatchInput
from serving.worker.frames.orders import MeasureOrder
from serving.worker.frames.wire import INLINE_BYTES_MAX
from tests.runtime.dying import dying_gateway
from tests.runtime.recorder import PATIENCE_S, Recorder, be_patient, model_spec, write_model

pytestmark = [pytest.mark.live, pytest.mark.slow]

ECHO = "return {'Y': inputs['X']}"
SAMPLES = Path(__file__).resolve().parents[3] / "models"


class Crew:
    """One worker and what is heard of it."""

    def __init__(self) -> None:
        self.heard = Recorder()
        self.supervisor = Supervisor(self.heard)
        self.link: Link

    async def load(self, model: ModelSpec, replica: int = 1) -> None:
        self.link.load(replica, model, model.default_variant)
        await self.heard.hear("loaded")


@pytest.fixture
async def crew(monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Crew]:
    monkeypatch.setattr(ends, "KILLED_WAIT_S", PATIENCE_S)
    crew = Crew()
    await crew.supervisor.start(SliceSpec("s", (0,)))
    await crew.heard.hear("ready")
    crew.link = crew.heard.links[0]
    yield crew
    await crew.supervisor.stop(0)
    assert crew.link.ended.is_set()
    with pytest.raises(ProcessLookupError):  # reaped: not even a zombie is left
        os.kill(crew.link.pid, 0)


def fp32(*rows: float) -> list[BatchInput]:
    return [BatchInput("FP32", (1,), [struct.pack("<f", row) for row in rows])]


async def test_a_batch_is_answered_with_the_models_own_time_size_and_parameters(
    crew: Crew, tmp_path: Path
) -> None:
    predict = "time.sleep(parameters['ms'] / 1e3); return {'Y': inputs['X'] * self.options['factor']}"
    folder = write_model(tmp_path / "m", f"parameters.setdefault('ms', 0); {predict}")
    await crew.load(model_spec(folder, {"X": "FP32"}, {"Y": "FP32"}))
    os.kill(crew.link.pid, signal.SIGINT)  # Ctrl-C is the gateway's to hear
    started = time.monotonic_ns()
    crew.link.run(7, 1, 3, fp32(1, 2, 3), (("ms", 20),))
    result = await crew.heard.hear_result()
    took_us = (time.monotonic_ns() - started) / 1000
    assert (result.batch_id, result.rows, result.size) == (7, 3, 7)
    assert np.frombuffer(result.outputs[0].rows(1, 2), "<f4").tolist() == [6, 9]
    assert 20_000 <= result.compute_us <= took_us


async def test_a_model_that_raises_fails_its_batch_alone(crew: Crew, tmp_path: Path) -> None:
    for number, predict in enumerate(
        ("raise ValueError('too\\nodd')", "raise SystemExit(3)", "return 1", ECHO)
    ):
        guarded = f"if parameters: {predict}\n        {ECHO}"
        folder = write_model(tmp_path / f"m{number}", guarded)
        await crew.load(model_spec(folder, {"X": "FP32"}, {"Y": "FP32"}), number)
    for number in range(4):
        crew.link.run(number, number, 1, fp32(1), (("odd", True),))
    said = [await crew.heard.hear("failed") for _ in range(3)]
    assert said == [
        (0, "ValueError: too odd (model.py:7)"),
        (1, "SystemExit: 3 (model.py:7)"),
        (2, "predict returned int, expected a dict of arrays"),
    ]
    assert (await crew.heard.hear_result()).batch_id == 3


async def test_a_replica_that_cannot_load_or_measure_is_reported_and_the_others_stay(
    crew: Crew, tmp_path: Path
) -> None:
    good = model_spec(write_model(tmp_path / "good", ECHO), {"X": "FP32"}, {"Y": "FP32"})
    small = f"assert len(inputs['X']) < 3\n        {ECHO}"
    await crew.load(good)
    await crew.load(model_spec(write_model(tmp_path / "small", small), {"X": "FP32"}, {"Y": "FP32"}), 2)
    crew.link.load(3, model_spec(tmp_path / "none", {}, {}), "only")
    replica, message = await crew.heard.hear("replica_failed")
    assert replica == 3
    assert "none only could not be loaded: FileNotFoundError" in str(message)
    crew.link.measure(MeasureOrder(2, 2, 0, 3, 10**9))
    assert len((await crew.heard.hear("measured"))[3]) == 3  # type: ignore[arg-type]  # it is a list
    crew.link.measure(MeasureOrder(2, 3, 0, 3, 10**9))
    replica, message = await crew.heard.hear("replica_failed")
    assert replica == 2
    assert "small only failed on its sample of 3 rows of size 0: AssertionError" in str(message)
    crew.link.run(1, 1, 1, fp32(1), ())
    assert (await crew.heard.hear_result()).batch_id == 1


@pytest.mark.parametrize("inline_bytes_max", [INLINE_BYTES_MAX, 0])
async def test_every_datatype_passes_bit_for_bit_inline_and_shared(
    crew: Crew, tmp_path: Path, inline_bytes_max: int
) -> None:
    await crew.load(model_spec(write_model(tmp_path / "m", ECHO), {"X": ANY}, {"Y": ANY}))
    crew.link.inline_bytes_max = inline_bytes_max
    for number, datatype in enumerate(DATATYPES):
        if datatype == "BYTES":
            rows = [struct.pack("<I", size) + b"\xff" * size for size in (0, 3, 1000)]
        else:
            rows = [bytes([number % 2] * ITEM_BYTES[datatype]) for number in range(3)]
        crew.link.run(number, 1, 3, [BatchInput(datatype, (1,), rows)], ())
        (output,) = (await crew.heard.hear_result()).outputs
        assert (output.datatype, output.dims) == (datatype, (1,))
        assert [output.rows(row, 1) for row in range(3)] == rows


async def test_payloads_of_any_size_pass_with_many_buffers_and_several_batches_in_flight(
    crew: Crew, tmp_path: Path
) -> None:
    await crew.load(model_spec(write_model(tmp_path / "m", ECHO), {"X": ANY}, {"Y": ANY}))
    sizes = [INLINE_BYTES_MAX // 64 + 1, 1, INLINE_BYTES_MAX // 64, 300_000, 100_000]  # the largest: 19 MB

    def send(batch_id: int, size: int) -> bytes:
        rows = [bytes([(batch_id + row) % 256]) * size for row in range(64)]
        crew.link.run(batch_id, 1, 64, [BatchInput("UINT8", (size,), rows)], ())
        return b"".join(rows)

    sent = [send(number, size) for number, size in enumerate(sizes)]  # only the first finds the areas free
    for payload in sent:
        assert (await crew.heard.hear_result()).outputs[0].rows(0, 64) == payload
    for size in sizes:  # one at a time: large ones through shared memory, which grows
        payload = send(9, size)
        assert (await crew.heard.hear_result()).outputs[0].rows(0, 64) == payload


async def test_a_killed_worker_is_lost_once_and_says_how(crew: Crew, tmp_path: Path) -> None:
    await crew.load(model_spec(write_model(tmp_path / "m", ECHO), {"X": "FP32"}, {"Y": "FP32"}))
    os.kill(crew.link.pid, signal.SIGKILL)
    crew.link.run(1, 1, 1, fp32(1), ())
    assert await crew.heard.hear_lost() == "was killed by SIGKILL"


async def test_a_model_that_ends_the_process_is_a_lost_worker(crew: Crew, tmp_path: Path) -> None:
    folder = write_model(tmp_path / "m", f"if parameters: os._exit(9)\n        {ECHO}")
    await crew.load(model_spec(folder, {"X": "FP32"}, {"Y": "FP32"}))
    be_patient(crew.link)
    crew.link.run(1, 1, 1, fp32(1), (("die", 1),))
    assert await crew.heard.hear_lost() == "exited with 9"


@pytest.mark.parametrize("how", ["os._exit(9)", "os.kill(os.getpid(), 9)"])
async def test_what_a_model_has_started_ends_with_its_worker(crew: Crew, tmp_path: Path, how: str) -> None:
    held, ours = os.pipe()
    hold = f"os.open('/proc/{os.getpid()}/fd/{ours}', os.O_WRONLY)"
    fork = "os.fork() == 0 and __import__('time').sleep(600)"
    folder = write_model(tmp_path / "m", f"if parameters: {hold}; {fork}; {how}\n        {ECHO}")
    await crew.load(model_spec(folder, {"X": "FP32"}, {"Y": "FP32"}))
    be_patient(crew.link)
    crew.link.run(1, 1, 1, fp32(1), (("fork", 1),))
    await crew.heard.hear_lost()
    os.close(ours)
    # Its end comes once the last process that holds the pipe is gone.
    assert await asyncio.wait_for(asyncio.to_thread(os.read, held, 1), PATIENCE_S) == b""
    os.close(held)


async def test_a_model_that_writes_to_the_workers_socket_is_garbage_and_killed(
    crew: Crew, tmp_path: Path
) -> None:
    sockets = "[int(fd) for fd in os.listdir('.') if 'socket' in os.path.realpath(fd)]"
    spoil = f"os.chdir('/proc/self/fd'); [os.write(fd, b'x' * 99) for fd in {sockets}]"
    folder = write_model(tmp_path / "m", f"if parameters: {spoil}\n        {ECHO}")
    await crew.load(model_spec(folder, {"X": "FP32"}, {"Y": "FP32"}))
    crew.link.run(1, 1, 1, fp32(1), (("spoil", 1),))
    assert "a frame starts with b'xx'" in await crew.heard.hear_lost()


async def test_a_stopped_worker_blocks_nothing_and_can_be_killed(crew: Crew, tmp_path: Path) -> None:
    await crew.load(model_spec(write_model(tmp_path / "m", ECHO), {"X": ANY}, {"Y": ANY}))
    os.kill(crew.link.pid, signal.SIGSTOP)
    block = bytes(8 << 20)
    for batch_id in range(3):
        crew.link.run(batch_id, 1, 1, [BatchInput("UINT8", (len(block),), [block])], ())
    await asyncio.sleep(0)
    crew.link.kill()
    assert await crew.heard.hear_lost() == "was killed by SIGKILL"


async def test_a_closed_worker_finishes_its_batch_before_it_exits(crew: Crew, tmp_path: Path) -> None:
    folder = write_model(tmp_path / "m", f"time.sleep(0.1); {ECHO}")
    await crew.load(model_spec(folder, {"X": "FP32"}, {"Y": "FP32"}))
    be_patient(crew.link)
    crew.link.run(1, 1, 1, fp32(1), ())
    await crew.supervisor.stop(PATIENCE_S)
    assert (await crew.heard.hear_result()).batch_id == 1
    assert await crew.heard.hear_lost() == "exited with 0"
    await crew.supervisor.start(SliceSpec("late", ()))  # nothing starts after the end
    assert crew.heard.events.empty()


async def test_cores_that_are_not_there_end_the_worker_with_a_reason(
    capfd: pytest.CaptureFixture[str],
) -> None:
    heard = Recorder()
    supervisor = Supervisor(heard)
    await supervisor.start(SliceSpec("far", (0, 4000)))
    for link in supervisor._ends:
        assert isinstance(link, Link)
        be_patient(link)
    assert await heard.hear_lost() == "exited with 1"
    assert "slice far: the cores [4000] are not available here" in capfd.readouterr().err
    await supervisor.stop()


async def test_files_of_the_working_directory_are_no_modules_of_a_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("serving", "json", "numpy"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('not this one')")
    monkeypatch.chdir(tmp_path)
    heard = Recorder()
    supervisor = Supervisor(heard)
    await supervisor.start(SliceSpec("s", ()))
    await heard.hear("ready")
    await supervisor.stop()


async def test_a_worker_that_cannot_be_started_is_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/nowhere/python")
    heard = Recorder()
    await Supervisor(heard).start(SliceSpec("s", ()))
    assert "could not be started: [Errno 2] No such file" in await heard.hear_lost()


def test_a_worker_whose_gateway_dies_ends_even_in_the_middle_of_a_batch(tmp_path: Path) -> None:
    begun = tmp_path / "begun"
    stay = f"open({str(begun)!r}, 'w').close(); time.sleep(600)"
    folder = write_model(tmp_path / "m", f"if parameters: {stay}\n        {ECHO}")
    with dying_gateway(folder) as (_, worker):
        pidfd = os.pidfd_open(worker)
        end = time.monotonic() + PATIENCE_S
        while not begun.exists() and time.monotonic() < end:
            time.sleep(0.01)
        assert begun.exists()
    ended, _, _ = select.select([pidfd], [], [], PATIENCE_S)
    os.close(pidfd)
    assert ended


async def test_the_sample_models_answer(crew: Crew) -> None:
    int32 = {"datatype": "INT32", "shape": (-1, 16)}
    simple = ModelSpec(
        "simple", SAMPLES / "simple",
        tuple(TensorSpec(name, **int32) for name in ("INPUT0", "INPUT1")),  # type: ignore[arg-type]
        tuple(TensorSpec(name, **int32) for name in ("OUTPUT0", "OUTPUT1")),  # type: ignore[arg-type]
        (VariantSpec("only", None),), "only", 1, 8,
    )  # fmt: skip
    await crew.load(simple)
    first, second = np.arange(32, dtype="<i4"), np.full(32, 2, "<i4")
    inputs = [
        BatchInput("INT32", (16,), [array[:16].tobytes(), array[16:].tobytes()]) for array in (first, second)
    ]
    crew.link.run(1, 1, 2, inputs, ())
    outputs = (await crew.heard.hear_result()).outputs
    assert outputs[0].data == (first + second).tobytes()
    assert outputs[1].data == (first - second).tobytes()
