"""The same against a gateway that runs: bytes on REST's port, HTTP/2 frames on gRPC's.

Each input has a connection of its own. Good requests in between must have right answers, and the gateway's
processor time and memory are held to the same bounds as in-process.
"""

import contextlib
import io
import socket
import time
from collections.abc import Callable, Iterator
from typing import Final

import grpc
from tritonclient.grpc import service_pb2

from loadtests.harness.gateway import Gateway
from loadtests.harness.wire import ask, post, read_answer
from loadtests.hostile import h2wire
from loadtests.hostile.abuse.hostile import PATH, good_body, is_right
from loadtests.hostile.fuzz.http import STATUSES
from loadtests.hostile.fuzz.http import WORDS as HTTP_WORDS
from loadtests.hostile.fuzz.playing import Fault, Target
from loadtests.hostile.fuzz.tensors import PROTOBUF_WORDS

STALL_MS: Final = 250.0
"""Of the gateway's process and all its threads: health checks, measurements and others' answers are in it."""
PATIENCE_S: Final = 20.0  # within which a request that is there whole is answered, or its connection closed
QUIET_S: Final = 0.05  # after which a connection that is left open, and says nothing, has no more to say
GOOD_EVERY: Final = 200  # inputs
INFER: Final = "/inference.GRPCInferenceService/ModelInfer"
INFER_BYTES: Final = INFER.encode()

FRAME_WORDS: Final = (
    h2wire.PREFACE, *(h2wire.frame(kind, 0, 1) for kind in range(10)),
    h2wire.frame(h2wire.SETTINGS, h2wire.ACK, 0),
    h2wire.call(1, INFER_BYTES), h2wire.call(3, INFER_BYTES, end=True), h2wire.call(5, b"/\xff", end=True),
    h2wire.call(7, b"/grpc.health.v1.Health/Check"), h2wire.call(9, b"/grpc.health.v1.Health/Watch"),
    h2wire.message(1, b""), h2wire.message(1, b"\x0a\x06simple", stated=1 << 31),
    h2wire.message(3, b"", end=False),
    h2wire.frame(h2wire.RST_STREAM, 0, 1, bytes(4)), h2wire.frame(h2wire.PING, 0, 0, bytes(8)),
    h2wire.goaway(b"\n2026 ERROR"), h2wire.call(11, INFER_BYTES, (b"grpc-timeout", b"1m")),
    h2wire.call(13, INFER_BYTES, (b"x-tenant", b"\xff\xfe")),
    h2wire.call(15, INFER_BYTES, (b"a", b"b" * 200)),
    h2wire.call(17, INFER_BYTES, (b"grpc-encoding", b"gzip")), *PROTOBUF_WORDS,
)  # fmt: skip


@contextlib.contextmanager
def rest_target(gateway: Gateway) -> Iterator[Target]:
    """Yield a target with the corpus of `http`, with the routes that only a whole gateway has."""

    def play(data: bytes) -> bool:
        with socket.create_connection((gateway.host, gateway.rest_port), PATIENCE_S) as connection:
            return _accepted(_said(connection, data))

    yield _target("rest", _with_good(gateway, play, _good_rest), HTTP_WORDS, gateway)


@contextlib.contextmanager
def rpc_target(gateway: Gateway) -> Iterator[Target]:
    """Yield a target for frames of HTTP/2, behind the preface that every client sends, on the gRPC port."""

    def play(data: bytes) -> bool:
        with _connected(gateway.host, gateway.rpc_port) as connection:
            received = _said(connection, h2wire.start() + data, quiet_s=QUIET_S)
        return h2wire.status(received, 1) == 0

    yield _target("h2", _with_good(gateway, play, _good_rpc), FRAME_WORDS, gateway)


def _connected(host: str, port: int) -> socket.socket:
    """Return a connection. While gRPC's server restarts, its port refuses or resets connections."""
    until_s = time.monotonic() + PATIENCE_S
    while True:
        try:
            return socket.create_connection((host, port), PATIENCE_S)
        except (ConnectionRefusedError, ConnectionResetError) as error:
            if time.monotonic() > until_s:
                raise Fault(f"the port takes no connection: {error}") from None
            time.sleep(0.01)


def _target(name: str, play: Callable[[bytes], bool], words: tuple[bytes, ...], gateway: Gateway) -> Target:
    clock = (~gateway.pid << 3) | 2  # CPUCLOCK_SCHED of the process (clock_getcpuclockid(3))
    return Target(
        name,
        play,
        words,
        stall_ms=STALL_MS,
        spent_ns=(lambda: time.clock_gettime_ns(clock)) if gateway.pid else time.thread_time_ns,
        pid=gateway.pid,
    )


def _with_good(
    gateway: Gateway, play: Callable[[bytes], bool], good: Callable[[Gateway], str]
) -> Callable[[bytes], bool]:
    """Return `play` with a good request every GOOD_EVERY inputs; its answer must be right."""
    count = 0

    def played(data: bytes) -> bool:
        nonlocal count
        count += 1
        accepted = play(data)
        if count % GOOD_EVERY == 0:
            wrong = good(gateway)
            if wrong:
                raise Fault(f"a good request after it was not answered right: {wrong}")
        return accepted

    return played


def _said(connection: socket.socket, data: bytes, quiet_s: float = 0.0) -> bytes:
    """Return all that came back until the other side closed or, where it need not, was quiet."""
    received = bytearray()
    with contextlib.suppress(ConnectionError):  # closed early: what it said may still be there
        connection.sendall(data)
        if not quiet_s:
            connection.shutdown(socket.SHUT_WR)
        else:
            connection.settimeout(quiet_s)
        try:
            while piece := connection.recv(1 << 16):
                received += piece
        except TimeoutError:
            if not quiet_s:
                raise Fault(f"it was neither answered nor closed within {PATIENCE_S:.0f} s") from None
    return bytes(received)


def _accepted(received: bytes) -> bool:
    """Return whether one of the answers is 200. What cannot be told apart, as HEAD has no body, is not looked
    at."""
    stream = io.BytesIO(received)
    found = False
    while stream.tell() < len(received):
        try:
            answer = read_answer(stream)
        except (ValueError, IndexError):
            break  # behind the answer to a HEAD
        if answer is None:
            break
        if answer.status not in STATUSES | {202, 204, 401, 403, 409, 500}:
            raise Fault(f"an answer has the status {answer.status}")
        if answer.status == 500 and b"internal" in answer.body.lower():
            raise Fault("the gateway has a fault: 500 internal error")
        found = found or answer.status == 200
    return found


def _good_rest(gateway: Gateway) -> str:
    answer = ask(gateway, post(PATH, good_body()), PATIENCE_S)
    return "" if is_right(answer) else f"status {answer.status}"


def _good_rpc(gateway: Gateway) -> str:
    request = service_pb2.ModelInferRequest(model_name="simple")
    for name in ("INPUT0", "INPUT1"):
        request.inputs.add(name=name, datatype="INT32", shape=[1, 16])
        request.raw_input_contents.append(b"\x03\x00\x00\x00" * 16)
    with grpc.insecure_channel(f"{gateway.host}:{gateway.rpc_port}") as channel:
        infer = channel.unary_unary(INFER, None, service_pb2.ModelInferResponse.FromString)
        try:
            # the edge may just be started again, after a call that ended grpc's server
            answer = infer(request.SerializeToString(), timeout=PATIENCE_S, wait_for_ready=True)
        except grpc.RpcError as error:
            return f"{error.code().name} {error.details()}"
    return "" if answer.raw_output_contents[0] == b"\x06\x00\x00\x00" * 16 else "a wrong sum"
