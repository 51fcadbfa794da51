"""HTTP/1.1 and OIP by hand: the exact bytes of a request, and one answer read from a stream.

Independent of the gateway's own code on purpose: a mistake there must not cancel out here.
"""

import json
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import BinaryIO

import numpy as np
from safetensors.numpy import load_file

from loadtests.harness.gateway import ROOT, Gateway

DIGITS = ROOT / "models" / "digits" / "build"


@dataclass(frozen=True, slots=True)
class Answer:
    """A complete HTTP answer: `headers` by lower-case name."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def reason(self) -> str:
        """The word for why a request failed; "" where the body says none."""
        try:
            return str(json.loads(self.body).get("reason", ""))
        except (ValueError, AttributeError):
            return ""


def post(path: str, body: bytes, headers: Mapping[str, object] | None = None) -> bytes:
    """Return a POST with a true Content-Length, unless `headers` state one."""
    fields = {"Host": "localhost", "Content-Length": len(body), **(headers or {})}
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return f"POST {path} HTTP/1.1\r\n{head}\r\n".encode("latin-1") + body


def parse_head(head: bytes) -> tuple[int, dict[str, str]]:
    """Return the status and headers of an answer's head."""
    first, *lines = head.decode("latin-1").split("\r\n")
    pairs = (line.partition(":") for line in lines if line)
    return int(first.split(" ")[1]), {name.lower(): value.strip() for name, _, value in pairs}


def read_answer(stream: BinaryIO) -> Answer | None:
    """Return the next answer; None at the end of the stream. An interim 100 Continue is passed over."""
    while True:
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            line = stream.readline()
            if not line:
                return None
            head += line
        status, headers = parse_head(head)
        if status != 100:
            break
    size = int(headers.get("content-length", "0"))
    body = stream.read(size)
    return Answer(status, headers, body) if len(body) == size else None


def ask(gateway: Gateway, request: bytes, timeout_s: float = 30) -> Answer:
    """Send one request on a connection of its own. Raises ConnectionError if no answer came."""
    with (
        socket.create_connection((gateway.host, gateway.rest_port), timeout_s) as connection,
        connection.makefile("rb") as stream,
    ):
        connection.sendall(request)
        answer = read_answer(stream)
    if answer is None:
        raise ConnectionError("the gateway closed the connection without an answer")
    return answer


@dataclass(frozen=True, slots=True)
class DigitsQuestion:
    """One held-out digit as a binary request, and what the linear variant must answer."""

    path: str
    headers: Mapping[str, str]
    body: bytes
    scores: Sequence[float]

    @property
    def request(self) -> bytes:
        return post(self.path, self.body, self.headers)

    def fault(self, answer: Answer) -> str:
        """Return the fault of the answer, or "" if it is right."""
        if answer.status != 200:
            return f"status {answer.status}: {answer.body[:200]!r}"
        size = int(answer.headers.get("inference-header-content-length", len(answer.body)))
        scores = np.frombuffer(answer.body[size:], "<f4")
        if scores.shape != (10,) or not np.allclose(scores, self.scores, atol=1e-5):
            return f"scores {scores.tolist()}, expected {list(self.scores)}"
        return ""


def digits_question(row: int = 0) -> DigitsQuestion:
    """Return a question of a held-out row, with the scores computed here in float64 from the stored
    weights."""
    pixels = load_file(DIGITS / "heldout.safetensors")["pixels"][row].astype("<f4")
    weights = load_file(DIGITS / "linear.safetensors")
    logits = weights["0.weight"].astype(float) @ pixels + weights["0.bias"]
    powers = np.exp(logits - logits.max())
    tensor = {"name": "PIXELS", "shape": [1, 64], "datatype": "FP32"}
    binary = {**tensor, "parameters": {"binary_data_size": pixels.nbytes}}
    asked = {"inputs": [binary], "parameters": {"binary_data_output": True}}
    header = json.dumps(asked, separators=(",", ":"))
    headers = {
        "Content-Type": "application/octet-stream",
        "Inference-Header-Content-Length": str(len(header)),
    }
    body = header.encode() + pixels.tobytes()
    return DigitsQuestion("/v2/models/digits/infer", headers, body, (powers / powers.sum()).tolist())
