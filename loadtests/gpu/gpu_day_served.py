"""The steps of `loadtests.gpu.gpu_day` that run commands: doctor, profile, serve under load, two models."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from typing import Any
from urllib.error import URLError
from urllib.request import urlopen

from loadtests.gpu.gpu_day_report import Figure, Outcome, Status
from loadtests.gpu.gpu_day_steps import Site, SkippedError
from loadtests.harness.dispatch import Server
from loadtests.harness.gateway import ROOT, Gateway, model_entry, served
from loadtests.harness.report import Report
from loadtests.openloop import Course, read_loads, run
from serving.runtime.slicing.inventory import Gpu, take_inventory

QUERY = "index,uuid,name,memory.total,compute_mode,mig.mode.current"
SHARES = "25,50,100"
RATE = 50
KILLED_AT = 0.3
"""After that part of a load."""
PATIENT_MS = 2000
TOO_FAST = "are too many requests"
SLICE_COUNT = 2
BACK_S = 60.0


def doctor(_site: Site) -> Outcome:
    """Check that `penstock doctor` finds no fault."""
    ended = _ran("router.cli", "doctor", "--json")
    if not ended.stdout.strip():
        return Outcome(Status.FAILED, f"it printed nothing: {_last(ended)}")
    found = json.loads(ended.stdout)
    wrong = [each for each in found["findings"] if each["level"] != "ok"]
    figures: dict[str, Figure] = {each["name"]: f"{each['sentence']}; {each['cure']}" for each in wrong}
    sentence = f"{found['faults']} faults, {found['warnings']} warnings"
    return Outcome(Status.FAILED if found["faults"] else Status.OK, sentence, figures)


def inventory(_site: Site) -> Outcome:
    """Check that NVML and nvidia-smi agree on each GPU."""
    found = take_inventory()
    if not found.gpus:
        return Outcome(Status.FAILED, f"there is no GPU: {found.reason}")
    figures: dict[str, Figure] = {f"GPU {each.index}": _described(each) for each in found.gpus}
    command = ["nvidia-smi", f"--query-gpu={QUERY}", "--format=csv,noheader,nounits"]
    told = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    rows = [[cell.strip() for cell in line.split(",")] for line in told]
    ours = [
        [str(each.index), each.uuid, each.name, str((each.memory_bytes or 0) >> 20)] for each in found.gpus
    ]
    if [row[:4] for row in rows] != ours:
        return Outcome(Status.FAILED, f"nvidia-smi says {rows}", figures)
    sentence = f"driver {found.driver}, CUDA {cuda_name(found.cuda)}; nvidia-smi says the same"
    return Outcome(Status.OK, sentence, figures)


def cuda_name(version: int | None) -> str:
    """Return "13.1" for 13010."""
    return f"{version // 1000}.{version % 1000 // 10}" if version else "none"


def _described(gpu: Gpu) -> str:
    mode = gpu.compute_mode.name.lower() if gpu.compute_mode is not None else "unknown"
    mig = f"MIG with {len(gpu.mig_devices)} instances" if gpu.mig else "no MIG"
    used = (gpu.memory_used_bytes or 0) >> 20
    return f"{gpu.name}, {gpu.uuid}, {gpu.sms} SMs, {mig}, compute mode {mode}, {used} MiB used"


def profile(site: Site) -> Outcome:
    """Check that `penstock profile` measures a model on several shares."""
    model = site.models[0]
    options = ["--device", site.device, "--shares", SHARES, "--profiles", str(site.folder / "profiles")]
    ended = _ran("router.cli", "profile", model, *options, "--point-seconds", "0.3", "--allow-noise")
    kept = sorted((site.folder / "profiles").rglob("*.json"))
    sentence = f"{len(kept)} profiles of {model} at {SHARES} %" if kept else _last(ended)
    return Outcome(Status.OK if ended.returncode == 0 and kept else Status.FAILED, sentence)


def serving(site: Site) -> Outcome:
    """Check that a gateway with two MPS slices answers an open loop."""
    with served(_settings(site)) as gateway:
        report = _load(site, gateway)
    return _told(report, "on two slices of 50 %")


def killed(site: Site) -> Outcome:
    """Kill a worker under MPS under load: each request ends once, and the worker comes back."""
    with served(_settings(site)) as gateway:
        killed_s = KILLED_AT * site.seconds
        name, pid = _first_slice(gateway)
        timer = threading.Timer(killed_s, os.kill, (pid, signal.SIGKILL))
        begun = time.monotonic()
        timer.start()
        back: list[float] = []
        watch = threading.Thread(target=_watch, args=(gateway, name, pid, back))
        watch.start()
        report = _load(site, gateway)
        watch.join()
    told = _told(report, f"while the worker of {name} was killed")
    if not back:
        return Outcome(Status.FAILED, f"the worker of {name} did not come back", told.figures)
    return Outcome(told.status, told.sentence, {**told.figures, "back after s": back[0] - begun - killed_s})


def sharing(site: Site) -> Outcome:
    """Run two models on shares, in turns, and alone (`loadtests.gpu.gpu_sharing`)."""
    if len(site.models) < 2:
        raise SkippedError("--models names one model; this step takes two")
    file = site.folder / "sharing.json"
    options = ["--shares", "50,50", "--seconds", "3", "--loads", "0.5", "--sweep-seconds", "2"]
    options += ["--profiles", str(site.folder / "profiles"), "--device", site.device, "--json", str(file)]
    ended = _ran("loadtests.gpu.gpu_sharing", *site.models[:2], *options)
    if TOO_FAST in ended.stderr:
        raise SkippedError(f"{_last(ended)}; name slower models by --models")
    if ended.returncode != 0:
        return Outcome(Status.FAILED, _last(ended))
    figures: dict[str, Figure] = {
        f"{one['way']} {one['model']}, in time of asked": one["goodput"] / max(one["offered"], 1e-9)
        for one in json.loads(file.read_text())
    }
    return Outcome(Status.OK, "shares, default and alone at half of the capacity", figures)


def _settings(site: Site) -> Mapping[str, object]:
    entries = [model_entry(name, slo_ms=PATIENT_MS) | {"required": True} for name in site.models]
    for each in entries:
        del each["slices"]
    return {
        "server": {"host": "127.0.0.1"},
        "slices": [{"name": "half", "device": site.device, "share": "mps:50", "count": SLICE_COUNT}],
        "models": entries,
        "profiles": {"folder": str(site.folder / "profiles")},
        "cache": False,
    }


def _load(site: Site, gateway: Gateway) -> Report:
    asks = read_loads([f"{name}={RATE}" for name in site.models], {})
    return run(asks, Course(seconds=site.seconds), Server(gateway.host, gateway.rest_port))


def _told(report: Report, where: str) -> Outcome:
    """Return the outcome of a run: each request must end with an answer."""
    total = report.total
    figures: dict[str, Figure] = {f"{one.outcome}, requests": float(one.count) for one in total.outcomes}
    for one in report.loads:
        figures |= {f"{one.name} p50 ms": one.latency["p50_ms"], f"{one.name} p99 ms": one.latency["p99_ms"]}
    figures |= {f"void {place}": said for place, said in enumerate(report.voids)}
    sentence = f"{total.answered} of {total.offered} requests answered {where}, {total.ok} well"
    well = total.answered == total.offered and total.ok > total.offered / 2
    return Outcome(Status.OK if well else Status.FAILED, sentence, figures)


def _slices(gateway: Gateway) -> list[tuple[str, int]]:
    with urlopen(f"http://{gateway.host}:{gateway.rest_port}/v2/status", timeout=10) as answer:
        found: dict[str, Any] = json.load(answer)
    return [(each["name"], each["pid"]) for each in found["slices"] if each["pid"]]


def _first_slice(gateway: Gateway) -> tuple[str, int]:
    """Return the first slice once every slice has a worker: the gateway is ready with one of them."""
    end = time.monotonic() + BACK_S
    while len(found := _slices(gateway)) < SLICE_COUNT and time.monotonic() < end:
        time.sleep(0.1)
    return found[0]


def _watch(gateway: Gateway, name: str, before: int, back: list[float]) -> None:
    """Note when the slice has another worker."""
    end = time.monotonic() + BACK_S
    while time.monotonic() < end:
        try:
            if dict(_slices(gateway)).get(name, before) != before:
                back.append(time.monotonic())
                return
        except (URLError, OSError):
            pass
        time.sleep(0.1)


def _ran(module: str, *arguments: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", module, *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def _last(ended: "subprocess.CompletedProcess[str]") -> str:
    lines = [line for line in (ended.stdout + ended.stderr).splitlines() if line.strip()]
    return f"status {ended.returncode}: {' '.join(lines[-2:])}"
