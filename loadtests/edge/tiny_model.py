"""Requests a second of a model that computes next to nothing: the gateway beside Triton and mosec.

Closed loop (wrk), keep-alive, binary tensors, one process with the model each. Servers, model and wrk share
the same cores, and the servers take turns round by round. All rows of a batch come from different requests.

  pip install --no-deps --target FOLDER nvidia-pytriton "numpy<2"
  python3 -m venv OTHER; OTHER/bin/pip install mosec numpy
  python -m loadtests.edge.tiny_model --triton FOLDER --mosec OTHER
"""

import argparse
import os
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

import numpy as np

from loadtests.edge.triton.server import Tuning, triton
from loadtests.harness import wrk
from loadtests.harness.gateway import Gateway, free_ports, running, started
from loadtests.harness.payloads import Contents, Question, Target, make_questions
from loadtests.harness.processes import tree_us
from loadtests.harness.wire import ask

NAME = "tiny"
COLUMNS = 16
ROWS = 64  # of the largest batch
SLO_MS = 1000  # nothing is refused: this is about cost
AIM = 1.5  # times the better of the others
CODE = """\
import numpy as np


class Model:
    def predict(self, inputs, parameters):
        return {"OUTPUT": inputs["INPUT"] + inputs["INPUT"]}

    def sample(self, rows, size):
        return {"INPUT": np.ones((rows, 16), np.float32)}


def load(artifact, options):
    return Model()
"""
YAML = f"""\
name: {NAME}
inputs: [{{name: INPUT, datatype: FP32, shape: [-1, {COLUMNS}]}}]
outputs: [{{name: OUTPUT, datatype: FP32, shape: [-1, {COLUMNS}]}}]
batch_max: {ROWS}
slo_ms: {SLO_MS}
"""


@dataclass(slots=True)
class Subject:
    """A server and what it showed, by connections: requests a second, and CPU of all its processes."""

    name: str
    server: Gateway
    question: Question
    rps: dict[int, list[float]] = field(default_factory=dict)
    cpu_us: dict[int, list[float]] = field(default_factory=dict)
    errors: int = 0

    def check(self) -> None:
        """Raise ValueError if the server answers wrongly."""
        answer, row = ask(self.server, self.question.request), _row(self.question)
        if answer.status != 200 or not answer.body.endswith((row + row).tobytes()):
            raise ValueError(f"{self.name}: {answer.status} {answer.body[:200]!r}")

    def measure(self, load: wrk.Wrk) -> None:
        """Play one round."""
        before_us = tree_us(self.server.pid)
        seen = load.run(self.server.rest_port)
        self.rps.setdefault(load.connections, []).append(seen.requests / seen.seconds)
        spent_us = (tree_us(self.server.pid) - before_us) / max(seen.requests, 1)
        self.cpu_us.setdefault(load.connections, []).append(spent_us)
        self.errors += seen.errors


def questions() -> tuple[Question, Question]:
    """Return the request in Open Inference Protocol, and as bare bytes for mosec."""
    inputs = [{"name": "INPUT", "datatype": "FP32", "shape": [-1, COLUMNS]}]
    (binary,) = make_questions(Target(NAME), {"inputs": inputs}, Contents(distinct=1))
    return binary, Question(
        "/inference", {"Content-Type": "application/octet-stream"}, _row(binary).tobytes()
    )


def _row(question: Question) -> np.ndarray:
    return np.frombuffer(question.body[-4 * COLUMNS :], "<f4")


@contextmanager
def mosec(venv: Path, folder: Path, rows: int) -> Iterator[Gateway]:
    """Yield mosec with the model in `folder`. `venv`: the environment with mosec."""
    (port,) = free_ports(1)
    program = Path(__file__).with_name("mosec_app.py")
    command = [
        str(venv / "bin" / "python"),
        str(program),
        "--address",
        "127.0.0.1",
        "--port",
        str(port),
        "--timeout",
        "60000",
    ]
    environment = {"TINY_MODEL": str(folder), "TINY_ROWS": str(rows)}
    with running(command, f"http://127.0.0.1:{port}/metrics", **environment) as pid:
        yield Gateway("127.0.0.1", port, pid)


