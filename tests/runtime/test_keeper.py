"""Promises of a worker's keeper: nothing that a model has started is left, and a worker has its bounds."""

import asyncio
import os
import resource
import select
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import numpy as np
import pytest

from serving.runtime.workers.supervisor import Supervisor
from serving.values.slice_specs import SliceSpec, WorkersSpec
from serving.values.specs import ModelSpec
from serving.worker.frames.batches import BatchInput
from serving.worker.process.confined import OOM_SCORE
from serving.worker.process.tree import children, descendants, held_bytes
from tests.runtime.dying import dying_gateway
from tests.runtime.recorder import PATIENCE_S, Recorder, be_patient, model_spec, write_model

pytestmark = [pytest.mark.live, pytest.mark.slow]

GONE_S = 10.0
"""It takes some milliseconds; a machine that others use may stand still for longer."""
SLEEPER = "subprocess.Popen(['sleep', '600'], start_new_session=True)"
ORPHAN = "subprocess.Popen(['sh', '-c', 'setsid sleep 600 & exit'], start_new_session=True).wait()"
MB = 1 << 20


def answering(folder: Path, answer: str) -> ModelSpec:
    """A model that answers with the numbers of a list of one row, `answer`, once it is asked with `go`."""
    body = f"import subprocess, resource; found = {answer} if parameters else [0]"
    write_model(folder, f"{body}; return {{'Y': np.array([found], np.float64)}}")
    return model_spec(folder, {"X": "FP32"}, {"Y": "FP64"})


@asynccontextmanager
async def crew(model: ModelSpec, workers: WorkersSpec) -> AsyncIterator[tuple[Supervisor, Recorder]]:
    """A worker with that model, asked with `go`."""
    heard = Recorder()
    supervisor = Supervisor(heard, workers=workers)
    await supervisor.start(SliceSpec("s", ()))
    try:
        await heard.hear("ready")
        heard.links[0].load(1, model, "only")
        await heard.hear("loaded")
        be_patient(heard.links[0])
        heard.links[0].run(1, 1, 1, [BatchInput("FP32", (4,), [bytes(16)])], (("go", True),))
        yield supervisor, heard
    finally:
        await supervisor.stop(0)


async def said(model: ModelSpec, workers: WorkersSpec) -> list[float]:
    async with crew(model, workers) as (_, heard):
        return list(np.frombuffer((await heard.hear_result()).outputs[0].data, "<f8"))


def gone(pids: Sequence[int]) -> bool:
    """Whether all of them end in time. A zombie has ended."""
    return all(ended(pid) for pid in pids)


def with_sleepers(pid: int, count: int) -> list[int]:
    """What is below a process, once so many of it are what the models here start."""
    end = time.monotonic() + PATIENCE_S
    while time.monotonic() < end:
        below = descendants(pid)
        with suppress(OSError):  # one has just ended
            names = [Path(f"/proc/{each}/comm").read_text() for each in below]
            if names.count("sleep\n") == count and not {"sh\n", "setsid\n"} & {*names}:
                return below
        time.sleep(0.01)
    raise AssertionError(f"{count} processes were to be started below {pid}")


def ended(pid: int) -> bool:
    with suppress(ProcessLookupError):
        pidfd = os.pidfd_open(pid)
        try:
            return bool(select.select([pidfd], [], [], GONE_S)[0])
        finally:
            os.close(pidfd)
    return True


@pytest.mark.parametrize("start", [SLEEPER, ORPHAN], ids=["child", "orphan"])
@pytest.mark.parametrize("how", ["worker killed", "worker stopped and ended", "closed"])
async def test_what_a_model_has_started_in_other_sessions_ends_with_its_worker(
    tmp_path: Path, start: str, how: str
) -> None:
    model = answering(tmp_path / "m", f"[{start} and 0]")
    async with crew(model, WorkersSpec()) as (supervisor, heard):
        await heard.hear_result()
        worker = heard.links[0].pid
        (keeper,) = [pid for pid in children(os.getpid()) if worker in children(pid)]
        below = await asyncio.to_thread(with_sleepers, keeper, 1)
        if how == "worker killed":
            os.kill(worker, signal.SIGKILL)
            assert await heard.hear_lost() == "was killed by SIGKILL"
        elif how == "closed":
            await supervisor.stop(PATIENCE_S)
            assert await heard.hear_lost() == "exited with 0"
        else:
            os.kill(worker, signal.SIGSTOP)
            heard.links[0].kill("was ended: it stalled")
            assert await heard.hear_lost() == "was ended: it stalled"
        assert gone(below)


@pytest.fixture
def gateway(tmp_path: Path) -> Iterator[tuple["subprocess.Popen[bytes]", int, list[int]]]:
    """One whose model has started a process in a session of its own, and orphaned another: it, its worker,
    and all below it."""
    both = f"[{SLEEPER} and 0, {ORPHAN} and 0]"
    answering(tmp_path / "m", both)
    with dying_gateway(tmp_path / "m") as (process, worker):
        below = with_sleepers(process.pid, 2)
        yield process, worker, below


@pytest.mark.parametrize("first", ["gateway alone", "worker first", "gateway first"])
def test_nothing_is_left_of_a_gateway_that_is_killed(
    gateway: tuple["subprocess.Popen[bytes]", int, list[int]], first: str
) -> None:
    process, worker, below = gateway
    victims = [process.pid] + ([] if first == "gateway alone" else [worker])
    for victim in reversed(victims) if first == "worker first" else victims:
        with suppress(ProcessLookupError):  # the other's end was enough
            os.kill(victim, signal.SIGKILL)
    assert gone(below)


