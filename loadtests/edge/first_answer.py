"""From nothing to the first answer of an own Python function, with Penstock and with peers.

  python -m loadtests.edge.first_answer --wheel dist/penstock-*.whl

Each contender gets an empty environment and an empty folder. pip installs it, its files are written, its
command starts, and an HTTP request is repeated until one is answered. The table has the seconds of the
installation, the seconds from the command to the answer, the lines of the files, and the MB of the
environment (`du -sm`). MLServer 1.7 does not start with later uvloops. How long an installation takes depends
on the package index and its distance.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

WAIT_S = 120.0


@dataclass(frozen=True, slots=True)
class Contender:
    """`packages`: for pip; `file` and `code`: what a user writes, with `more` files by name; `command`: of
    the environment's programs; `path` and `body`: of the request."""

    name: str
    packages: Sequence[str]
    file: str
    code: str
    command: Sequence[str]
    port: int
    path: str
    body: str
    more: Mapping[str, str] = field(default_factory=dict)


PENSTOCK_CODE = """\
import numpy as np

def predict(x):
    return x * 2

def sample(rows):
    return {"x": np.ones((rows, 4), np.float32)}
"""
LITSERVE_CODE = """\
import litserve as ls
import numpy as np

class Doubled(ls.LitAPI):
    def setup(self, device):
        pass

    def decode_request(self, request):
        return np.array(request["x"], np.float32)

    def predict(self, x):
        return x * 2

    def encode_response(self, output):
        return {"output": output.tolist()}

if __name__ == "__main__":
    ls.LitServer(Doubled(max_batch_size=64, batch_timeout=0.005), accelerator="cpu").run(port=8011)
"""
MOSEC_CODE = """\
import numpy as np
from mosec import Server, Worker

class Doubled(Worker):
    def forward(self, data):
        return [{"output": (np.array(each["x"], np.float32) * 2).tolist()} for each in data]

if __name__ == "__main__":
    server = Server()
    server.append_worker(Doubled, num=2, max_batch_size=64, max_wait_time=5)
    server.run()
"""
BENTOML_CODE = """\
import bentoml
import numpy as np

@bentoml.service
class Doubled:
    @bentoml.api(batchable=True)
    def predict(self, x: np.ndarray) -> np.ndarray:
        return x * 2
"""
RAY_CODE = """\
import numpy as np
from ray import serve
from starlette.requests import Request

@serve.deployment
class Doubled:
    @serve.batch(max_batch_size=64, batch_wait_timeout_s=0.005)
    async def double(self, rows):
        return [(np.array(each, np.float32) * 2).tolist() for each in rows]

    async def __call__(self, request: Request):
        return await self.double((await request.json())["x"])

app = Doubled.bind()
"""
MLSERVER_CODE = """\
from mlserver import MLModel
from mlserver.codecs import NumpyCodec
from mlserver.types import InferenceResponse

class Doubled(MLModel):
    async def predict(self, payload):
        x = self.decode(payload.inputs[0], default_codec=NumpyCodec)
        return InferenceResponse(
            model_name=self.name, outputs=[NumpyCodec.encode_output("output", x * 2)]
        )
"""
MLSERVER_SETTINGS = """\
{
  "name": "doubled", "implementation": "model.Doubled",
  "max_batch_size": 64, "max_batch_time": 0.005
}
"""
ROW = "[[1, 2, 3, 4]]"
OIP = '{"inputs":[{"name":"x","shape":[1,4],"datatype":"FP32","data":[1,2,3,4]}]}'


