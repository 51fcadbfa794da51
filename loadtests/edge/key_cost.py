"""What an API key costs a request over REST and a call over gRPC, in us of CPU.

python -m loadtests.edge.key_cost [--rounds 40]

gRPC is measured by the process, all its threads (`loadtests.edge.key_cost_rpc`). REST is measured by the
event loop: requests are fed to the fast path itself, with a transport that drops what is written. In both, a
core answers at once: all else that a request costs is the same. Rounds without keys, with one in `x-api-key`
and with one in `Authorization` take turns.
"""

import argparse
import asyncio
import json
from collections.abc import Callable, Mapping, Sequence
from statistics import median
from time import thread_time_ns
from typing import Any

from uvicorn.config import Config
from uvicorn.server import ServerState

from loadtests.edge import key_cost_rpc
from loadtests.harness.gateway import ROOT
from router.http.fastpath.edge import FastEdge
from router.http.fastpath.protocol import FastProtocol
from router.security.auth.guard import KeyGuard
from router.security.auth.issuing import make_key
from router.security.auth.keys import KeyFile
from router.settings import load_model
from router.settings.keys import KeySpec
from serving.compiled import is_compiled
from serving.ports import Call, Reply
from serving.values.specs import DEFAULT_TENANT, Limits, ServedModel, TenantSpec
from serving.values.tensor import Tensor
from serving.values.vocabulary import COMPLETED, Outcome

REQUESTS = 2_000  # a round
KEYS = 1_000
"""In the file, the one that is used among them."""
ALONE = "the check alone"


class Sink(asyncio.Transport):
    """Drops what is written, and counts it."""

    def __init__(self) -> None:
        super().__init__()
        self.written = 0

    def write(self, data: Any) -> None:
        """Count the bytes, as asyncio's transport."""
        self.written += len(data)

    def is_closing(self) -> bool:
        """Return False, as asyncio's transport."""
        return False

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Do nothing; asyncio's transport has it."""

    def get_write_buffer_size(self) -> int:
        """Return 0, as asyncio's transport."""
        return 0


class Core:
    """A `serving.ports.Serving` that answers every call at once."""

    ready = True
    open_requests = 0

    def __init__(self) -> None:
        spec = load_model(ROOT / "models" / "simple")
        model = ServedModel(spec, spec.slo_us or 100_000, (spec.default_variant,), ("s",))
        self.models: Mapping[str, ServedModel] = {spec.name: model}
        self.tenants: Mapping[str, TenantSpec] = {DEFAULT_TENANT: TenantSpec(DEFAULT_TENANT)}
        self.outputs = [Tensor(each.name, "INT32", (1, 16), bytes(64)) for each in spec.outputs]
        self.completed = 0

    def refused(self, model: str, outcome: Outcome, tenant: str = DEFAULT_TENANT) -> None:
        """Raise RuntimeError: nothing is to be refused here (part of Serving)."""
        raise RuntimeError(f"{model} refused a request of {tenant}: {outcome.reason.value}")

    def answered(self, model: str, reply: Reply, read_us: int, made_us: int) -> None:
        """Do nothing (part of Serving)."""

    def model_ready(self, name: str) -> bool:
        """Return whether the model is there (part of Serving)."""
        return name in self.models

    def now_us(self) -> int:
        """Return 1, as no time passes (part of Serving)."""
        return 1

    def submit(self, call: Call, deliver: Callable[[Reply], None]) -> int:
        """Deliver a completed reply immediately (part of Serving)."""
        reply = Reply(COMPLETED)
        reply.outputs, reply.variant, reply.batch_rows = self.outputs, call.model.answering_variant, 1
        self.completed += 1
        deliver(reply)
        return 0

    def cancel(self, request_id: int) -> None:
        """Do nothing (part of Serving)."""

    def invalidate(self, model: str = "") -> int:  # noqa: ARG002  # Serving's
        """Return 0 (part of Serving)."""
        return 0