@pytest.mark.parametrize("start", ["0", SLEEPER, ORPHAN], ids=["nothing", "child", "orphan"])
async def test_a_keeper_that_is_killed_takes_all_below_it_along(tmp_path: Path, start: str) -> None:
    async with crew(answering(tmp_path / "m", f"[{start} and 0]"), WorkersSpec()) as (_, heard):
        await heard.hear_result()
        worker = heard.links[0].pid
        (keeper,) = [pid for pid in children(os.getpid()) if worker in children(pid)]
        below = await asyncio.to_thread(with_sleepers, keeper, int(start != "0"))
        assert worker in below
        os.kill(keeper, signal.SIGKILL)
        assert await heard.hear_lost() == "was killed by SIGKILL"
        assert await asyncio.to_thread(gone, below)


async def test_what_another_keeper_keeps_lives_on(tmp_path: Path) -> None:
    """Only what was started under the one that was killed ends with it."""
    models = [answering(tmp_path / name, f"[{SLEEPER} and 0]") for name in ("m", "n")]
    async with crew(models[0], WorkersSpec()) as (_, one), crew(models[1], WorkersSpec()) as (_, other):
        workers = [heard.links[0].pid for heard in (one, other)]
        for heard in (one, other):
            await heard.hear_result()
        keepers = [next(k for k in children(os.getpid()) if worker in children(k)) for worker in workers]
        ends, stays = [await asyncio.to_thread(with_sleepers, keeper, 1) for keeper in keepers]
        os.kill(keepers[0], signal.SIGKILL)
        assert await one.hear_lost() == "was killed by SIGKILL"
        assert await asyncio.to_thread(gone, ends)
        assert {*stays} <= {*descendants(keepers[1])}
        assert other.events.empty()


async def test_a_worker_has_the_usual_variables_and_those_that_are_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = {
        "AWS_SECRET_ACCESS_KEY": 0, "PENSTOCK_KEY": 0, "HF_TOKEN": 0, "https_proxy": 0, "NAMED": 1, "SET": 1,
        "OMP_WAIT_POLICY": 1, "PATH": 1, "LC_TIME": 1,
    }  # fmt: skip
    for name in names.keys() - {"PATH", "SET"}:
        monkeypatch.setenv(name, "passive")
    model = answering(tmp_path / "m", f"[name in os.environ for name in {[*names]}]")
    workers = WorkersSpec((("SET", "x"),), ("NAMED",))
    assert await said(model, workers) == [*names.values()]


async def test_a_worker_has_the_limits_that_are_stated_and_yields_memory_first(tmp_path: Path) -> None:
    limits = "*resource.getrlimit(resource.RLIMIT_NOFILE), *resource.getrlimit(resource.RLIMIT_NPROC)"
    core = "resource.getrlimit(resource.RLIMIT_CORE)[0]"
    score = "int(open('/proc/self/oom_score_adj').read())"
    model = answering(tmp_path / "m", f"[{limits}, {core}, {score}]")
    most = min(5000, resource.getrlimit(resource.RLIMIT_NPROC)[1] % (1 << 63))
    own = int(await asyncio.to_thread(Path("/proc/self/oom_score_adj").read_text))
    found = await said(model, WorkersSpec(open_files=200, processes=most))
    assert found == [200, 200, most, most, 0, max(own, OOM_SCORE)]


TOO_MUCH = WorkersSpec(memory_bytes=200 * MB)


async def overran(heard: Recorder) -> None:
    """It is lost, with the reason; it may have answered before."""
    name, *_, reason = await asyncio.wait_for(heard.events.get(), PATIENCE_S)
    if name == "done":
        reason = await heard.hear_lost()
    assert str(reason).startswith("was ended: its processes held ")
    assert str(reason).endswith(" MB, more than workers.memory_mb, 200")
    assert heard.links[0].overran


async def test_a_worker_above_its_memory_is_ended(tmp_path: Path) -> None:
    model = answering(tmp_path / "m", "[self.__dict__.update(held=np.ones(300 << 17)) or 0]")
    async with crew(model, TOO_MUCH) as (_, heard):
        await overran(heard)


async def test_memory_of_what_a_model_has_started_counts_and_it_ends_too(tmp_path: Path) -> None:
    code = "import time; time.sleep(1); x = b'x' * (300 << 20); time.sleep(600)"
    start = f'subprocess.Popen(["{sys.executable}", "-c", "{code}"], start_new_session=True)'
    async with crew(answering(tmp_path / "m", f"[{start}.pid]"), TOO_MUCH) as (_, heard):
        (child,) = np.frombuffer((await heard.hear_result()).outputs[0].data, "<f8")
        await overran(heard)
        assert gone([int(child)])


async def test_a_worker_below_its_memory_goes_on(tmp_path: Path) -> None:
    model = answering(tmp_path / "m", "[self.__dict__.update(held=np.ones(50 << 17)) or 1]")
    async with crew(model, WorkersSpec(memory_bytes=400 * MB)) as (_, heard):
        await heard.hear_result()
        await asyncio.sleep(1.5)  # three looks
        assert heard.events.empty()
        assert not heard.links[0].overran


def test_what_forked_processes_share_counts_once() -> None:
    code = "import os; x = b'x' * (64 << 20); os.fork(); os.fork(); print(flush=True); os.read(0, 1)"
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        for _ in range(4):
            process.stdout.readline()
        pids = [process.pid, *descendants(process.pid)]
        assert len(pids) == 4
        assert held_bytes(pids, 1 << 40) > 4 * 64 * MB  # counted for each: below the bound that is enough
        assert 64 * MB < held_bytes(pids, 100 * MB) < 2 * 64 * MB
        process.kill()
        for pid in pids:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
