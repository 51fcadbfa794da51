"""An MPS control daemon of our own: its pipes and log in a private folder, gone when we stop or die."""

import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Final

from serving.runtime.clocks.clock import now_us
from serving.runtime.slicing.contract import SlicingError
from serving.runtime.slicing.mps import mps_text
from serving.runtime.slicing.mps.mps_folder import LOGS, end_servers, make_folder

CONTROL: Final = "nvidia-cuda-mps-control"
_GUARD: Final = str(Path(__file__).with_name("mps_guard.py"))
_START_US: Final = (
    10_000_000  # it listens 5 ms after its start (measured, version 535); a loaded machine is slower
)
_ANSWER_S: Final = 10.0
_STOP_S: Final = 15.0
FOLDER_BYTES_MAX: Final = 88  # with "/control_privileged" what a Unix socket's name may be (sun_path, 108)


class MpsDaemon:
    """The daemon of one GPU; `visible` is its UUID. Starting and asking block."""

    def __init__(self, visible: str, control: str = CONTROL, options: tuple[str, ...] = ()) -> None:
        self.visible = visible
        self._control = control
        self._options = options
        self._folder = ""
        self._lock = -1
        self._guard: subprocess.Popen[bytes] | None = None

    @property
    def folder(self) -> str:
        """Where its pipes are: what clients know it by. "" while it does not run."""
        return self._folder

    def start(self) -> None:
        """Start the daemon, unless it runs and answers. Raises SlicingError, and leaves nothing, if it cannot
        be started."""
        if self.answers():
            return
        self.stop()
        program = shutil.which(self._control)
        if program is None:
            raise SlicingError(f"{self._control} is not there; NVIDIA's driver brings it")
        self._folder, self._lock = make_folder()
        try:
            if len(os.fsencode(self._folder)) > FOLDER_BYTES_MAX:
                raise SlicingError(f"{self._folder} is too long for a socket's folder; set TMPDIR")
            self._guard = subprocess.Popen(  # noqa: S603  # nothing of it comes from a client
                [sys.executable, "-I", "-S", _GUARD, self._folder, program, *self._options],
                stdin=subprocess.PIPE, stdout=subprocess.DEVNULL,
                env=self._environment(), start_new_session=True, pass_fds=(self._lock,),
            )  # fmt: skip
            self._await_answer(self._guard)
        except BaseException:
            self.stop()
            raise

    def ask(self, command: str) -> str:
        """Return what the daemon says to a command; SlicingError where it is not there or says that it
        cannot."""
        text = self._said(command)
        if said := mps_text.complaint(text):
            raise SlicingError(f"{self._control} {command}: {said}")
        return text

    def answers(self) -> bool:
        """Return whether it runs and is ours to ask."""
        if self._guard is None or self._guard.poll() is not None:
            return False
        try:
            return mps_text.percentage(self._said("get_default_active_thread_percentage")) is not None
        except SlicingError:
            return False

    def clients(self) -> tuple[int, ...]:
        """Return the processes that compute through it. CUDA programs go on without MPS where they cannot
        reach the daemon, and say nothing: only this shows that a worker has its share."""
        servers = mps_text.pids(self.ask("get_server_list"))
        return tuple(
            pid for server in servers for pid in mps_text.pids(self.ask(f"get_client_list {server}"))
        )

    def terminate(self, pid: int) -> None:
        """End the outstanding work of a client, without harm to the others; nothing if it is no client.

        Raise SlicingError if the daemon does not answer or refuses.
        """
        for server in mps_text.pids(self.ask("get_server_list")):
            if pid in mps_text.pids(self.ask(f"get_client_list {server}")):
                self.ask(f"terminate_client {server} {pid}")

    def stop(self) -> None:
        """End it with its servers; their last clients have 2 s to go."""
        if self._guard is not None:
            if self._guard.stdin is not None:
                self._guard.stdin.close()
            try:
                self._guard.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                self._guard.kill()
                self._guard.wait()
        if self._folder:
            end_servers(self._folder)  # where the guard was killed
            shutil.rmtree(self._folder, ignore_errors=True)
        if self._lock >= 0:
            os.close(self._lock)
        self._guard, self._folder, self._lock = None, "", -1

    def _await_answer(self, guard: "subprocess.Popen[bytes]") -> None:
        deadline_us = now_us() + _START_US
        while not self.answers():
            ended = guard.poll()
            if ended is not None or now_us() > deadline_us:
                how = f"ended with status {ended}" if ended is not None else "does not answer"
                said = mps_text.log_tail(self._log()) or "nothing"
                command = " ".join((self._control, "-f", *self._options))
                raise SlicingError(f"{command} {how}; it said: {said}")
            time.sleep(0.01)  # it does not announce that it listens

    def _log(self) -> str:
        path = Path(self._folder, "control.log")
        return path.read_text("utf-8", "replace") if path.exists() else ""

    def _said(self, command: str) -> str:
        if not self._folder:
            raise SlicingError(f"{self._control} {command}: the daemon does not run")
        try:
            done = subprocess.run(  # noqa: S603
                [self._control], input=f"{command}\n", text=True, capture_output=True,
                timeout=_ANSWER_S, check=False, env=self._environment(),
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as error:
            raise SlicingError(f"{self._control} {command}: {error}") from None
        if done.returncode != 0:
            raise SlicingError(f"{self._control} {command}: {done.stderr.strip() or done.stdout.strip()}")
        return done.stdout

    def _environment(self) -> dict[str, str]:
        # Limits that the gateway itself was given would cap all servers.
        ours = {name: value for name, value in os.environ.items() if not name.startswith("CUDA_MPS_")}
        folder = {"CUDA_MPS_PIPE_DIRECTORY": self._folder, LOGS: self._folder}
        return {**ours, **folder, "CUDA_VISIBLE_DEVICES": self.visible}