def request_of(core: Core, fields: str) -> bytes:
    """Return an inference with small binary tensors, as a client library sends it."""
    (model,) = core.models.values()
    named = [(each.name, "binary_data_size") for each in model.spec.inputs]
    inputs = [
        {"name": name, "shape": [1, 16], "datatype": "INT32", "parameters": {size: 64}}
        for name, size in named
    ]
    head = json.dumps({"inputs": inputs, "parameters": {"binary_data_output": True}}).encode()
    body = head + bytes(64 * len(inputs))
    lines = (
        f"POST /v2/models/{model.name}/infer HTTP/1.1\r\nhost: localhost:8000\r\n"
        f"content-type: application/octet-stream\r\ncontent-length: {len(body)}\r\n"
        f"inference-header-content-length: {len(head)}\r\n{fields}\r\n"
    )
    return lines.encode() + body


def connect(core: Core, guard: KeyGuard | None) -> FastProtocol:
    """Return a connection to a REST edge, which asks for keys where there is a guard."""

    async def nothing(scope: object, receive: object, send: object) -> None:
        """Do nothing: an ASGI application that is never asked."""

    config = Config(nothing, interface="asgi3", ws="none", lifespan="off", log_config=None, access_log=False)
    config.load()
    edge = FastEdge(core, Limits(), ServerState())
    edge.guard = guard
    protocol = FastProtocol(config, edge)
    protocol.connection_made(Sink())
    return protocol


def round_us(protocol: FastProtocol, data: bytes, core: Core) -> float:
    """Return the CPU time of one of REQUESTS."""
    before, begin_ns = core.completed, thread_time_ns()
    for _ in range(REQUESTS):
        protocol.data_received(data)
    taken_us = (thread_time_ns() - begin_ns) / 1e3 / REQUESTS
    if core.completed - before != REQUESTS:
        raise RuntimeError(f"{core.completed - before} of {REQUESTS} requests were completed")
    return taken_us


def keys() -> tuple[KeyGuard, str]:
    """Return a guard of KEYS, and one of them."""
    made = [make_key() for _ in range(KEYS)]
    specs = [
        KeySpec(f"k{at}", each.id, each.hash, DEFAULT_TENANT, ("infer",)) for at, each in enumerate(made)
    ]
    return KeyGuard(KeyFile(specs)), made[KEYS // 2].text


async def measure(core: Core, guard: KeyGuard, text: str, rounds: int) -> dict[str, list[float]]:
    """Return the us that a REST request took in each round, by what is sent."""
    cases = {
        "off": (connect(core, None), request_of(core, "")),
        "x-api-key": (connect(core, guard), request_of(core, f"x-api-key: {text}\r\n")),
        "Authorization": (connect(core, guard), request_of(core, f"authorization: Bearer {text}\r\n")),
    }
    taken: dict[str, list[float]] = {name: [] for name in cases}
    for _ in range(rounds + 1):
        for name, (protocol, data) in cases.items():
            taken[name].append(round_us(protocol, data, core))
    known = text.encode()
    taken[ALONE] = [_alone_us(guard, known) for _ in range(rounds + 1)]
    return {name: each[1:] for name, each in taken.items()}  # the first one warms up


def _alone_us(guard: KeyGuard, text: bytes) -> float:
    begin_ns = thread_time_ns()
    for _ in range(REQUESTS):
        guard.identify(text, None)
    return (thread_time_ns() - begin_ns) / 1e3 / REQUESTS


def show(what: str, taken: Mapping[str, Sequence[float]]) -> None:
    """Print a line for each case."""
    off = sorted(taken["off"])
    print(f"{what}, median of {len(off)}:")
    for name, each in taken.items():
        pairs = [on - without for on, without in zip(each, taken["off"], strict=True)]
        more = "" if name in ("off", ALONE) else f"   a key costs {median(pairs):.2f}"
        print(f"  {name:16}{median(each):7.2f}{more}")
    print(f"  half of the rounds without keys took {off[len(off) // 4]:.2f} to {off[3 * len(off) // 4]:.2f}")


def main() -> None:
    """Print a line for each."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--rounds", type=int, default=40)
    rounds = parser.parse_args().rounds
    core = Core()
    guard, text = keys()
    how = "compiled" if is_compiled() else "interpreted"
    print(f"us of CPU a request, {KEYS} keys, {how}")
    show(f"REST, rounds of {REQUESTS} requests", asyncio.run(measure(core, guard, text, rounds)))
    rpc = asyncio.run(key_cost_rpc.measure(core, guard, text, rounds))
    show(f"gRPC, rounds of {key_cost_rpc.CALLS} calls", rpc)


if __name__ == "__main__":
    main()
