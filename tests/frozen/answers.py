"""Write what a gateway answers to the fuzzer's corpus and to each GET, as text: `diff -r` shows what changed.

  python -m tests.frozen.answers before/

Digits that follow a point and numbers of four digits and more become `#`: times and process numbers differ.
"""

import re
import socket
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import grpc

from loadtests.hostile.fuzz.playing import CORPUS
from tests.acceptance.conftest import patient_sample
from tests.acceptance.gateway import GatewayProcess

GETS = (
    "/v2", "/v2/health/live", "/v2/health/ready", "/v2/models/simple", "/v2/models/simple/ready",
    "/v2/models/simple/config", "/v2/models/nothing", "/v2/models/simple/versions/1", "/livez", "/readyz",
    "/v2/nothing", "/v2/models/simple/versions/9/infer", "/v2/repository/index", "/openapi.json",
)  # fmt: skip
INFER = "/inference.GRPCInferenceService/ModelInfer"
MODELS = (b"simple", b"identity", b"digits")


def requests() -> Iterator[tuple[str, bytes]]:
    """Yield REST requests as bytes, by name."""
    for folder in ("http", "rest"):
        for path in sorted((CORPUS / folder).iterdir()):
            yield f"{folder}-{path.name}", path.read_bytes()
    for path in sorted((CORPUS / "json").iterdir()):
        for model in MODELS:
            head = f"POST /v2/models/{model.decode()}/infer HTTP/1.1\r\nHost: a\r\nConnection: close\r\n"
            body = path.read_bytes()
            yield (
                f"json-{path.name}-{model.decode()}",
                f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body,
            )
    for target in GETS:
        name = target.strip("/").replace("/", "_")
        yield f"get-{name}", f"GET {target} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".encode()


def rest(address: str, request: bytes) -> bytes:
    """Return all that one connection said until it closed, or was quiet for two seconds."""
    host, port = address.rsplit(":", 1)
    received = bytearray()
    with socket.create_connection((host, int(port)), 20) as connection:
        connection.settimeout(2)
        try:
            connection.sendall(request)
            while piece := connection.recv(1 << 16):
                received += piece
        except TimeoutError:
            received += b"\n(still open)"
        except ConnectionError:
            received += b"\n(reset)"
    return bytes(received)


def rpc(address: str, message: bytes) -> bytes:
    """Return code, details, metadata and answer of one call."""
    with grpc.insecure_channel(address) as channel:
        call = channel.unary_unary(INFER, None, None)
        try:
            answer, ended = call.with_call(message, timeout=20)
        except grpc.RpcError as error:
            return f"{error.code().name}\n{error.details()}\n{error.trailing_metadata()}".encode()
        return f"OK\n{ended.initial_metadata()}\n{ended.trailing_metadata()}\n".encode() + bytes(answer)


def plain(answer: bytes) -> str:
    """Return an answer as text without times and process numbers."""
    text = answer.decode("latin-1").replace("\r\n", "\n")
    text = re.sub(r"Date: .*", "Date: #", text, flags=re.IGNORECASE)
    text = re.sub(r"\d+\.\d+", "#", text)
    return re.sub(r"\d{4,}", "#", text)


def main() -> None:
    """Start a gateway, ask it everything, write a file for each answer."""
    target = Path(sys.argv[1])
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder, "penstock.yaml")
        config.write_text(patient_sample())
        gateway = GatewayProcess.start(config, Path(folder, "log"))
        try:
            for name, request in requests():
                (target / name).write_text(plain(rest(gateway.rest, request)))
            for path in sorted((CORPUS / "protobuf").iterdir()):
                (target / f"grpc-{path.name}").write_text(plain(rpc(gateway.grpc, path.read_bytes())))
        finally:
            gateway.stop()


if __name__ == "__main__":
    main()
