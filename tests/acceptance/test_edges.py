"""Ports of a real gateway that must not end, or end by themselves; its end beside calls without a message."""

import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import grpc
import numpy as np
import pytest
import tritonclient.grpc as grpc_client

from loadtests.hostile import h2wire
from tests.acceptance.gateway import PATIENT_MS, ROOT, TALK_S, GatewayProcess, orderly

pytestmark = pytest.mark.slow

CONFIG = f"""
slices: [{{name: a}}]
models: [{{path: {ROOT}/models/simple, slo_ms: {PATIENT_MS}}}]
limits: {{slow_client_s: 3600, drain_s: 3600}}
"""
INFER = b"/inference.GRPCInferenceService/ModelInfer"


@pytest.fixture
def config(tmp_path: Path) -> Path:
    path = tmp_path / "penstock.yaml"
    path.write_text(CONFIG)
    return path


@pytest.fixture(scope="module")
def kept(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    """One for the tests after which it goes on; it ends in order, and nothing in it ended by itself."""
    file = tmp_path_factory.mktemp("kept") / "penstock.yaml"
    file.write_text(CONFIG)
    with orderly(file) as started:
        yield started
    assert "ended by itself" not in started.output


@pytest.fixture
def gateway(config: Path, tmp_path: Path) -> Iterator[GatewayProcess]:
    started = GatewayProcess.start(config, tmp_path / "log")
    yield started
    started.kill()
    started.process.wait()


def send(gateway: GatewayProcess, data: bytes) -> socket.socket:
    """On a connection of its own to the gRPC port."""
    host, port = gateway.grpc.split(":")
    connection = socket.create_connection((host, int(port)), TALK_S)
    connection.sendall(h2wire.start() + data)
    return connection


def infer(gateway: GatewayProcess) -> int:
    """The first number of an answer over gRPC."""
    inputs = [grpc_client.InferInput(name, [1, 16], "INT32") for name in ("INPUT0", "INPUT1")]
    for each in inputs:
        each.set_data_from_numpy(np.full((1, 16), 21, np.int32))
    with grpc_client.InferenceServerClient(gateway.grpc) as client:
        return int(client.infer("simple", inputs).as_numpy("OUTPUT0")[0, 0])


def test_a_path_that_is_no_text_ends_nothing(kept: GatewayProcess) -> None:
    with send(kept, b"") as connection:
        for stream in (1, 3, 5):
            connection.sendall(h2wire.call(stream, b"/\xff", end=True))
            received = b""
            while h2wire.status(received, stream) is None:
                piece = connection.recv(65536)
                assert piece, "the connection was closed"
                received += piece
            assert h2wire.status(received, stream) == grpc.StatusCode.UNIMPLEMENTED.value[0]
            assert infer(kept) == 42
    assert 'penstock_edge_restarts_total{edge="grpc"} 0\n' in kept.read_metrics()


def test_an_edge_whose_port_is_taken_ends_the_gateway(config: Path, tmp_path: Path) -> None:
    gateway = GatewayProcess.start(config, tmp_path / "log", "tests.acceptance.taken_port")
    assert gateway.stop(signal.SIGUSR1) == 1
    said = "the metrics edge has ended and cannot be started again: cannot serve metrics on 127.0.0.1:"
    assert gateway.output.count(said) == 1
    assert "penstock has ended" in gateway.output
    assert "Traceback" not in gateway.output


def test_calls_without_a_whole_message_do_not_delay_the_end(gateway: GatewayProcess) -> None:
    part = h2wire.message(3, b"part", stated=100, end=False)
    calls = h2wire.call(1, INFER) + h2wire.call(3, INFER) + part + h2wire.call(5, INFER, end=True)
    with send(gateway, calls) as connection:
        received = b""
        while h2wire.status(received, 5) is None:  # the calls before it are there too
            received += connection.recv(65536)
        assert gateway.stop() == 0  # which has less patience than these limits
    assert "Traceback" not in gateway.output


def test_what_a_client_says_as_it_leaves_is_not_printed(kept: GatewayProcess) -> None:
    text = b"\n2026-11-22 20:00:00,000 ERROR forged"
    ping = h2wire.frame(h2wire.PING, 0, 0, b"answered")
    with send(kept, h2wire.goaway(text) + ping) as connection:
        received = b""
        while b"answered" not in received:  # what came before it has been read
            received += connection.recv(65536)
    assert infer(kept) == 42
    assert "forged" not in kept.output
