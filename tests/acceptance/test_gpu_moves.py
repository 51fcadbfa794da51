"""Slices on GPUs are served, moved and given back on a machine of stand-ins, whoever is killed meanwhile."""

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from serving.profile.curve import Point, Profile
from serving.profile.files.store import ProfileStore
from serving.values.slice_specs import Share
from tests.acceptance.gateway import PATIENT_MS, ROOT, TALK_S, GatewayProcess, await_true
from tests.acceptance.holding import simple_to_hold
from tests.gpus.load import asked
from tests.gpus.machine import Machine, standing_in
from tests.seeds import some

pytestmark = [pytest.mark.live, pytest.mark.slow, pytest.mark.in_turn(2)]

H200S = ("h200", "h200", "h200:", "h200:", "h200", "h200", "h200", "h200")
A100S = ("a100:3g.20gb@4#1,2g.10gb@2#2,1g.5gb@0#3", "a100:7g.40gb@0#4", "a100:", "a100")
MODELS, KIND = ("first", "second"), "gpu-nvidia-h200"
DOUBLES = '{"OUTPUT0": inputs["INPUT0"] + inputs["INPUT1"], "OUTPUT1": inputs["INPUT1"]}'
WHOLE = '{name: a, device: "cuda:0"}, {name: b, device: "cuda:1"}'


def gpu(name: str, device: int, share: str) -> dict[str, str]:
    return {"name": name, "device": f"cuda:{device}", "share": share}


def on(first: list[str], second: list[str]) -> dict[str, dict[str, list[str]]]:
    return {"first": {"slices": first}, "second": {"slices": second}}


MIXED = {
    "slices": [gpu("m1", 0, "mps:30"), gpu("m2", 0, "mps:60"), gpu("b", 1, "whole"),
               gpu("g1", 2, "mig:3g.71gb"), gpu("g2", 2, "mig:2g.35gb")],
    "models": on(["m1", "g1"], ["m2", "g2", "b"]),
}  # fmt: skip
CUT_ANEW = {
    "slices": [gpu("m1", 0, "mps:30"), gpu("b", 1, "whole"), gpu("g3", 2, "mig:4g.71gb"),
               gpu("g4", 2, "mig:1g.18gb")],
    "models": on(["m1", "g3"], ["g4", "b"]),
}  # fmt: skip


def write_home(home: Path, slices: str, more: str = "") -> Path:
    """Two models that double numbers. `second` loads only while no file `hold` is beside it."""
    for name in MODELS:
        if not (home / name).exists():
            simple_to_hold(home / name, DOUBLES)
    config = home / "penstock.yaml"
    models = "".join(f"  - {{path: {name}, slo_ms: {PATIENT_MS}}}\n" for name in MODELS)
    config.write_text(f"slices: [{slices}]\nmodels:\n{models}profiles: {{folder: profiles}}\n{more}")
    return config


@pytest.fixture
def environ(monkeypatch: pytest.MonkeyPatch) -> Callable[[Machine], None]:
    """Let programs that are started from here find the machine's driver."""

    def enter(machine: Machine) -> None:
        monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
        for name, value in machine.environment().items():
            monkeypatch.setenv(name, value)

    return enter


@pytest.fixture
def h200s(environ: Callable[[Machine], None]) -> Iterator[Machine]:
    with standing_in(*H200S) as machine:
        environ(machine)
        yield machine


@pytest.fixture
def a100s(environ: Callable[[Machine], None]) -> Iterator[Machine]:
    with standing_in(*A100S) as machine:
        environ(machine)
        yield machine


