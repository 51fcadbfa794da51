"""What MPS shares promise, of the real control daemon where there is one, and of a twin that speaks so."""

import os
import select
import shutil
import signal
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from serving.runtime.slicing.contract import FaultDomain, Resize, SlicingError
from serving.runtime.slicing.mig.mig import GivenInstance
from serving.runtime.slicing.mps import mps_daemon, mps_text
from serving.runtime.slicing.mps.inside import InstanceProcesses
from serving.runtime.slicing.mps.mps import MpsPartitions, MpsPercentages
from serving.runtime.slicing.mps.mps_daemon import CONTROL, MpsDaemon
from serving.values.slice_specs import Share, SliceSpec
from tests.runtime.slicing import mps_twin
from tests.runtime.slicing.mps_twin import CHUNKS, GPU_UUID
from tests.runtime.slicing.smi import captured

pytestmark = [pytest.mark.live, pytest.mark.slow]

ROOT = Path(__file__).resolve().parents[4]
REAL = os.environ.get("PENSTOCK_MPS_CONTROL") or shutil.which(CONTROL)
PATIENCE_S = 60


@pytest.fixture(scope="module")
def twin(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("bin") / CONTROL
    path.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "{mps_twin.__file__}" "$@"\n')
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)


@pytest.fixture(params=["twin", "real"])
def control(request: pytest.FixtureRequest, twin: str) -> str:
    """The control program; what is promised of one is promised of both."""
    if request.param == "twin":
        return twin
    if REAL is None:
        pytest.skip(f"no {CONTROL} on the PATH, and PENSTOCK_MPS_CONTROL names none")
    return REAL


@pytest.fixture
def mps(control: str) -> Iterator[MpsPercentages]:
    mps = MpsPercentages(GPU_UUID, control)
    yield mps
    mps.stop()


def slice_of(kind: str, amount: float, name: str = "s", memory_bytes: int = 0) -> SliceSpec:
    return SliceSpec(name, (0,), 2, "cuda:0", Share(kind, amount), memory_bytes)


def processes(daemon: MpsDaemon) -> tuple[int, int]:
    """The guard and the daemon that it started."""
    guard = daemon._guard
    assert guard is not None
    children = Path(f"/proc/{guard.pid}/task/{guard.pid}/children").read_text().split()
    return guard.pid, int(children[0])


def wait_for_end(*pids: int) -> None:
    for pid in pids:
        try:
            pidfd = os.pidfd_open(pid)
        except ProcessLookupError:
            continue
        assert select.select([pidfd], [], [], PATIENCE_S)[0], f"process {pid} goes on"
        os.close(pidfd)


