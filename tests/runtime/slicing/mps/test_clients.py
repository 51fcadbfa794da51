"""How a stuck worker under MPS ends: by the daemon, with the daemon, or with its GPU."""

import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from serving.policy.device_health import Placed
from serving.runtime.slicing.choice import VisibleDevice
from serving.runtime.slicing.contract import Actuator, SlicingError
from serving.runtime.slicing.inventory import Gpu, Inventory
from serving.runtime.slicing.mps import clients
from serving.runtime.slicing.mps.mps import MpsPercentages
from serving.runtime.slicing.mps.mps_daemon import MpsDaemon
from serving.runtime.slicing.opening import DeviceShares
from serving.values.slice_specs import Share, SliceSpec
from tests.runtime.slicing import mps_twin

pytestmark = [pytest.mark.live, pytest.mark.slow]

GPU = Gpu(0, "GPU-0", "NVIDIA H200", 1, 0, (9, 0), 132, False, (), None, None, 0, (41, 42))
SPEC = SliceSpec("a", (), device="cuda:0", part=Share("mps", 30.0), kind="gpu-nvidia-h200")


@pytest.fixture
def control(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A control program whose server has the clients 41 and 42."""
    there = tmp_path / "clients"
    there.write_text("41\n42\n")
    monkeypatch.setenv("MPS_CLIENTS", str(there))
    path = tmp_path / "nvidia-cuda-mps-control"
    path.write_text(f'#!/bin/sh\nexec "{sys.executable}" -I -S "{mps_twin.__file__}" "$@"\n')
    path.chmod(0o755)
    return str(path)


@pytest.fixture
def daemon(control: str) -> Iterator[MpsDaemon]:
    daemon = MpsDaemon("GPU-0", control)
    daemon.start()
    yield daemon
    daemon.stop()


def test_the_daemon_ends_the_work_of_one_client_and_of_no_other(daemon: MpsDaemon) -> None:
    assert clients.end_client(daemon, 41) == clients.Ended()
    assert daemon.clients() == (42,)
    assert clients.end_client(daemon, 41) == clients.Ended()  # it is no client any more


def test_a_daemon_that_cannot_is_started_anew(daemon: MpsDaemon, monkeypatch: pytest.MonkeyPatch) -> None:
    before = daemon.folder
    monkeypatch.setenv("MPS_TWIN", "stuck")
    daemon.stop()
    daemon.start()
    ended = clients.end_client(daemon, 41)
    assert "did not end the work of process 41" in ended.restarted
    assert not ended.broken
    assert daemon.answers()
    assert daemon.folder != before


async def test_what_a_restart_costs_and_what_no_restart_cures_is_told(
    control: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MPS_TWIN", "stuck")
    made: list[MpsPercentages] = []

    def make(_kind: str, device: VisibleDevice, _: Inventory) -> Actuator:
        made.append(MpsPercentages(device.gpu.uuid, control))
        return made[-1]

    shares = DeviceShares(lambda: Inventory((0,), (GPU,)), make, {})
    told: list[tuple[Sequence[str] | str, str]] = []
    shares.on_restart = lambda slices, reason: told.append((slices, reason))
    shares.on_broken = lambda device, reason: told.append((device, reason))
    await shares.open(SPEC)
    await shares.open(replace(SPEC, name="b"))
    assert shares.placed["b"] == Placed("GPU-0", "", "mps")
    assert shares.is_shared("a")
    await shares.end("a", 41)
    assert [each for each, _ in told] == [["a", "b"]]
    made[0].daemon._control = "nvidia-none"
    await shares.end("a", 41)
    assert [each for each, _ in told[1:]] == [["a", "b"], "cuda:0"]
    assert "could not be started anew: nvidia-none is not there" in told[2][1]
    await shares.stop()


async def test_a_worker_on_the_gpu_that_is_no_client_is_found_and_one_that_is_not_there_is_not_blamed(
    control: str,
) -> None:
    seen = replace(GPU, processes=(41, 43))
    shares = DeviceShares(
        lambda: Inventory((0,), (seen,)), lambda _kind, gpu, _: MpsPercentages(gpu.uuid, control), {}
    )
    await shares.open(SPEC)
    assert await shares.check("a", 41) == ""
    assert await shares.check("a", 99) == ""
    assert await shares.check("a", 43) == "slice a: worker 43 computes without MPS, so it has no share"
    assert await shares.check("nobody", 43) == ""
    await shares.stop()


def test_a_profile_needs_every_worker_within_its_share(daemon: MpsDaemon, control: str) -> None:
    mps = MpsPercentages("GPU-0", control)
    mps.daemon = daemon
    clients.check_clients(mps, (41, 42))
    clients.check_clients(None, (7,))
    with pytest.raises(SlicingError, match="worker 7 computes without MPS"):
        clients.check_clients(mps, (41, 7))
