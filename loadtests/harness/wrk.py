"""Runs wrk on exact request bytes, and reads what it saw."""

import json
import os
import shutil
import subprocess
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path

# wrk's summary counts statuses above 399 only; the bytes an answer tell the rest.
_SCRIPT = """
local file = assert(io.open("{body}", "rb"))
wrk.method = "POST"
wrk.path = "{path}"
wrk.body = file:read("*a")
file:close()
{headers}
function done(summary, latency)
  local e = summary.errors
  io.write(string.format(
    'RESULT {{"seconds": %.6f, "requests": %d, "bytes": %d, "errors": %d, "p50_us": %d, "p99_us": %d}}\\n',
    summary.duration / 1e6, summary.requests, summary.bytes,
    e.connect + e.read + e.write + e.status + e.timeout, latency:percentile(50), latency:percentile(99)))
end
"""
_VARIED = """
local before, after, count = wrk.body:sub(1, {before}), wrk.body:sub({after}), {start}
function request()
  count = count + 1
  return wrk.format(nil, nil, nil, before .. string.format("%08d", count) .. after)
end
"""


@dataclass(frozen=True, slots=True)
class Seen:
    """One run: `errors` are failed connections, reads and writes, timeouts and statuses above 399."""

    seconds: float
    requests: int
    bytes: int
    errors: int
    p50_us: int
    p99_us: int

    @property
    def answer_bytes(self) -> float:
        return self.bytes / max(self.requests, 1)


@dataclass(frozen=True, slots=True)
class Varied:
    """No two requests alike: eight bytes of the body from `place` on count up from `start`."""

    place: int
    start: int


@dataclass(frozen=True, slots=True)
class Wrk:
    """wrk with one thread, `connections` kept alive, on the given cores."""

    script: Path
    connections: int
    seconds: int
    cores: Collection[int]

    def run(self, port: int) -> Seen:
        """Play one closed-loop run. Raises RuntimeError with wrk's own words if it failed."""
        command = [
            "wrk", "-t1", f"-c{self.connections}", f"-d{self.seconds}s", "--timeout", "10s",
            "-s", str(self.script), f"http://127.0.0.1:{port}",
        ]  # fmt: skip
        done = subprocess.run(command, capture_output=True, text=True, preexec_fn=self._pin, check=False)
        for line in done.stdout.splitlines():
            if line.startswith("RESULT "):
                return Seen(**json.loads(line.removeprefix("RESULT ")))
        raise RuntimeError(f"wrk failed ({done.returncode}): {done.stdout}{done.stderr}")

    def _pin(self) -> None:
        os.sched_setaffinity(0, self.cores)


def write_script(
    folder: Path, path: str, headers: Mapping[str, str], body: bytes, varied: Varied | None = None
) -> Path:
    """Return the Lua script that makes wrk send this request, or requests like it."""
    (folder / "body.bin").write_bytes(body)
    lines = "\n".join(f'wrk.headers["{name}"] = "{value}"' for name, value in headers.items())
    text = _SCRIPT.format(body=folder / "body.bin", path=path, headers=lines)
    if varied is not None:
        text += _VARIED.format(before=varied.place, after=varied.place + 9, start=varied.start)
    script = folder / "request.lua"
    script.write_text(text)
    return script


def missing() -> str:
    """Return what to say where wrk is not there; "" where it is."""
    if shutil.which("wrk"):
        return ""
    return "wrk is not installed; it is the load generator of this measurement (Debian: apt-get install wrk)"
