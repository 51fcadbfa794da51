"""Over both wires: who asks for a tier or a floor is answered by a variant that keeps it, and told which."""

import json
import urllib.error
import urllib.request
from collections.abc import Iterator
from itertools import product
from pathlib import Path

import grpc
import pytest
from tritonclient.grpc import service_pb2

from router.grpc.rpc import SERVICE
from tests.acceptance.gateway import ROOT, TALK_S, GatewayProcess

pytestmark = pytest.mark.slow

INFER = f"/{SERVICE}/ModelInfer"
ACCURACY = json.loads((ROOT / "models/digits/build/accuracy.json").read_text())
SETTINGS = f"""\
slices: [{{name: a}}]
tiers:
  - {{name: best, slo_ms: 10000, tolerance: 0}}
  - {{name: frugal, slo_ms: 10000, accuracy_min: 0.9, optimize: cheapest}}
tenants: [{{name: thrifty, tier: frugal}}]
models: [{{path: {ROOT / "models/digits"}, slo_ms: 10000, accuracy_min: 0.97}}]
cache:
"""

Told = tuple[str, dict[str, str]]
"""(the sentence with which it was refused or "", what it was told beside)."""


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    folder = tmp_path_factory.mktemp("tiers")
    config = folder / "penstock.yaml"
    config.write_text(SETTINGS)
    started = GatewayProcess.start(config, folder / "log")
    yield started
    assert started.stop() == 0, started.output


def over_rest(gateway: GatewayProcess, headers: dict[str, str], parameters: dict[str, str]) -> Told:
    tensor = {"name": "PIXELS", "datatype": "FP32", "shape": [1, 64], "data": [0.5] * 64}
    body = json.dumps({"inputs": [tensor], "parameters": parameters}).encode()
    request = urllib.request.Request(f"http://{gateway.rest}/v2/models/digits/infer", body, headers)
    try:
        with urllib.request.urlopen(request, timeout=TALK_S) as answer:  # noqa: S310
            return "", {name.lower(): value for name, value in answer.headers.items()}
    except urllib.error.HTTPError as error:
        with error:
            return json.loads(error.read())["error"], {"status": str(error.code)}


def over_grpc(gateway: GatewayProcess, headers: dict[str, str], parameters: dict[str, str]) -> Told:
    request = service_pb2.ModelInferRequest(model_name="digits")
    request.inputs.add(name="PIXELS", datatype="FP32", shape=[1, 64]).contents.fp32_contents.extend(
        [0.5] * 64
    )
    for name, value in parameters.items():
        request.parameters[name].string_param = value
    with grpc.insecure_channel(gateway.grpc) as channel:
        infer = channel.unary_unary(INFER, service_pb2.ModelInferRequest.SerializeToString)
        try:
            _, call = infer.with_call(request, TALK_S, tuple(headers.items()))
        except grpc.RpcError as error:
            return error.details(), {"status": error.code().name}
        return "", dict(call.trailing_metadata())


@pytest.mark.parametrize(
    ("headers", "parameters", "answering", "floor"),
    [
        ({}, {}, set(ACCURACY) - {"pooled"}, 0.97),
        ({"x-tier": "best"}, {}, {"ensemble"}, max(ACCURACY.values())),
        ({}, {"tier": "best"}, {"ensemble"}, max(ACCURACY.values())),
        ({"x-tier": "frugal"}, {}, set(ACCURACY), 0.9),
        ({"x-tenant": "thrifty"}, {}, set(ACCURACY), 0.9),
        ({"x-tenant": "thrifty", "x-accuracy-min": "0.99"}, {}, {"cnn", "ensemble"}, 0.99),
        ({"x-tier": "frugal"}, {"accuracy_min": "0.975"}, {"mlp", "cnn", "ensemble"}, 0.975),
        ({}, {"variant": "pooled"}, {"pooled"}, 0.0),
    ],
)
def test_an_answer_keeps_what_was_asked_for_and_says_so_kept_or_not(
    gateway: GatewayProcess,
    headers: dict[str, str],
    parameters: dict[str, str],
    answering: set[str],
    floor: float,
) -> None:
    for ask, said in product((over_rest, over_grpc), ({"cache-control": "no-cache"}, {})):
        refused, fields = ask(gateway, headers | said, parameters)
        assert refused == ""
        variant = fields["x-penstock-variant"]
        assert variant in answering
        assert ACCURACY[variant] >= floor - 1e-9
        assert fields["x-penstock-accuracy"] == f"{ACCURACY[variant]:.4g}"
        assert fields["x-cache"] in ({"miss"} if said else {"hit", "miss"})


@pytest.mark.parametrize(
    ("headers", "parameters", "sentence"),
    [
        ({"x-tier": "bets"}, {}, "model 'digits' has no tier 'bets'; did you mean 'best'?"),
        ({"x-tier": "best"}, {"tier": "frugal"}, "a request has one tier, but x-tier says 'best'"),
        ({"x-accuracy-min": "0.999"}, {}, "at most {best} (ensemble); accuracy_min 0.999 cannot be met"),
        ({"x-accuracy-min": "99"}, {}, "x-accuracy-min must be a number from 0 to 1 (0.95 for 95 %)"),
        ({"x-tier": "best"}, {"variant": "linear"}, "of tier 'best' asks for more, reached by {best}"),
    ],
)
def test_what_cannot_be_is_refused_alike_over_both_wires(
    gateway: GatewayProcess, headers: dict[str, str], parameters: dict[str, str], sentence: str
) -> None:
    rest, rpc = (ask(gateway, headers, parameters) for ask in (over_rest, over_grpc))
    assert (rest[1], rpc[1]) == ({"status": "400"}, {"status": "INVALID_ARGUMENT"})
    assert rest[0] == rpc[0]
    best = json.loads(Path("models/digits/build/accuracy.json").read_text())[
        "ensemble"
    ]  # as it was trained here
    assert sentence.replace("{best}", f"{best:.6g}") in rest[0]


def test_metadata_tells_tiers_and_who_may_answer(gateway: GatewayProcess) -> None:
    status, body = gateway.get("/v2/models/digits")
    assert status == 200
    told = json.loads(body)["parameters"]
    assert told["objective"]["variants"] == ["ensemble", "cnn", "mlp", "linear"]
    assert told["tiers"]["best"]["variants"] == ["ensemble"]
    assert told["tiers"]["frugal"] == {
        "slo_ms": 10000.0,
        "slo_rows": None,
        "percentile": 99.0,
        "accuracy_min": 0.9,
        "cost_max": None,
        "optimize": "cheapest",
        "variants": ["ensemble", "cnn", "mlp", "linear", "pooled"],
    }
