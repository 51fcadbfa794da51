"""The four clients of tritonclient against a running `penstock serve`: right answers, JSON and binary."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tritonclient.grpc as grpc_client
import tritonclient.grpc.aio as grpc_aio
import tritonclient.http as http_client
import tritonclient.http.aio as http_aio
from safetensors.numpy import load_file
from tritonclient.utils import InferenceServerException

from tests.acceptance.gateway import ROOT, GatewayProcess

pytestmark = pytest.mark.slow

Arrays = dict[str, np.ndarray[Any, Any]]
Infer = Callable[..., Arrays]
"""(model, inputs, **options) -> outputs"""

DATATYPES = {"f": "FP32", "i": "INT32", "O": "BYTES"}


def prepare(module: Any, inputs: Arrays, **how: bool) -> list[Any]:
    tensors = []
    for name, array in inputs.items():
        tensor = module.InferInput(name, list(array.shape), DATATYPES[array.dtype.kind])
        tensor.set_data_from_numpy(array, **how)
        tensors.append(tensor)
    return tensors


def read(result: Any, names: list[str]) -> Arrays:
    return {name: result.as_numpy(name) for name in names}


def over_http(gateway: GatewayProcess, binary: bool) -> Infer:
    def infer(model: str, inputs: Arrays, outputs: list[str], **options: Any) -> Arrays:
        wanted = [http_client.InferRequestedOutput(name, binary_data=binary) for name in outputs]
        tensors = prepare(http_client, inputs, binary_data=binary)
        with http_client.InferenceServerClient(gateway.rest) as client:
            return read(client.infer(model, tensors, outputs=wanted, **options), outputs)

    return infer


def over_http_aio(gateway: GatewayProcess, binary: bool) -> Infer:
    async def ask(model: str, inputs: Arrays, outputs: list[str], **options: Any) -> Arrays:
        wanted = [http_aio.InferRequestedOutput(name, binary_data=binary) for name in outputs]
        tensors = prepare(http_aio, inputs, binary_data=binary)
        async with http_aio.InferenceServerClient(gateway.rest) as client:
            return read(await client.infer(model, tensors, outputs=wanted, **options), outputs)

    return lambda *given, **options: asyncio.run(ask(*given, **options))


def over_grpc(gateway: GatewayProcess) -> Infer:
    def infer(model: str, inputs: Arrays, outputs: list[str], **options: Any) -> Arrays:
        with grpc_client.InferenceServerClient(gateway.grpc) as client:
            return read(client.infer(model, prepare(grpc_client, inputs), **options), outputs)

    return infer


def over_grpc_aio(gateway: GatewayProcess) -> Infer:
    async def ask(model: str, inputs: Arrays, outputs: list[str], **options: Any) -> Arrays:
        async with grpc_aio.InferenceServerClient(gateway.grpc) as client:
            return read(await client.infer(model, prepare(grpc_aio, inputs), **options), outputs)

    return lambda *given, **options: asyncio.run(ask(*given, **options))


WAYS: dict[str, Callable[[GatewayProcess], Infer]] = {
    "http json": lambda gateway: over_http(gateway, binary=False),
    "http binary": lambda gateway: over_http(gateway, binary=True),
    "http.aio json": lambda gateway: over_http_aio(gateway, binary=False),
    "http.aio binary": lambda gateway: over_http_aio(gateway, binary=True),
    "grpc": over_grpc,
    "grpc.aio": over_grpc_aio,
}


@pytest.fixture(params=WAYS)
def infer(request: pytest.FixtureRequest, gateway: GatewayProcess) -> Infer:
    return WAYS[request.param](gateway)


@pytest.fixture(scope="session")
def heldout() -> Arrays:
    return dict(load_file(ROOT / "models/digits/build/heldout.safetensors"))


def accuracies(model: str) -> dict[str, float]:
    return dict(json.loads((Path(ROOT) / f"models/{model}/build/accuracy.json").read_text()))


def test_simple_adds_and_subtracts(infer: Infer) -> None:
    left = np.arange(48, dtype=np.int32).reshape(3, 16)
    right = np.full((3, 16), 7, dtype=np.int32)
    answer = infer("simple", {"INPUT0": left, "INPUT1": right}, ["OUTPUT0", "OUTPUT1"])
    np.testing.assert_array_equal(answer["OUTPUT0"], left + right)
    np.testing.assert_array_equal(answer["OUTPUT1"], left - right)


@pytest.mark.parametrize("tier", ["", "best", "frugal"])
def test_digits_are_read_as_well_as_the_floor_says_whichever_variants_answer(
    infer: Infer, heldout: Arrays, tier: str
) -> None:
    """As many rows as a few batches hold: some may be answered by a quicker variant."""
    asked = {"parameters": {"tier": tier}} if tier else {}
    scores = infer("digits", {"PIXELS": heldout["pixels"]}, ["SCORES"], **asked)["SCORES"]
    accuracy = float(np.mean(scores.argmax(axis=1) == heldout["labels"]))
    measured = accuracies("digits")
    floor = measured["ensemble" if tier == "best" else "linear"]
    assert floor <= accuracy <= measured["ensemble"]


@pytest.mark.parametrize("variant", ["pooled", "linear", "mlp", "cnn", "ensemble"])
def test_every_digits_variant_keeps_its_accuracy_row_by_row(
    gateway: GatewayProcess, heldout: Arrays, variant: str
) -> None:
    right = 0
    pinned = {"variant": variant}
    with http_client.InferenceServerClient(gateway.rest) as client:

        def ask(pixels: np.ndarray[Any, Any]) -> Arrays:
            tensors = prepare(http_client, {"PIXELS": pixels[None]})
            return read(client.infer("digits", tensors, parameters=pinned), ["SCORES"])

        for pixels, label in zip(heldout["pixels"], heldout["labels"], strict=True):
            right += int(ask(pixels)["SCORES"].argmax() == label)
    assert right / len(heldout["labels"]) == accuracies("digits")[variant]


TEXTS = np.array(
    [["A promise of latency."], ["Écoute, bébé!"], [""], ["words " * 60], ["Return the sum of a and b."]],
    dtype=object,
)


def test_minilm_embeds_texts_to_unit_length(infer: Infer) -> None:
    embedding = infer("minilm", {"TEXT": TEXTS}, ["EMBEDDING"])["EMBEDDING"]
    assert embedding.shape == (5, 384)
    np.testing.assert_allclose(np.linalg.norm(embedding, axis=1), 1, atol=1e-4)


def direct_minilm(precision: str, tokens: int) -> np.ndarray[Any, Any]:
    from importlib.util import module_from_spec, spec_from_file_location  # the model's own code, no server

    spec = spec_from_file_location("direct_minilm", ROOT / "models/minilm/model.py")
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    model = module.load(None, {"precision": precision, "tokens": tokens})
    encoded = np.array([[text.encode()] for (text,) in TEXTS], dtype=object)
    return np.asarray(model.predict({"TEXT": encoded}, {})["EMBEDDING"])


@pytest.mark.parametrize(
    ("variant", "tokens", "cosine"),
    [("fp32-128", 128, 1 - 1e-6), ("bf16-128", 128, 0.9998), ("bf16-64", 64, 0.9998),
     ("bf16-32", 32, 0.9998), ("int8-16", 16, 0.88)],
)  # fmt: skip
def test_served_embeddings_are_those_of_a_direct_fp32_run_at_the_same_truncation(
    gateway: GatewayProcess, variant: str, tokens: int, cosine: float
) -> None:
    served = over_http(gateway, binary=True)(
        "minilm", {"TEXT": TEXTS}, ["EMBEDDING"], parameters={"variant": variant}
    )["EMBEDDING"]
    direct = direct_minilm("fp32", tokens)
    if variant == "fp32-128":
        np.testing.assert_allclose(served, direct, atol=1e-5)
    assert float((served * direct).sum(axis=1).min()) >= cosine


def test_metadata_and_readiness_as_the_clients_ask_for_them(gateway: GatewayProcess) -> None:
    with http_client.InferenceServerClient(gateway.rest) as client:
        assert client.is_server_live()
        assert client.is_server_ready()
        assert client.is_model_ready("digits")
        assert client.get_server_metadata()["name"] == "penstock"
        assert client.get_model_metadata("digits")["inputs"][0]["shape"] == [-1, 64]
    with grpc_client.InferenceServerClient(gateway.grpc) as client:
        assert client.is_server_live()
        assert client.is_server_ready()
        assert client.is_model_ready("minilm")
        assert client.get_model_metadata("minilm").inputs[0].datatype == "BYTES"


def test_errors_reach_the_clients_as_sentences(gateway: GatewayProcess) -> None:
    wrong = np.zeros((2, 65), dtype=np.float32)
    for infer in (over_http(gateway, binary=True), over_http(gateway, binary=False), over_grpc(gateway)):
        with pytest.raises(InferenceServerException, match=r"PIXELS.*65"):
            infer("digits", {"PIXELS": wrong}, ["SCORES"])
        with pytest.raises(InferenceServerException, match="Request for unknown model: 'digit' is not found"):
            infer("digit", {"PIXELS": wrong}, ["SCORES"])
