"""`penstock up`: a gateway with all of its nodes on this machine, to try a file with nodes.

Each node is an agent in a process of its own, or with `--ray` a node of a local Ray cluster on which Ray
keeps the agent. What ends is started again, as systemd or Kubernetes would. A signal ends the gateway, then
the rest.
"""

import asyncio
import os
import secrets
import signal
import socket
import sys
import tempfile
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from subprocess import STDOUT
from typing import IO, Final

from router.logs.logs import say
from router.settings import Settings, SettingsError, load_settings
from serving.runtime.cells.address import ANYWHERE
from serving.runtime.nodes.dialing import Gateway
from serving.values.nodes import TOKEN_ENV
from serving.worker.process.confined import follow

REST_S: Final = 1.0
"""Before a part is started again."""
LOOK_S: Final = 0.1
STAGGER_S: Final = 4.0
"""Between the starts of two Ray nodes: of two that start at once on one machine, one may wait for 30 s."""
END_S: Final = 15.0
"""What a part may take to end before it is killed; an agent leaves in 5 s."""
HOST: Final = "127.0.0.1"


class UpError(Exception):
    """The file cannot be tried so; the text says why, and what would be right."""


def up(config: Path, with_ray: bool) -> int:
    """Serve the file with its nodes here until a signal; returns the gateway's exit code, 1 for a file that
    cannot be tried."""
    if with_ray and find_spec("ray") is None:
        raise ModuleNotFoundError(name="ray")
    made_up = TOKEN_ENV not in os.environ
    os.environ.setdefault(TOKEN_ENV, secrets.token_hex(16))
    try:
        settings = load_settings(config)
        door, nodes = door_and_nodes(settings)
    except (SettingsError, UpError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    where = "a Ray cluster here" if with_ray else "processes here"
    say(f"nodes {', '.join(nodes)} are of {where}, and share this machine's cores")
    if made_up:
        say(f"{TOKEN_ENV} is made up for this run")
    with tempfile.TemporaryDirectory(prefix="penstock-up-") as folder, Path(folder, "ray").open("wb") as log:
        parts = ray_parts(door, nodes, folder) if with_ray else agent_parts(door, nodes, folder)
        return asyncio.run(_up(config, parts, log))


def door_and_nodes(settings: Settings) -> tuple[str, tuple[str, ...]]:
    """Return where nodes call, and their names. Raises UpError if there are none, or they cannot call."""
    spec = settings.nodes
    if spec is None or not spec.names:
        raise UpError("penstock up: the file has no node to play; expected `node:` in an entry of `slices:`")
    if not spec.port:
        raise UpError("penstock up: nodes.port: nodes cannot call at port 0; expected a port, such as 8005")
    return str(Gateway(HOST if spec.host in ANYWHERE else spec.host, spec.port)), spec.names


@dataclass(frozen=True, slots=True)
class Part:
    """A command that starts `wait_s` after somebody listens at `after` (HOST:PORT), at once without one."""

    command: Sequence[str]
    after: str = ""
    wait_s: float = 0.0


async def _up(config: Path, parts: Sequence[Part], log: IO[bytes]) -> int:
    """Run the gateway, and these commands beside it. `log`: for what Ray prints."""
    stopping = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stopping.set)
    gateway = await _start([sys.executable, "-m", "router.cli", "serve", "--config", str(config)])
    kept = [Kept(part, log if part.command[0].endswith("ray") else None) for part in parts]
    ended, stopped = asyncio.create_task(gateway.wait()), asyncio.create_task(stopping.wait())
    await asyncio.wait([ended, stopped], return_when=asyncio.FIRST_COMPLETED)
    if not ended.done():
        gateway.terminate()
    code = await ended
    for each in reversed(kept):  # agents before the engine that keeps them
        await each.end()
    stopped.cancel()
    return code


def agent_parts(door: str, nodes: Sequence[str], folder: str) -> list[Part]:
    """Return the agents, one for each node."""
    agent = [sys.executable, "-m", "router.cli", "node", "--join", door]
    return [Part([*agent, "--name", name, "--cache", f"{folder}/{name}"]) for name in nodes]


def ray_parts(door: str, nodes: Sequence[str], folder: str) -> list[Part]:
    """Return a Ray cluster with these nodes, and what places agents there."""
    ray = str(Path(sys.executable).with_name("ray"))
    address, client = f"{HOST}:{_free_port()}", str(_free_port())
    head = [ray, "start", "--head", "--block", "--num-cpus", "0", "--include-dashboard", "false"]
    head += ["--node-name", "head", "--node-ip-address", HOST, "--port", address.rpartition(":")[2]]
    head += ["--ray-client-server-port", client]
    other = [ray, "start", "--block", "--address", address, "--node-ip-address", HOST, "--num-cpus", "1"]
    others = [Part([*other, "--node-name", name], address, at * STAGGER_S) for at, name in enumerate(nodes)]
    agents = [sys.executable, "-m", "router.cli", "node", "--join", door, "--ray", address]
    return [Part(head), *others, Part([*agents, "--cache", f"{folder}/models"], address)]


class Kept:
    """A part that is started again when it ends. `output`: None for this process's own."""

    def __init__(self, part: Part, output: IO[bytes] | None) -> None:
        self._part = part
        self._output = output
        self._process: asyncio.subprocess.Process | None = None
        self._task = asyncio.create_task(self._keep())

    async def _keep(self) -> None:
        while True:
            if self._part.after:
                await _listener(self._part.after)
                await asyncio.sleep(self._part.wait_s)
            self._process = await _start(self._part.command, self._output)
            await self._process.wait()
            await asyncio.sleep(REST_S)

    async def end(self) -> None:
        """End it, with all that it has started."""
        self._task.cancel()
        process = self._process
        if process is None or process.returncode is not None:
            return
        process.terminate()
        with suppress(TimeoutError):
            async with asyncio.timeout(END_S):
                await process.wait()
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


async def _start(command: Sequence[str], output: IO[bytes] | None = None) -> asyncio.subprocess.Process:
    """Start a process that does not hear Ctrl-C: this one passes it on."""
    return await asyncio.create_subprocess_exec(
        *command,
        stdout=output,
        stderr=None if output is None else STDOUT,
        env={**os.environ, "RAY_USAGE_STATS_ENABLED": "0"},
        start_new_session=True,
        preexec_fn=partial(follow, os.getpid(), signal.SIGTERM),  # it ends also if this one is killed
    )


async def _listener(address: str) -> None:
    """Wait until somebody listens there."""
    host, _, port = address.rpartition(":")
    while True:
        try:
            _, writer = await asyncio.open_connection(host, int(port))
        except OSError:
            await asyncio.sleep(LOOK_S)
        else:
            writer.close()
            return


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind((HOST, 0))
        port: int = sock.getsockname()[1]
        return port