@pytest.fixture(autouse=True)
def ended(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Whatever a test fails at, no gateway of it goes on."""
    begun: list[GatewayProcess] = []
    initialise = GatewayProcess.__init__

    def noted(gateway: GatewayProcess, *arguments: Any, **more: Any) -> None:
        begun.append(gateway)
        initialise(gateway, *arguments, **more)

    monkeypatch.setattr(GatewayProcess, "__init__", noted)
    yield
    for each in begun:
        each.kill()
        each.process.wait()


@contextmanager
def served(config: Path, machine: Machine) -> Iterator[GatewayProcess]:
    """A gateway that ends well and leaves nothing."""
    gateway = GatewayProcess.start(config, config.parent / "log")
    try:
        yield gateway
        assert gateway.stop() == 0, gateway.output
    finally:
        gateway.kill()
        gateway.process.wait()
    await_true(lambda: not machine.processes(), gateway)
    assert machine.mps_folders() == []


def request(gateway: GatewayProcess, method: str, body: object = None) -> tuple[int, Any]:
    """Status and answer of a request about the placement."""
    content = None if body is None else json.dumps(body).encode()
    asks = urllib.request.Request(f"http://{gateway.admin}/v2/placement", content, method=method)
    try:
        with urllib.request.urlopen(asks, timeout=TALK_S) as answer:  # noqa: S310
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def until(gateway: GatewayProcess, so: Callable[[dict[str, Any]], object]) -> dict[str, Any]:
    """The placement, once it is so."""
    found: list[dict[str, Any]] = []

    def holds() -> object:
        found.append(request(gateway, "GET")[1])
        return so(found[-1])

    await_true(holds, gateway)
    return found[-1]


def move(gateway: GatewayProcess, body: object) -> dict[str, Any]:
    """The placement after the move to another, None for that of the file."""
    status, told = request(gateway, "DELETE" if body is None else "PUT", body)
    assert status == 202, told
    return until(gateway, lambda found: not found["moving"])


def shares(found: dict[str, Any]) -> dict[str, str]:
    return {each["name"]: f"{each['device']} {each['share']}" for each in found["slices"]}


def workers(gateway: GatewayProcess) -> dict[str, int | None]:
    return {each["name"]: each["pid"] for each in json.loads(gateway.get("/v2/status")[1])["slices"]}


def running(gateway: GatewayProcess, name: str) -> int:
    """The process of a slice's worker, once it has one."""
    await_true(lambda: workers(gateway).get(name), gateway)
    return workers(gateway)[name] or 0


def status_text(gateway: GatewayProcess) -> str:
    """What `penstock status` prints."""
    command = [sys.executable, "-m", "router.cli", "status", "--url", f"http://{gateway.rest}"]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=TALK_S, check=True)
    return ended.stdout


def pids(machine: Machine, program: str) -> list[int]:
    return [int(each.split()[0]) for each in machine.processes() if program in each]


def kill(*pids: int | None) -> None:
    for pid in pids:
        assert pid
        os.kill(pid, signal.SIGKILL)


def test_from_whole_gpus_to_mig_and_mps_and_back_under_load(h200s: Machine, tmp_path: Path) -> None:
    config = write_home(tmp_path, WHOLE, "mig: {recut: true}\n")
    with served(config, h200s) as gateway, asked(gateway.rest, MODELS) as tally:
        found = move(gateway, MIXED)
        assert found["outcome"]["result"] == "done", found
        assert shares(found)["m2"] == "cuda:0 mps:60"
        assert sorted(workers(gateway)) == ["b", "g1", "g2", "m1", "m2"]
        assert all(name in status_text(gateway) for name in workers(gateway))
        assert h200s.take_ran() == ["mig -i 2 -cgi 9:4,14:0 -C"]
        assert len(h200s.mps_folders()) == 1
        found = move(gateway, CUT_ANEW)
        assert found["outcome"]["result"] == "done", found
        ran = h200s.take_ran()
        assert ran[:2] == ["mig -i 2 -dci -gi 2", "mig -i 2 -dgi -gi 2"], ran
        assert "4g.71gb@0" in h200s.layouts[2]
        found = move(gateway, None)
        assert (shares(found), found["by"]) == ({"a": "cuda:0 whole:1", "b": "cuda:1 whole:1"}, "file")
        assert h200s.take_ran() == []
        assert h200s.mps_folders() == []
    assert tally.ended == {"200": tally.asked}


def test_instances_that_are_there_are_served_and_no_other_is_made_unasked(
    a100s: Machine, tmp_path: Path
) -> None:
    slices = (
        '{name: c, device: "cuda:0", share: "mig:3g.20gb"}, {name: p, device: "cuda:1", '
        'share: "mig:7g.40gb", processes: 2}, {name: t, device: "cuda:3", share: time, count: 2}'
    )
    config = write_home(tmp_path, slices)
    before = a100s.layouts
    with served(config, a100s) as gateway, asked(gateway.rest, MODELS) as tally:
        assert sorted(workers(gateway)) == ["c", "p-1", "p-2", "t-1", "t-2"]
        new = {"slices": [gpu("n", 2, "mig:2g.10gb"), gpu("c", 0, "mig:3g.20gb")]}
        status, told = request(gateway, "PUT", {**new, "models": on(["n"], ["c"])})
        assert status == 400
        assert "mig: {recut: true}" in told["reasons"][0]
        assert sorted(workers(gateway)) == ["c", "p-1", "p-2", "t-1", "t-2"]
    assert tally.ended == {"200": tally.asked}
    assert (a100s.take_ran(), a100s.layouts) == ([], before)


