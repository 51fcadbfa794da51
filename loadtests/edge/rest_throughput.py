"""What a REST request costs: the linear digits variant behind the gateway, beside a bare echo server.

Closed loop, keep-alive, binary tensors. The two servers answer the same request bytes with equally long
bodies, take turns round by round, and are pinned to one core; wrk and the gateway's worker share another.
Latencies are those at saturation. Run: python -m loadtests.edge.rest_throughput [--json]
"""

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median

from loadtests.harness import wrk
from loadtests.harness.gateway import Gateway, free_ports, model_entry, running, started
from loadtests.harness.processes import cpu_us, pin
from loadtests.harness.wire import DigitsQuestion, ask, digits_question

CPU_AIM_US = 25.0  # of gateway CPU a request
SIZE_TOLERANCE = 0.02  # answers cut off at the end of a run count as bytes but not as requests


@dataclass(slots=True)
class Subject:
    """A server under test and what its rounds showed."""

    name: str
    port: int
    pid: int
    workers: Sequence[int] = ()
    rps: list[float] = field(default_factory=list)
    cpu_us: list[float] = field(default_factory=list)
    worker_cpu_us: list[float] = field(default_factory=list)
    p50_us: list[float] = field(default_factory=list)
    p99_us: list[float] = field(default_factory=list)
    answer_bytes: list[float] = field(default_factory=list)
    errors: int = 0

    def measure(self, load: wrk.Wrk) -> None:
        before, workers_before = cpu_us(self.pid), sum(map(cpu_us, self.workers))
        seen = load.run(self.port)
        requests = max(seen.requests, 1)
        self.cpu_us.append((cpu_us(self.pid) - before) / requests)
        self.worker_cpu_us.append((sum(map(cpu_us, self.workers)) - workers_before) / requests)
        self.rps.append(seen.requests / seen.seconds)
        self.p50_us.append(seen.p50_us)
        self.p99_us.append(seen.p99_us)
        self.answer_bytes.append(seen.answer_bytes)
        self.errors += seen.errors

    def figures(self) -> dict[str, list[float]]:
        return {
            "requests/s": self.rps,
            "cpu us/request": self.cpu_us,
            "worker cpu us/request": self.worker_cpu_us,
            "p50 us": self.p50_us,
            "p99 us": self.p99_us,
        }


def main() -> int:
    """Return 0 if every answer was right and no request failed, else 1, or 2 if wrk is missing. The aims are
    reported, not enforced."""
    asked = _arguments()
    if trouble := wrk.missing():
        sys.stderr.write(trouble + "\n")
        return 2
    question = digits_question()
    model = model_entry("digits", variants=["linear"], default_variant="linear")
    with started([model], asked.worker_cores) as gateway:
        size = len(ask(gateway, question.request).body)
        subjects = _measure(asked, gateway, question, size)
        faults = _faults(gateway, question, subjects)
    _report(asked, subjects, faults)
    return 1 if faults else 0


def _measure(
    asked: argparse.Namespace, gateway: Gateway, question: DigitsQuestion, answer_bytes: int
) -> list[Subject]:
    port = free_ports(1)[0]
    echo = [sys.executable, "-m", "uvicorn", "loadtests.edge.echo_app:app", "--port", str(port),
            "--log-level", "warning", "--no-access-log"]  # fmt: skip
    with (
        running(echo, f"http://127.0.0.1:{port}/", ECHO_BYTES=str(answer_bytes)) as echo_pid,
        tempfile.TemporaryDirectory() as folder,
    ):
        if fault := question.fault(ask(gateway, question.request)):
            raise SystemExit(f"the gateway answers wrongly before any load: {fault}")
        script = wrk.write_script(Path(folder), question.path, question.headers, question.body)
        load = wrk.Wrk(script, asked.connections, asked.seconds, asked.client_cores)
        warm_up = wrk.Wrk(script, asked.connections, 1, asked.client_cores)
        subjects = [
            Subject("penstock", gateway.rest_port, gateway.pid, gateway.workers()),
            Subject("uvicorn echo", port, echo_pid),
        ]
        for subject in subjects:
            pin(subject.pid, asked.server_cores)
            warm_up.run(subject.port)
        for number in range(asked.rounds):
            for subject in subjects if number % 2 == 0 else reversed(subjects):
                subject.measure(load)
    return subjects


def _faults(gateway: Gateway, question: DigitsQuestion, subjects: Sequence[Subject]) -> list[str]:
    faults = [f"{one.name}: {one.errors} failed requests" for one in subjects if one.errors]
    if fault := question.fault(ask(gateway, question.request)):
        faults.append(f"the gateway answers wrongly after the load: {fault}")
    faults += [
        f"{one.name}: answers of {min(one.answer_bytes):.0f} to {max(one.answer_bytes):.0f} bytes"
        for one in subjects
        if max(one.answer_bytes) > min(one.answer_bytes) * (1 + SIZE_TOLERANCE)
    ]
    return faults


def _report(asked: argparse.Namespace, subjects: Sequence[Subject], faults: Sequence[str]) -> None:
    gateway, echo = subjects
    ratio = median(gateway.rps) / median(echo.rps)
    aims = {
        f"at most {CPU_AIM_US:.0f} us of gateway CPU a request": median(gateway.cpu_us) <= CPU_AIM_US,
        "more requests per second than the echo": ratio > 1,
    }
    if asked.json:
        rounds = {one.name: one.figures() for one in subjects}
        setting = {name: value for name, value in vars(asked).items() if name != "json"}
        print(
            json.dumps({"setting": setting, "rounds": rounds, "ratio": ratio, "aims": aims, "faults": faults})
        )
        return
    print(f"{asked.connections} connections, {asked.rounds} rounds of {asked.seconds} s each, taking turns;")
    cores = (",".join(map(str, one)) for one in (asked.server_cores, asked.client_cores, asked.worker_cores))
    print("servers on core {}, wrk on core {}, the gateway's worker on core {};".format(*cores))
    print("median (min..max)")
    print(f"{'':22}" + "".join(f"{one.name:>28}" for one in subjects))
    for name, figures in gateway.figures().items():
        columns = [_spread(figures), _spread(echo.figures()[name])]
        print(f"{name:22}" + "".join(f"{column:>28}" for column in columns))
    print(f"requests per second, penstock to echo: {ratio:.2f}")
    for aim, met in aims.items():
        print(f"{'met' if met else 'MISSED'}: {aim}")
    for fault in faults:
        print(f"FAULT: {fault}")


def _spread(figures: Sequence[float]) -> str:
    shown: Callable[[float], str] = "{:.1f}".format if max(figures) < 1000 else "{:.0f}".format
    return f"{shown(median(figures))} ({shown(min(figures))}..{shown(max(figures))})"


def _cores(text: str) -> list[int]:
    return [int(core) for core in text.split(",")]


def _arguments() -> argparse.Namespace:
    mine = sorted(os.sched_getaffinity(0))
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=3, help="of each round")
    parser.add_argument("--server-cores", type=_cores, default=mine[:1], metavar="0", help="for both servers")
    parser.add_argument("--client-cores", type=_cores, default=mine[1:2] or mine, metavar="1", help="for wrk")
    parser.add_argument(
        "--worker-cores", type=_cores, default=mine[1:2] or mine, metavar="1", help="gateway's worker"
    )
    parser.add_argument("--json", action="store_true", help="every round, as JSON")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