def test_a_slice_is_told_its_share_and_the_daemon_that_enforces_it(mps: MpsPercentages) -> None:
    setting = mps.open(slice_of("mps", 25, memory_bytes=3 << 30))
    environment = dict(setting.environment)
    assert environment["CUDA_MPS_PIPE_DIRECTORY"] == mps.daemon.folder
    assert environment["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] == "25"
    assert environment["CUDA_MPS_PINNED_DEVICE_MEM_LIMIT"] == "0=3072M"
    assert environment["CUDA_VISIBLE_DEVICES"] is None  # the daemon chooses
    assert (setting.device, setting.cores, setting.threads) == ("cuda:0", (0,), 2)
    assert stat.S_IMODE(Path(mps.daemon.folder).stat().st_mode) == 0o700
    assert mps.daemon.answers()
    assert mps.daemon.clients() == ()


def test_a_resized_slice_is_opened_beside_the_old_one_at_the_same_daemon(mps: MpsPercentages) -> None:
    old = dict(mps.open(slice_of("mps", 25, "old")).environment)
    new = dict(mps.open(slice_of("mps", 50, "new")).environment)
    mps.close("old")
    assert old["CUDA_MPS_PIPE_DIRECTORY"] == new["CUDA_MPS_PIPE_DIRECTORY"]
    assert dict(mps.open(slice_of("mps", 50, "new")).environment) == new
    assert mps.daemon.answers()


def test_nothing_is_left_after_the_end(mps: MpsPercentages) -> None:
    mps.open(slice_of("mps", 25))
    folder, pids = mps.daemon.folder, processes(mps.daemon)
    mps.stop()
    wait_for_end(*pids)
    assert not Path(folder).exists()
    assert not mps.daemon.answers()
    mps.stop()
    mps.open(slice_of("mps", 25))  # and it may begin anew
    assert mps.daemon.answers()


def test_what_the_daemon_cannot_do_is_told_in_its_words(mps: MpsPercentages) -> None:
    with pytest.raises(SlicingError, match="the daemon does not run"):
        mps.daemon.ask("get_server_list")
    mps.open(slice_of("mps", 25))
    with pytest.raises(SlicingError, match=r'bogus: Unknown command "bogus"$'):
        mps.daemon.ask("bogus")
    with pytest.raises(SlicingError, match=r"get_client_list 99: Server 99 not found$"):
        mps.daemon.ask("get_client_list 99")


def test_answers_mean_what_the_captured_ones_mean(mps: MpsPercentages) -> None:
    mps.daemon.start()
    for command, answer in mps_twin.captured(captured("mps-535")):
        try:
            said = mps.daemon.ask(command)
        except SlicingError:
            assert mps_text.complaint(answer), command
        else:
            assert mps_text.complaint(answer) == "", command
            assert mps_text.percentage(said) == mps_text.percentage(answer), command


def test_limits_of_the_gateway_do_not_become_limits_of_all(
    mps: MpsPercentages, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "10")
    monkeypatch.setenv("CUDA_MPS_PIPE_DIRECTORY", "/nowhere")
    mps.open(slice_of("mps", 25))
    assert mps_text.percentage(mps.daemon.ask("get_default_active_thread_percentage")) == 100


def test_a_daemon_that_died_is_noticed_and_replaced(mps: MpsPercentages) -> None:
    mps.open(slice_of("mps", 25))
    folder, (guard, daemon) = mps.daemon.folder, processes(mps.daemon)
    os.kill(daemon, signal.SIGKILL)
    wait_for_end(guard)
    assert not mps.daemon.answers()
    environment = dict(mps.open(slice_of("mps", 25)).environment)
    assert environment["CUDA_MPS_PIPE_DIRECTORY"] == mps.daemon.folder != folder
    assert mps.daemon.answers()
    assert not Path(folder).exists()


def test_a_daemon_does_not_outlive_its_guard(mps: MpsPercentages) -> None:
    mps.open(slice_of("mps", 25))
    guard, daemon = processes(mps.daemon)
    os.kill(guard, signal.SIGKILL)
    wait_for_end(daemon)


GATEWAY = """
import signal, sys
from serving.runtime.slicing.mps.mps import MpsPercentages
from serving.values.slice_specs import Share, SliceSpec
from tests.runtime.slicing.mps.test_mps import processes
mps = MpsPercentages("GPU-0", sys.argv[1])
mps.open(SliceSpec("s", (), 1, "cuda:0", Share("mps", 25.0)))
print(mps.daemon.folder, *processes(mps.daemon), flush=True)
signal.pause()
"""


def test_a_gateway_that_is_killed_leaves_no_daemon_and_no_folder(control: str) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", GATEWAY, control]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True) as gateway:
        assert gateway.stdout is not None
        folder, *pids = gateway.stdout.readline().split()
        assert Path(folder).exists()
        gateway.kill()
    wait_for_end(*map(int, pids))
    assert not Path(folder).exists()


def test_what_a_killed_gateway_and_its_killed_guard_left_is_removed_by_the_next(
    twin: str, near: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(near))
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(near)}
    command = [sys.executable, "-c", GATEWAY, twin]
    with subprocess.Popen(command, stdout=subprocess.PIPE, env=environment, text=True) as gateway:
        assert gateway.stdout is not None
        folder, guard, daemon = gateway.stdout.readline().split()
        first, second = MpsDaemon("GPU-0", twin), MpsDaemon("GPU-1", twin)
        first.start()
        assert Path(folder).exists()  # it is not left yet
        os.kill(int(guard), signal.SIGKILL)
        gateway.kill()
    wait_for_end(int(daemon))
    assert Path(folder).exists()
    second.start()
    assert sorted(map(str, near.glob("penstock-*"))) == sorted((first.folder, second.folder))
    first.stop()
    second.stop()
    assert list(near.iterdir()) == []


def test_a_partition_of_a_gpu_that_is_not_there_is_refused_and_nothing_is_left(control: str) -> None:
    partitions = MpsPartitions("GPU-0", CHUNKS, control)
    with pytest.raises(SlicingError):
        partitions.open(slice_of("sm", 2))
    partitions.stop()
    assert partitions.daemon.folder == ""


@pytest.fixture
def partitions(twin: str) -> Iterator[MpsPartitions]:
    partitions = MpsPartitions(GPU_UUID, CHUNKS, twin)
    yield partitions
    partitions.stop()


def test_partitions_are_a_slices_own_until_it_is_closed(partitions: MpsPartitions) -> None:
    first = partitions.open(slice_of("sm", 10, "first"))
    assert partitions.open(slice_of("sm", 10, "first")) == first  # its worker is started again
    assert dict(first.environment)["CUDA_MPS_SM_PARTITION"] == f"{GPU_UUID}/Dx00AAAA"
    with pytest.raises(SlicingError, match="Failed to fulfill the requested SM partition of 7 chunks"):
        partitions.open(slice_of("sm", 7, "second"))
    with pytest.raises(SlicingError, match="slice first has sm:10; open another slice for sm:6"):
        partitions.open(slice_of("sm", 6, "first"))
    partitions.open(slice_of("sm", 6, "third"))
    partitions.close("first")
    partitions.close("first")
    partitions.open(slice_of("sm", 7, "second"))


def test_partitions_of_a_daemon_that_died_are_made_anew(partitions: MpsPartitions) -> None:
    partitions.open(slice_of("sm", 16))
    guard, daemon = processes(partitions.daemon)
    os.kill(daemon, signal.SIGKILL)
    wait_for_end(guard)
    again = partitions.open(slice_of("sm", 16))
    assert dict(again.environment)["CUDA_MPS_PIPE_DIRECTORY"] == partitions.daemon.folder
    assert partitions.daemon.answers()
    os.kill(processes(partitions.daemon)[1], signal.SIGKILL)
    partitions.close("s")
    partitions.open(slice_of("sm", 16, "other"))