def write_profiles(folder: Path) -> None:
    """By them a row takes 300 us on all of an H200, and rather more on a part of it."""
    for share, part in {"whole:1": 1.0, "mps:50": 0.5, "mig:3g.71gb": 0.2}.items():
        points = tuple(
            Point(0, rows, (1000 + 300 * rows) / part, 1.1 * (1000 + 300 * rows) / part, 30)
            for rows in (1, 2, 4, 8)
        )
        for model in MODELS:
            profile = Profile(model, "default", KIND, points, share=Share.parse(share))
            ProfileStore(folder).write(profile)


def place(gateway: GatewayProcess, config: Path, rows: int) -> str:
    """What `penstock place --apply` prints, for so many rows a second of each model."""
    command = [sys.executable, "-m", "router.cli", "place", str(config), "--apply", "--limit-s", "1"]
    command += [
        "--rates",
        f"first={rows},second={rows}",
        "--url",
        f"http://{gateway.admin}",
        "--seconds",
        "1",
    ]
    ended = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=TALK_S, check=False)
    assert ended.returncode == 0, f"{ended.stdout}\n{ended.stderr}\n{gateway.output}"
    assert ended.stderr.splitlines()[-1].startswith("applied in ")
    return ended.stdout


def test_plans_for_gpus_are_applied_under_load_with_their_own_commands(
    environ: Callable[[Machine], None], tmp_path: Path
) -> None:
    config = write_home(tmp_path, WHOLE, "mig: {recut: true}\n")
    write_profiles(tmp_path / "profiles")
    with standing_in("h200", "h200", "h200:") as machine:
        environ(machine)
        with served(config, machine) as gateway, asked(gateway.rest, MODELS) as tally:
            assert "cuda:0 changes its kind of share: the gateway drains such a GPU" in place(
                gateway, config, 600
            )
            assert set(shares(request(gateway, "GET")[1]).values()) == {"cuda:0 mps:50"}
            assert machine.take_ran() == []
            place(gateway, config, 2000)
            kinds = {each.partition(" ")[2] for each in shares(request(gateway, "GET")[1]).values()}
            assert kinds == {"mps:50", "mig:3g.71gb"}
            assert machine.take_ran() == ["mig -i 2 -cgi 9:0,9:4 -C"]
            found = move(gateway, None)
            assert (shares(found), found["by"]) == ({"a": "cuda:0 whole:1", "b": "cuda:1 whole:1"}, "file")
    assert tally.ended == {"200": tally.asked}


def test_an_applied_placement_on_a_gpu_that_is_gone_is_passed_over(h200s: Machine, tmp_path: Path) -> None:
    config = write_home(tmp_path, WHOLE)
    with served(config, h200s) as gateway:
        alone = {"slices": [gpu("z", 7, "whole")], "models": on(["z"], ["z"])}
        assert move(gateway, alone)["outcome"]["result"] == "done"
    h200s.set(7, "-h200")
    with served(config, h200s) as gateway, asked(gateway.rest, MODELS) as tally:
        assert sorted(shares(request(gateway, "GET")[1])) == ["a", "b"]
        assert "is passed over: it uses cuda:7 (there is no cuda:7 here" in gateway.output
        await_true(lambda: tally.answered > 20, gateway)
    h200s.set(1, "-h200")
    for each in range(2, 7):
        h200s.set(each, "-h200")
    assert "no such GPU here; got cuda:1, there is cuda:0" in GatewayProcess.refused(config)