def main() -> int:
    """Return 0 if every answer was right and no request failed, else 1, or 2 if nothing could run."""
    asked = _arguments()
    if trouble := wrk.missing():
        sys.stderr.write(trouble + "\n")
        return 2
    with ExitStack() as opened:
        place = Path(opened.enter_context(tempfile.TemporaryDirectory(prefix="tiny-")))
        try:
            subjects = [*_subjects(opened, asked, place)]
        except (ValueError, RuntimeError) as error:
            sys.stderr.write(f"tiny_model: {error}\n")
            return 2
        _measure(asked, subjects, place)
    _report(asked, subjects)
    return 1 if any(each.errors for each in subjects) else 0


def _subjects(opened: ExitStack, asked: argparse.Namespace, place: Path) -> Iterator[Subject]:
    folder = place / NAME
    folder.mkdir()
    (folder / "model.py").write_text(CODE)
    (folder / "model.yaml").write_text(YAML)
    binary, bare = questions()
    ours = started([{"path": str(folder), "slices": ["measured"]}], profiles=place / "profiles")
    yield Subject("penstock", opened.enter_context(ours), binary)
    if asked.triton:
        tuning = Tuning(ROWS, SLO_MS * 1000, (COLUMNS, COLUMNS))
        yield Subject("Triton", opened.enter_context(triton(asked.triton, folder, tuning, None)), binary)
    for rows in asked.mosec_rows if asked.mosec else ():
        server = opened.enter_context(mosec(asked.mosec, folder, rows))
        yield Subject(f"mosec, {rows} rows", server, bare)


def _measure(asked: argparse.Namespace, subjects: Sequence[Subject], place: Path) -> None:
    cores, scripts = os.sched_getaffinity(0), {}
    for each in subjects:
        each.check()
        home = place / f"wrk-{each.name}"
        home.mkdir()
        question = each.question
        scripts[each.name] = wrk.write_script(home, question.path, question.headers, question.body)
        wrk.Wrk(scripts[each.name], max(asked.connections), 2, cores).run(each.server.rest_port)
    for number in range(asked.rounds):
        for each in subjects if number % 2 == 0 else reversed(subjects):
            for connections in asked.connections:
                each.measure(wrk.Wrk(scripts[each.name], connections, asked.seconds, cores))
    for each in subjects:
        each.check()


def _report(asked: argparse.Namespace, subjects: Sequence[Subject]) -> None:
    ours, *others = subjects
    print("| connections | server | requests/s | in the rounds | us of CPU each |\n|---|---|---|---|---|")
    for connections in asked.connections:
        for each in subjects:
            rps, spent_us = each.rps[connections], median(each.cpu_us[connections])
            spread = f"{min(rps):,.0f} to {max(rps):,.0f}"
            print(f"| {connections} | {each.name} | {median(rps):,.0f} | {spread} | {spent_us:.1f} |")
    for connections in asked.connections if others else ():
        best = max(median(each.rps[connections]) for each in others)
        ratio = median(ours.rps[connections]) / best
        print(f"{connections} connections: {ratio:.2f} times the better of the others (the aim: {AIM})")
    for each in subjects:
        if each.errors:
            print(f"FAULT: {each.name}: {each.errors} failed requests")


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--triton", type=Path, help="a folder that nvidia-pytriton was installed to")
    parser.add_argument("--mosec", type=Path, help="a venv with mosec and numpy")
    parser.add_argument(
        "--mosec-rows",
        type=int,
        nargs="+",
        default=[16, 64],
        help="of its largest batch: it waits 1 ms for one that is not full",
    )
    parser.add_argument("--connections", type=int, nargs="+", default=[32, 128])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=4, help="of each run")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
