"""Speaks as nvidia-cuda-mps-control does, without a GPU: `-f` is the daemon, no option asks it.

What version 535.261 answers is tests/runtime/slicing/captured/mps-535.txt. With `-S` it divides the GPU of
GPU_UUID into CHUNKS chunks, as NVIDIA documents it for CUDA 13.1. MPS_TWIN makes it do less than it says.

On a machine of tests/gpus/machine.py (NVIDIA_STANDIN) it is a daemon of the GPU that it is shown. Its clients
are the processes there that were started with its pipes.
"""

import json
import os
import re
import socket
import sys
from pathlib import Path

GPU_UUID = "GPU-74d43ed3-cdf7-e667-3644-bf5b4f46ed65"
CHUNKS = 16
SMS_PER_CHUNK = 8
DIVIDED = {"h200": (16, 8), "a100": (27, 4)}
"""By kind of GPU: chunks, and multiprocessors of each."""
SERVER = "4711"
STANDIN, PIPES, LOGS = "NVIDIA_STANDIN", "CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY"
ENDED: set[str] = set()
"""Clients that it was told to terminate, on such a machine."""


class Daemon:
    """What it keeps: the default percentage, memory limits by device, and with `-S` chunks by partition."""

    def __init__(self, static: bool) -> None:
        self.percentage = float(os.environ.get("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "100"))
        self.limits: dict[str, str] = {}
        self.partitions: dict[str, int] | None = {} if static else None

    def serve(self, path: str) -> int:
        log(f"Starting control daemon using socket {path}")
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(path)
            server.listen()
            while True:
                connection, _ = server.accept()
                with connection, connection.makefile("r") as lines:
                    for line in lines:
                        log(f"Cmd:{line.strip()}")
                        command, *words = line.split() or [""]
                        if command == "quit":
                            return 0
                        connection.sendall(self.answer(command, words).encode())

    def answer(self, command: str, words: list[str]) -> str:
        match command:
            case "get_default_active_thread_percentage" | "set_default_active_thread_percentage":
                if words and 0 < float(words[0]) <= 100:
                    self.percentage = float(words[0])
                elif words:
                    log("Invalid percentage, expected between (0.0, 100.0]")
                return f"{self.percentage}\n"
            case "set_default_device_pinned_mem_limit":
                self.limits[words[0]] = words[1]
                return ""
            case "get_default_device_pinned_mem_limit":
                return f"{self.limits[words[0]]}\n" if words[0] in self.limits else ""
            case "get_client_list":
                if words[0] != SERVER or not clients():
                    return f"Server {words[0]} not found\n"
                return "".join(f"{pid}\n" for pid in clients())
            case "terminate_client":
                return terminate(words)
            case "ps":
                return "Server not found\n"
            case "get_server_list":
                return f"{SERVER}\n" if clients() else ""
            case "sm_partition" | "lspart" if self.partitions is not None:
                return divide(self.partitions, words)
        return f'Unknown command "{command}"\n'


def clients() -> list[str]:
    """The clients of its one server: those that the file named by MPS_CLIENTS lists.

    On a machine of tests/gpus/machine.py they are processes. A process with children is the keeper of a
    worker, and computes nothing. CUDA makes a client of a process that computes; here one that has the pipes
    and computes nothing is a client too. Those of the daemon's own side have a folder for logs too.
    """
    if STANDIN not in os.environ:
        path = os.environ.get("MPS_CLIENTS")
        return Path(path).read_text().split() if path and Path(path).exists() else []
    there: list[str] = []
    for process in Path("/proc").iterdir():
        try:
            environ = (process / "environ").read_bytes().split(b"\0") if process.name.isdecimal() else []
            children = (process / "task" / process.name / "children").read_text() if environ else ""
        except OSError:  # it has ended, or is another user's
            continue
        ours = all(f"{name}={os.environ[name]}".encode() in environ for name in (STANDIN, PIPES))
        if (
            ours
            and not children
            and process.name not in ENDED
            and not any(each.startswith(f"{LOGS}=".encode()) for each in environ)
        ):
            there.append(process.name)
    return there


def terminate(words: list[str]) -> str:
    """End the work of a client, after NVIDIA's documentation; with MPS_TWIN=stuck it cannot."""
    server, pid = words
    there = clients()
    if server != SERVER or pid not in there:
        return f"Failed to find client {pid} of server {server}\n"
    if os.environ.get("MPS_TWIN") == "stuck":
        return f"Failed to terminate client {pid}\n"
    if STANDIN in os.environ:
        ENDED.add(pid)
        return ""
    Path(os.environ["MPS_CLIENTS"]).write_text("\n".join(each for each in there if each != pid))
    return ""


def divided() -> tuple[str, int, int]:
    """UUID of the GPU, chunks, and multiprocessors of a chunk."""
    if STANDIN not in os.environ:
        return GPU_UUID, CHUNKS, SMS_PER_CHUNK
    uuid = os.environ["CUDA_VISIBLE_DEVICES"]
    gpus = json.loads(Path(os.environ[STANDIN]).read_text())["gpus"]
    kind = gpus[int(uuid.removeprefix("GPU-"))].lstrip("-")[:4]
    return uuid, *DIVIDED[kind]


def log(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def divide(partitions: dict[str, int], words: list[str]) -> str:
    gpu, there, sms = divided()
    if not words:
        taken = sum(partitions.values())
        rows = [f"{gpu[:12]} - {there - taken} {taken} {sms * (there - taken)} {sms * taken} -"]
        rows += [f"{gpu[:12]} {own} - {n} - {sms * n} No" for own, n in partitions.items()]
        return "\n".join(["GPU Partition free used free used clients", *rows, ""])
    verb, uuid, what = words
    if uuid != gpu:
        return f"Failed to find device {uuid}\n"
    if verb == "rm":
        return "" if partitions.pop(what, None) else f"Failed to remove the SM partition {what}\n"
    chunks = int(what)
    if sum(partitions.values()) + chunks > there:
        return (
            f"Failed to fulfill the requested SM partition of {chunks} chunks, error "
            "CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION\n"
        )
    if os.environ.get("MPS_TWIN") == "forgets":
        return f"Partition {uuid}/Dx99AAAA created\n"
    chunks -= os.environ.get("MPS_TWIN") == "is short"
    own = next(f"Dx{n:02}AAAA" for n in range(100) if f"Dx{n:02}AAAA" not in partitions)
    partitions[own] = chunks
    return f"Partition {uuid}/{own} created\n"


def ask(path: str) -> int:
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(path)
        except OSError:
            sys.stderr.write("Cannot find MPS control daemon process\n")
            return 1
        connection.sendall(sys.stdin.read().encode())
        connection.shutdown(socket.SHUT_WR)
        while part := connection.recv(4096):
            sys.stdout.write(part.decode())
    return 0


def main() -> int:
    path = str(Path(os.environ["CUDA_MPS_PIPE_DIRECTORY"], "control"))
    return Daemon("-S" in sys.argv).serve(path) if "-f" in sys.argv else ask(path)


def captured(text: str) -> list[tuple[str, str]]:
    """Commands and their answers, of a text with a line `> command` before each answer."""
    return re.findall(r"^> (.*)\n((?:[^>].*\n)*)", text, re.MULTILINE)


if __name__ == "__main__":
    sys.exit(main())
