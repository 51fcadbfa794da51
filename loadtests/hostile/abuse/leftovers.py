"""What is left where a worker ends: processes that its model started, and a gateway without descriptors."""

import contextlib
import os
import resource
import signal
import socket
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from loadtests.harness.gateway import Gateway, model_entry, started
from loadtests.harness.processes import command_line
from loadtests.harness.wire import ask, post
from loadtests.hostile.abuse.bombs import Attack
from loadtests.hostile.abuse.hostile import PATH, PATIENCE_S, good_body, is_right
from loadtests.hostile.abuse.loads import MODEL_PY, MODEL_YAML
from loadtests.hostile.abuse.others import Broken

CHILDREN: Final = 3
NAP_S: Final = "86399.75"
"""For which the children of the model sleep: so they are found by their command line."""
FORKING: Final = f"""
import subprocess
for _ in range({CHILDREN}):
    subprocess.Popen(["sleep", "{NAP_S}"], start_new_session=True)
"""
SPARE: Final = 8  # descriptors that the gateway has left before the attack
WITHOUT_S: Final = 2.0
BACK_S: Final = 30.0


def attacks() -> Iterator[Attack]:
    name = f"workers: killed, with {CHILDREN} children of their model"
    yield Attack(name, 0, _kill_parent, own=_forking, refuses=True)
    yield Attack("descriptors: none left as a worker is killed", 0, _drain, own=_simple, refuses=True)


@contextlib.contextmanager
def _forking() -> Iterator[Gateway]:
    with tempfile.TemporaryDirectory(prefix="penstock-") as folder:
        place = Path(folder, "forking")
        place.mkdir()
        (place / "model.yaml").write_text(MODEL_YAML.format(name="forking"))
        (place / "model.py").write_text(FORKING + MODEL_PY)
        entry: dict[str, object] = {"path": str(place), "slices": ["measured"]}
        with started([model_entry("simple", slo_ms=5000), entry]) as gateway:
            yield gateway


@contextlib.contextmanager
def _simple() -> Iterator[Gateway]:
    with started([model_entry("simple", slo_ms=5000)]) as gateway:
        yield gateway


def _kill_parent(gateway: Gateway) -> str:
    """Return those that the next worker's model starts are others."""
    old = _children()
    if len(old) < CHILDREN:
        raise Broken(f"the model has {len(old)} children: there is nothing to see")
    _kill_workers(gateway)
    began_s = time.monotonic()
    while left := old & _children():
        if time.monotonic() - began_s > BACK_S:
            raise Broken(f"{len(left)} of {len(old)} children are left after {BACK_S:.0f} s")
        time.sleep(0.01)
    gone_s = time.monotonic() - began_s
    return f"all {len(old)} children are gone after {gone_s:.2f} s; right again {_until_right(gateway)}"


def _children() -> set[int]:
    places = Path("/proc").glob("[0-9]*")
    return {int(place.name) for place in places if command_line(int(place.name)) == f"sleep {NAP_S}"}


def _drain(gateway: Gateway) -> str:
    """Return its limit falls to what it has and SPARE more; clients take those; then its workers are
    killed."""
    most = len(os.listdir(f"/proc/{gateway.pid}/fd")) + SPARE
    _, hard = resource.prlimit(gateway.pid, resource.RLIMIT_NOFILE)
    resource.prlimit(gateway.pid, resource.RLIMIT_NOFILE, (most, hard))
    with contextlib.ExitStack() as held:
        for _ in range(2 * SPARE):
            held.enter_context(socket.create_connection((gateway.host, gateway.rest_port), PATIENCE_S))
        _kill_workers(gateway)
        time.sleep(WITHOUT_S)
        had = len(os.listdir(f"/proc/{gateway.pid}/fd"))
    back = _until_right(gateway)
    return f"{had} of {most} descriptors in use; right again {back} once they are free"


def _kill_workers(gateway: Gateway) -> None:
    for worker in gateway.workers():
        with contextlib.suppress(ProcessLookupError):
            os.kill(worker, signal.SIGKILL)


def _until_right(gateway: Gateway) -> str:
    began_s = time.monotonic()
    while time.monotonic() - began_s < BACK_S:
        with contextlib.suppress(OSError):
            if is_right(ask(gateway, post(PATH, good_body()), PATIENCE_S)):
                return f"within {time.monotonic() - began_s:.1f} s"
        time.sleep(0.1)
    raise Broken(f"no right answer within {BACK_S:.0f} s")
