"""The steps of `loadtests.gpu.gpu_day` that open shares: what a GPU has to show of MPS, MIG and turns."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from loadtests.gpu.gpu_day_report import Figure, Outcome, Status
from loadtests.harness.gateway import ROOT
from serving.policy.placement.terms.geometry import plain
from serving.runtime.slicing.choice import VisibleDevice, device_actuator, device_named
from serving.runtime.slicing.contract import Actuator, Setting, SlicingError
from serving.runtime.slicing.inventory import Gpu, Inventory, take_inventory
from serving.runtime.slicing.mig.mig import MigGpu, MigInstances
from serving.runtime.slicing.mig.mig_plan import plan
from serving.runtime.slicing.mps.mps import MpsPercentages
from serving.values.slice_specs import Share, SliceSpec

RATE_S = 3.0
SEEN_S = 20.0
LIMIT_MIB, BELOW_MIB, ABOVE_MIB = 2048, 512, 4096
COPIES = 50
CAPPED_MOST = 0.5
"""Of the rate at 100 per cent, what a slice of 25 per cent may reach: kernels leave some units idle."""
TURNS = (0.7, 1.3)
"""Of the rate alone, what two processes in turns reach together."""


class SkippedError(Exception):
    """The step can show nothing here; the text says why."""


@dataclass(frozen=True, slots=True)
class Site:
    """The device and the models; `recut`: whether MIG instances may be made; `folder` for what is kept.

    `seconds`: of each load on a gateway.
    """

    device: str
    models: Sequence[str]
    recut: bool
    folder: Path
    seconds: float

    def visible(self) -> tuple[VisibleDevice, Inventory]:
        """Return the device, and all that is here. SlicingError where it is not here."""
        inventory = take_inventory()
        return device_named(self.device, inventory, os.environ), inventory

    def spec(self, name: str, share: Share, memory_bytes: int = 0) -> SliceSpec:
        """Return a slice of the device."""
        return SliceSpec(name, (), 1, self.device, share, memory_bytes)


@contextmanager
def opened(site: Site, kind: str) -> Iterator[Actuator]:
    """Yield the actuator of a kind of share. Raises SkippedError if the device has no such shares."""
    visible, inventory = site.visible()
    try:
        actuator = device_actuator(kind, visible, inventory)
    except SlicingError as error:
        raise SkippedError(str(error)) from None
    try:
        yield actuator
    finally:
        actuator.stop()


class Client:
    """A program that computes with what a slice has (loadtests/gpu/gpu_client.py), once it can compute."""

    def __init__(self, setting: Setting, work: str, amount: float = 0) -> None:
        given = {**os.environ, **{name: value or "" for name, value in setting.environment}}
        gone = {name for name, value in setting.environment if value is None}
        command = [sys.executable, "-m", "loadtests.gpu.gpu_client", work, str(amount)]
        self.process = subprocess.Popen(
            command, cwd=ROOT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            env={name: value for name, value in given.items() if name not in gone},
        )  # fmt: skip
        self.cuda = bool(self._line().get("cuda"))

    def _line(self) -> dict[str, Any]:
        text = self.process.stdout.readline() if self.process.stdout is not None else ""
        return json.loads(text) if text else {}

    def found(self) -> dict[str, Any]:
        """Return what it has found. SkippedError where torch cannot compute on a GPU."""
        if not self.cuda:
            raise SkippedError("torch computes on no GPU here")
        return self._line()

    def __enter__(self) -> "Client":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()


def clients(site: Site) -> Outcome:
    """Check that programs with a share are clients of its daemon."""
    with opened(site, "mps") as mps, ExitStack() as stack:
        daemon = _percentages(mps).daemon
        settings = [mps.open(site.spec(name, Share("mps", 50.0))) for name in ("a", "b")]
        begun = [stack.enter_context(Client(setting, "hold")) for setting in settings]
        pids = {each.process.pid for each in begun}
        seen = _await(lambda: pids <= {*daemon.clients()})
        figures: dict[str, Figure] = {"clients": len(daemon.clients()), "compute": begun[0].cuda}
        if not seen:
            return Outcome(Status.FAILED, f"the daemon lists {daemon.clients()}, not {sorted(pids)}", figures)
        return Outcome(Status.OK, "the daemon lists both programs", figures)


def caps(site: Site) -> Outcome:
    """Check that a slice of a few per cent computes less than a slice of the whole device."""
    rates = {}
    with opened(site, "mps") as mps:
        for percent in (100, 50, 25):
            setting = mps.open(site.spec(f"s{percent}", Share("mps", float(percent))))
            with Client(setting, "rate", RATE_S) as client:
                rates[percent] = float(client.found()["per_s"])
    figures: dict[str, Figure] = {f"at {percent} %, products per s": rate for percent, rate in rates.items()}
    held = rates[25] <= CAPPED_MOST * rates[100]
    return _judged(held, f"25 % computes {rates[25] / rates[100]:.0%} of what 100 % does", figures)


def memory(site: Site) -> Outcome:
    """Check that a slice gets memory up to its limit, and no more."""
    with opened(site, "mps") as mps:
        setting = mps.open(site.spec("s", Share("mps", 50.0), LIMIT_MIB << 20))
        got = {}
        for mib in (BELOW_MIB, ABOVE_MIB):
            with Client(setting, "allocate", mib) as client:
                got[mib] = bool(client.found()["allocated"])
    figures: dict[str, Figure] = {f"{mib} MiB allocated": done for mib, done in got.items()}
    return _judged(got == {BELOW_MIB: True, ABOVE_MIB: False}, f"the limit was {LIMIT_MIB} MiB", figures)


def quit_with_clients(site: Site) -> Outcome:
    """Check that a daemon with clients ends, and leaves nothing behind."""
    with opened(site, "mps") as mps:
        daemon = _percentages(mps).daemon
        with Client(mps.open(site.spec("s", Share("mps", 50.0))), "hold") as client:
            folder, begun = daemon.folder, time.monotonic()
            mps.stop()
            took_s = time.monotonic() - begun
            lives = client.process.poll() is None
    figures: dict[str, Figure] = {"took s": took_s, "its client lived on": lives}
    return _judged(not Path(folder).exists(), f"the daemon ended with a client in {took_s:.1f} s", figures)


def partitions(site: Site) -> Outcome:
    """Check that static partitions are made, listed and removed."""
    with opened(site, "sm") as sm:
        names = [
            dict(sm.open(site.spec(name, Share("sm", 1.0))).environment)["CUDA_MPS_SM_PARTITION"]
            for name in ("a", "b")
        ]
        sm.close("a")
        sm.close("b")
    return _judged(len({*names}) == 2, f"two partitions of a chunk were made and removed: {names}", {})


def instances(site: Site) -> Outcome:
    """Check that an instance is made beside the others, is listed by NVML, and is destroyed again."""
    if not site.recut:
        raise SkippedError("--recut is not given: this step makes a MIG instance and destroys it")
    gpu = next((gpu for gpu in take_inventory().gpus if gpu.mig), None)
    if gpu is None:
        raise SkippedError("no GPU is in MIG mode; `nvidia-smi -i 0 -mig 1` as root switches it on")
    divided = MigGpu(gpu.index, dry_run=False, known=gpu.geometry)
    geometry, before = divided.geometry(), divided.instances()
    smallest = min(plain(geometry), key=lambda each: (each.size, each.sms)).name
    kept = [each.profile for each in before]
    try:
        plan(geometry, before, [*kept, smallest], [each.id for each in before])
    except SlicingError as error:
        raise SkippedError(f"no room for {smallest} on GPU {gpu.index}: {error}") from None
    mig = MigInstances(divided, lambda: _mig_uuids(gpu))
    begun = time.monotonic()
    setting = mig.open(site.spec("s", Share.parse(f"mig:{smallest}")))
    took_s = time.monotonic() - begun
    uuid = dict(setting.environment)["CUDA_VISIBLE_DEVICES"]
    listed = uuid in _mig_uuids(gpu).values()
    ran = divided.apply(plan(geometry, divided.instances(), kept, [each.id for each in before]))
    same = divided.instances() == before
    figures: dict[str, Figure] = {"profile": smallest, "took s": took_s, "destroyed by": str(ran)}
    return _judged(listed and same, f"NVML lists {uuid}; the layout is as before", figures)


def turns(site: Site) -> Outcome:
    """Check that two programs on all of a GPU compute together as much as one program alone."""
    with opened(site, "time") as time_slices:
        setting = time_slices.open(site.spec("s", Share("time", 1.0)))
        with Client(setting, "rate", RATE_S) as client:
            alone = float(client.found()["per_s"])
        with Client(setting, "rate", RATE_S) as first, Client(setting, "rate", RATE_S) as second:
            both = [float(each.found()["per_s"]) for each in (first, second)]
    figures: dict[str, Figure] = {"alone per s": alone, "first per s": both[0], "second per s": both[1]}
    together = sum(both) / alone
    low, high = TURNS
    return _judged(low <= together <= high, f"together they compute {together:.0%} of one alone", figures)


def copies(site: Site) -> Outcome:
    """Check that copies of page-locked memory are faster than others, and both ways at once faster still."""
    with opened(site, "time") as time_slices:
        setting = time_slices.open(site.spec("s", Share("time", 1.0)))
        with Client(setting, "copies", COPIES) as client:
            found = {f"{name} GiB per s": float(value) for name, value in client.found().items()}
    faster = found["locked GiB per s"] > found["pageable GiB per s"]
    return _judged(faster, "copies of page-locked and of pageable memory", {**found})


def _percentages(actuator: Actuator) -> MpsPercentages:
    if not isinstance(actuator, MpsPercentages):
        raise TypeError(f"{actuator} gives no shares by MPS")
    return actuator


def _judged(well: bool, sentence: str, figures: Mapping[str, Figure]) -> Outcome:
    return Outcome(Status.OK if well else Status.FAILED, sentence, figures)


def _await(holds: Callable[[], bool]) -> bool:
    end = time.monotonic() + SEEN_S
    while time.monotonic() < end:
        with suppress(SlicingError):
            if holds():
                return True
        time.sleep(0.1)
    return False


def _mig_uuids(gpu: Gpu) -> dict[int, str]:
    there = (each for each in take_inventory().gpus if each.uuid == gpu.uuid)
    return {mig.gpu_instance: mig.uuid for each in there for mig in each.mig_devices}