def contenders(wheel: Path) -> list[Contender]:
    """Return what is compared; each needs its own idea of a request."""
    return [
        Contender("Penstock", [str(wheel.resolve())], "doubled.py", PENSTOCK_CODE,
                  ["penstock", "serve", "doubled.py"], 8000, "/v2/models/doubled/infer", OIP),
        Contender("LitServe", ["litserve", "numpy"], "app.py", LITSERVE_CODE,
                  ["python", "app.py"], 8011, "/predict", f'{{"x": {ROW}}}'),
        Contender("mosec", ["mosec", "numpy"], "app.py", MOSEC_CODE,
                  ["python", "app.py", "--port", "8012"], 8012, "/inference", f'{{"x": {ROW}}}'),
        Contender("BentoML", ["bentoml", "numpy"], "service.py", BENTOML_CODE,
                  ["bentoml", "serve", "service:Doubled", "--port", "8013"], 8013, "/predict",
                  f'{{"x": {ROW}}}'),
        Contender("Ray Serve", ["ray[serve]", "numpy"], "app.py", RAY_CODE,
                  ["serve", "run", "app:app"], 8000, "/", f'{{"x": {ROW}}}'),
        Contender("MLServer", ["mlserver", "uvloop<0.22"], "model.py", MLSERVER_CODE,
                  ["mlserver", "start", "."], 8080, "/v2/models/doubled/infer", OIP,
                  {"model-settings.json": MLSERVER_SETTINGS}),
    ]  # fmt: skip


def main() -> int:
    """Return 0 if all contenders answered, 1 if one did not, 2 if there is no wheel."""
    asked = _arguments()
    if not asked.wheel.exists():
        sys.stderr.write(f"first_answer: {asked.wheel} is not there; try `make wheel`\n")
        return 2
    rows = [_row(each) for each in contenders(asked.wheel) if each.name in (asked.only or [each.name])]
    print("| server | lines | pip install, s | to the first answer, s | MB |")
    print("|---|---:|---:|---:|---:|")
    for row in rows:
        print(f"| {' | '.join(row)} |")
    return 1 if any("-" in row for row in rows) else 0


def _row(contender: Contender) -> list[str]:
    with tempfile.TemporaryDirectory(prefix="first-") as name:
        place = Path(name)
        subprocess.run([sys.executable, "-m", "venv", place / "env"], check=True)
        programs = place / "env" / "bin"
        began = time.monotonic()
        command = [str(programs / "python"), "-m", "pip", "install", "--quiet", *contender.packages]
        installed = subprocess.run(command, check=False, stderr=subprocess.DEVNULL).returncode == 0
        install_s = time.monotonic() - began
        files = {contender.file: contender.code, **contender.more}
        for file, code in files.items():
            (place / file).write_text(code)
        answer_s = _answered(contender, programs, place) if installed else None
        size = subprocess.run(["du", "-sm", place / "env"], capture_output=True, text=True, check=True)
        lines = len([line for code in files.values() for line in code.split("\n") if line.strip()])
        told = "-" if answer_s is None else f"{answer_s:.1f}"
        return [contender.name, str(lines), f"{install_s:.0f}", told, size.stdout.split()[0]]


def _answered(contender: Contender, programs: Path, place: Path) -> float | None:
    """Return the seconds from the command to the first answer, None if none came."""
    first, *rest = contender.command
    began = time.monotonic()
    with (place / "log").open("w") as log:
        server = subprocess.Popen(
            [programs / first, *rest], cwd=place, stdout=log, stderr=log, start_new_session=True,
            env={**os.environ, "HOME": str(place)},  # Ray keeps a token there, which others would meet
        )  # fmt: skip
    try:
        for _ in _until(began + WAIT_S):
            if _asked(contender):
                return time.monotonic() - began
            if server.poll() is not None:
                break
        sys.stderr.write(f"{contender.name} did not answer:\n{(place / 'log').read_text()[-2000:]}\n")
        return None
    finally:
        for which in (["-s", str(server.pid)], ["-f", str(programs)]):  # some have workers in other sessions
            subprocess.run(["pkill", "-KILL", *which], check=False)
        server.wait()
        shutil.rmtree(place / ".penstock", ignore_errors=True)


def _asked(contender: Contender) -> bool:
    url = f"http://127.0.0.1:{contender.port}{contender.path}"
    headers = {"Content-Type": "application/json"}
    request = urllib.request.Request(url, contender.body.encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:  # noqa: S310
            return int(answer.status) == 200
    except (urllib.error.URLError, OSError):
        return False


def _until(end: float) -> Iterator[None]:
    while time.monotonic() < end:
        yield
        time.sleep(0.1)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--wheel", type=Path, required=True, help="what `make wheel` wrote")
    parser.add_argument("--only", nargs="+", help="contenders by name")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
