"""A worker is started with what its slice's actuator says, and a model is told the device it computes on."""

import asyncio
import os
import select
import signal
from pathlib import Path

import pytest

from serving.runtime.slicing.contract import Setting, SlicingError
from serving.runtime.slicing.opening import PreparedShares
from serving.runtime.slicing.timeslice import TimeSlices
from serving.runtime.workers.supervisor import Supervisor
from serving.values.slice_specs import SliceSpec
from tests.runtime.recorder import Recorder, model_spec, write_model

pytestmark = [pytest.mark.live, pytest.mark.slow]

TELL = """
told = (self.options.get('device'), os.environ.get('CUDA_VISIBLE_DEVICES'), os.environ.get('OMP_NUM_THREADS'))
        raise ValueError(repr((told, sorted(os.sched_getaffinity(0)))))
"""


async def told(supervisor: Supervisor, heard: Recorder, spec: SliceSpec, folder: Path) -> str:
    """What a model says of the worker that it finds itself in: where it failed to warm up."""
    await supervisor.start(spec)
    try:
        await heard.hear("ready")
        model = model_spec(write_model(folder, TELL.strip()), {"X": "FP32"}, {"Y": "FP32"})
        heard.links[0].load(1, model, "only")
        return str(await heard.hear("replica_failed"))
    finally:
        await supervisor.stop(0)


async def test_a_workers_process_has_its_share_and_its_model_the_device(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,4")
    core = min(os.sched_getaffinity(0))
    heard = Recorder()
    spec = SliceSpec("s", (core,), 2, "cuda:1")
    message = await told(
        Supervisor(heard, PreparedShares(TimeSlices("GPU-7").open)), heard, spec, tmp_path / "m"
    )
    assert f"(('cuda:0', 'GPU-7', '2'), [{core}])" in message


async def test_a_variable_that_the_share_takes_away_is_not_inherited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,4")
    heard = Recorder()

    def prepare(spec: SliceSpec) -> Setting:
        return Setting((("CUDA_VISIBLE_DEVICES", None),), spec.cores, 1, "cuda:0")

    message = await told(
        Supervisor(heard, PreparedShares(prepare)), heard, SliceSpec("s", ()), tmp_path / "m"
    )
    assert "(('cuda:0', None, " in message


async def test_by_default_a_slice_is_a_core_set_and_its_model_hears_of_no_device(tmp_path: Path) -> None:
    heard = Recorder()
    core = max(os.sched_getaffinity(0))
    message = await told(Supervisor(heard), heard, SliceSpec("s", (core,), 3), tmp_path / "m")
    assert f", '3'), [{core}])" in message
    assert "((None, " in message


async def test_a_worker_whose_share_cannot_be_had_is_lost_with_the_reason() -> None:
    heard = Recorder()

    def prepare(spec: SliceSpec) -> Setting:
        raise SlicingError(f"slice {spec.name}: no such thing")

    await Supervisor(heard, PreparedShares(prepare)).start(SliceSpec("s", ()))
    assert "could not be started: slice s: no such thing" in await heard.hear_lost()


class Shared(PreparedShares):
    """Shares behind a daemon, which notes whose work it ends, and finds fault with what `wrong` says."""

    def __init__(self, wrong: str = "") -> None:
        super().__init__()
        self.ended: list[tuple[str, int]] = []
        self.exits = False
        self._wrong = wrong

    def is_shared(self, name: str) -> bool:
        return True

    async def end(self, name: str, pid: int) -> None:
        os.kill(pid, 0)  # it lives on until its work has ended
        self.ended.append((name, pid))
        if self.exits:
            pidfd = os.pidfd_open(pid)
            os.kill(pid, signal.SIGABRT)
            await asyncio.to_thread(select.select, [pidfd], [], [])
            os.close(pidfd)

    async def check(self, name: str, pid: int) -> str:
        return self._wrong


async def test_the_work_of_a_shared_worker_ends_at_the_device_before_the_worker_is_killed() -> None:
    heard, shares = Recorder(), Shared()
    supervisor = Supervisor(heard, shares)
    await supervisor.start(SliceSpec("s", ()))
    await heard.hear("ready")
    pid = heard.links[0].pid
    await supervisor.check("s", pid)
    assert heard.events.empty()
    supervisor.kill("s", "was stuck")
    assert await heard.hear_lost() == "was stuck"
    assert shares.ended == [("s", pid)]
    await supervisor.stop(0)


async def test_a_worker_outside_of_its_share_is_ended_with_the_sentence() -> None:
    heard = Recorder()
    supervisor = Supervisor(heard, Shared("it computes without MPS"))
    await supervisor.start(SliceSpec("s", ()))
    await heard.hear("ready")
    await supervisor.check("s", heard.links[0].pid)
    assert await heard.hear_lost() == "was ended: it computes without MPS"
    await supervisor.stop(0)


async def test_a_shared_worker_that_ends_without_its_device_is_lost_for_why_it_was_to_end() -> None:
    heard, shares = Recorder(), Shared()
    shares.exits = True
    supervisor = Supervisor(heard, shares)
    await supervisor.start(SliceSpec("s", ()))
    await heard.hear("ready")
    supervisor.kill("s", "was stuck")
    assert await heard.hear_lost() == "was stuck"
    assert not heard.links[0].crashed  # no model is to blame
    await supervisor.stop(0)