def test_whoever_is_killed_in_a_move_nothing_is_left_and_all_is_served_again(
    h200s: Machine, tmp_path: Path
) -> None:
    config = write_home(tmp_path, WHOLE, "mig: {recut: true}\n")
    hold = tmp_path / "second" / "hold"
    gateway = GatewayProcess.start(config, tmp_path / "log")
    with asked(gateway.rest, MODELS) as tally:
        hold.touch()
        assert request(gateway, "PUT", MIXED)[0] == 202
        until(gateway, lambda found: "second default is loading on g2" in found["progress"]["waiting"])
        kill(running(gateway, "g1"))  # of the instances, which come first
        hold.unlink()
        until(gateway, lambda _: h200s.mps_folders())
        hold.touch()
        until(gateway, lambda found: "second default is loading on m2" in found["progress"]["waiting"])
        kill(*pids(h200s, "mps_twin")[:1])  # the daemon; its guard ends with it
        kill(running(gateway, "m1"))
        hold.unlink()
        found = until(gateway, lambda found: not found["moving"])
        assert found["outcome"]["result"] == "done", found
        kill(*pids(h200s, "mps_guard"))
        kill(running(gateway, "m2"))
        until(gateway, lambda _: gateway.get("/v2/health/ready")[0] == 200)
    assert sum(tally.ended.values()) == tally.asked
    assert tally.answered > tally.asked / 2
    kill(*pids(h200s, "mps_guard"), gateway.process.pid)
    gateway.process.wait()
    await_true(lambda: not h200s.processes(), gateway)
    with served(config, h200s) as gateway:
        assert shares(request(gateway, "GET")[1])["m2"] == "cuda:0 mps:60"
        assert len(h200s.mps_folders()) == 1  # what was left of the first is gone
        with asked(gateway.rest, MODELS) as tally:
            await_true(lambda: tally.answered > 20, gateway)
        assert tally.ended == {"200": tally.asked}
        hold.touch()
        assert request(gateway, "PUT", CUT_ANEW)[0] == 202
        until(gateway, lambda found: "second default is loading on g4" in str(found["progress"]["waiting"]))
        kill(gateway.process.pid)
        gateway.process.wait()
        hold.unlink()
        await_true(lambda: not h200s.processes() and not h200s.mps_folders(), gateway)
        again = GatewayProcess.start(config, tmp_path / "again")
        gateway.process = again.process
        assert sorted(shares(request(again, "GET")[1])) == ["b", "g3", "g4", "m1"]
        assert sorted(workers(again)) == ["b", "g3", "g4", "m1"]


CASES = [
    *((who, body, step) for who in ("gateway", "worker") for body in (MIXED, None) for step in (1, 2, 3)),
    *((who, body, step) for who in ("daemon", "guard") for body, step in ((MIXED, 3), (None, 1), (None, 2))),
]
PROGRAMS = {"daemon": "mps_twin", "guard": "mps_guard"}


def victims(who: str, gateway: GatewayProcess, machine: Machine) -> list[int]:
    """The process to kill; none where it has not started or is over already."""
    if who == "gateway":
        return [gateway.process.pid]
    if who == "worker":
        return [pid for pid in workers(gateway).values() if pid][-1:]
    return pids(machine, PROGRAMS[who])[:1]


@pytest.mark.parametrize(
    ("who", "body", "step"),
    some(CASES, 3),
    ids=lambda each: each if isinstance(each, str) else "there" if each is MIXED else each or "back",
)
def test_a_kill_at_any_step_of_a_move_there_or_back_is_survived(
    who: str, body: object, step: int, h200s: Machine, tmp_path: Path
) -> None:
    config = write_home(tmp_path, WHOLE, "mig: {recut: true}\n")
    names = ["b", "g1", "g2", "m1", "m2"] if body else ["a", "b"]
    with served(config, h200s) as gateway:
        if body is None:
            move(gateway, MIXED)
        with asked(gateway.rest, MODELS) as tally:
            assert request(gateway, "PUT" if body else "DELETE", body)[0] == 202
            until(gateway, lambda found: found["progress"]["step"] >= step or not found["moving"])
            for pid in victims(who, gateway, h200s):
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            if who != "gateway":
                found = until(gateway, lambda found: not found["moving"])
                assert found["outcome"]["result"] == "done", found
        assert sum(tally.ended.values()) == tally.asked
        if who == "gateway":
            gateway.process.wait()
            await_true(lambda: not h200s.processes(), gateway)
            assert h200s.mps_folders() == []
            gateway.__dict__.update(GatewayProcess.start(config, tmp_path / "again").__dict__)
        assert sorted(shares(request(gateway, "GET")[1])) == names
        await_true(lambda: gateway.get("/v2/health/ready")[0] == 200, gateway)
        with asked(gateway.rest, MODELS) as tally:
            await_true(lambda: tally.answered > 20, gateway)
        assert tally.ended == {"200": tally.asked}