@pytest.mark.parametrize(("fault", "there"), [("forgets", "nowhere"), ("is short", "of 3 chunks")])
def test_a_partition_that_is_not_listed_as_it_was_made_is_found_out(
    fault: str, there: str, partitions: MpsPartitions, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MPS_TWIN", fault)
    with pytest.raises(SlicingError, match=f"slice s: the partition of 4 chunks is listed {there}$"):
        partitions.open(slice_of("sm", 4))
    with pytest.raises(SlicingError, match="listed"):
        partitions.open(slice_of("sm", 16))  # nothing was left of the first


@pytest.fixture
def near() -> Iterator[Path]:
    """A folder with a short path: below `tmp_path` of a process that shares a run no socket has room."""
    with tempfile.TemporaryDirectory() as folder:
        yield Path(folder)


@pytest.mark.parametrize(
    ("script", "said"),
    [
        ("exit 3", "-f ended with status 3; it said: nothing"),
        (
            "echo '[2026-01-01 Control 7] No privilege' >&2; exit 1",
            "-f ended with status 1; it said: No privilege",
        ),
        ("exec sleep 60", "-f does not answer; it said: nothing"),
    ],
)
def test_a_daemon_that_does_not_come_up_is_told_with_its_words_and_leaves_nothing(
    script: str, said: str, near: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    start_us = 200_000 if "sleep" in script else 60_000_000  # one that ends is waited for
    monkeypatch.setattr(mps_daemon, "_START_US", start_us)
    monkeypatch.setattr(mps_daemon, "_ANSWER_S", 0.1)
    monkeypatch.setattr(mps_daemon, "_STOP_S", 0.2)
    monkeypatch.setattr("tempfile.tempdir", str(near))
    control = near / "control"
    control.write_text(f"#!/bin/sh\n{script}\n")
    control.chmod(0o700)
    with pytest.raises(SlicingError, match=f"{said}$"):
        MpsDaemon("GPU-0", str(control)).start()
    assert list(near.iterdir()) == [control]


def test_no_control_program_and_no_room_for_its_socket_are_told(
    twin: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(SlicingError, match="nvidia-none is not there; NVIDIA's driver brings it"):
        MpsDaemon("GPU-0", "nvidia-none").start()
    deep = tmp_path / ("d" * 80)
    deep.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(deep))
    with pytest.raises(SlicingError, match="too long for a socket's folder; set TMPDIR"):
        MpsDaemon("GPU-0", twin).start()
    assert list(deep.iterdir()) == []


def test_guarantees_say_what_is_a_cap_and_what_a_reservation(twin: str) -> None:
    caps, reservations = MpsPercentages(GPU_UUID, twin, 2), MpsPartitions(GPU_UUID, CHUNKS, twin)
    assert (caps.guarantee.reservation, reservations.guarantee.reservation) == (False, True)
    for guarantee in (caps.guarantee, reservations.guarantee):
        assert (guarantee.resize, guarantee.fault_domain) == (Resize.NEW_PROCESS, FaultDomain.DEVICE)
    assert reservations.guarantee.tenants_max == CHUNKS
    with pytest.raises(SlicingError, match=r"slice s: mps:0\.5 is no share here; there are mps:1 to mps:100"):
        caps.open(slice_of("mps", 0.5))
    caps.open(slice_of("mps", 60, "a"))
    caps.open(slice_of("mps", 60, "b"))  # a cap: together they may exceed the GPU
    with pytest.raises(SlicingError, match="slice c: there are 2 slices, as many as there can be"):
        caps.open(slice_of("mps", 60, "c"))
    caps.stop()


def test_processes_of_an_instance_are_clients_of_one_daemon_there_without_caps(control: str) -> None:
    share = Share.parse("mig:2g.35gb*2")
    alone = SliceSpec("a", (0,), device="cuda:0", part=share.with_processes(1))
    given = GivenInstance(GPU_UUID, share.with_processes(1))
    there = InstanceProcesses(given, share, control)
    try:
        specs = [replace(alone, name=name, part=share) for name in ("a", "b")]
        settings = [dict(there.open(each).environment) for each in specs]
        assert len({each["CUDA_MPS_PIPE_DIRECTORY"] for each in settings}) == 1
        assert {each["CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"] for each in settings} == {"100"}
        assert there.daemon.answers()
        with pytest.raises(SlicingError, match="as many as there can be"):
            given.open(alone)  # the instance is theirs
    finally:
        there.stop()
    assert given.open(alone)


def test_without_such_an_instance_its_processes_have_nothing_to_share() -> None:
    with pytest.raises(SlicingError, match=r"mig:2g\.35gb is no share here"):
        InstanceProcesses(GivenInstance("MIG-a", Share.parse("mig:1g.18gb")), Share.parse("mig:2g.35gb*2"))
