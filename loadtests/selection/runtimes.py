"""The same network by every runtime, each live with an SLO and no tuning.

  python -m loadtests.selection.runtimes
  python -m loadtests.selection.runtimes --rounds 1 --seconds 4 --only torch onnx

The network is the sample `mlp`. It is written as an ONNX file, as one with int8 weights, and as a file of
torch.export. The worker is alone on one core; gateway and client share another. Requests have 8 rows. The
capacity is what the bare variant carries in batches that take half the SLO. Figures are goodput as a share of
what was asked, or of the capacity if that is less: the median of the rounds, with the worst in brackets.
`differs` is the largest difference of an answer from torch's, as a share of the largest answer.
"""

import argparse
import importlib.util
import sys
import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import onnx
import torch
import yaml
from onnx import TensorProto, helper, numpy_helper
from onnxruntime.quantization import QuantType, quantize_dynamic

from loadtests.harness.gateway import copied_model, started
from loadtests.harness.processes import pin
from loadtests.stand import bare
from loadtests.stand.shares import Run, Share, goodput
from serving.worker.backends.chosen import ChosenBackend
from serving.worker.frames.orders import LoadOrder

MODEL, SLO_MS, BATCH_MAX, OPSET = "mlp", 50.0, 64, 17
ROWS = 8
"""Of a request: with one, the gateway's core and not the network would be the limit of the fastest."""
LOADS = (0.8, 1.5, 3.0)
WARM_UP_S = 3.0
VARIANTS: Mapping[str, Mapping[str, str]] = {
    "torch": {},
    "torch_export": {"backend": "torch_export", "artifact": "mlp.pt2"},
    "onnx": {"backend": "onnx", "artifact": "mlp.onnx"},
    "openvino": {"backend": "openvino", "artifact": "mlp.onnx"},
    "onnx_int8": {"backend": "onnx", "artifact": "mlp8.onnx"},
}


@dataclass(slots=True)
class Found:
    """What is known of a variant. `shares`: by load, of the rounds."""

    differs: float
    capacity: bare.Capacity | None = None
    shares: dict[float, list[float]] = field(default_factory=dict)


def main() -> int:
    """Return 0 if everything ran, 2 if nothing could."""
    asked = _arguments()
    names = asked.only or [*VARIANTS]
    try:
        with tempfile.TemporaryDirectory(prefix="runtimes-") as name:
            folder = copied_model(MODEL, Path(name), BATCH_MAX)
            write_variants(folder)
            found = {each: Found(difference(folder, each)) for each in names}
            for number in range(asked.rounds):
                for each in names:
                    _play(folder, each, found[each], number, asked)
    except (ValueError, OSError, RuntimeError) as error:
        sys.stderr.write(f"runtimes: {error}\n")
        return 2
    print("\n".join(table(found)))
    return 0


def table(found: Mapping[str, Found]) -> Iterator[str]:
    """Yield Markdown: a row for each variant."""
    yield "| variant | differs | rows/s | in batches of | " + " | ".join(f"{each:g}" for each in LOADS) + " |"
    yield "|---" * (4 + len(LOADS)) + "|"
    for name, each in found.items():
        if each.capacity is None:
            continue
        shares = (f"{median(each.shares[load]):.2f} ({min(each.shares[load]):.2f})" for load in LOADS)
        rate, rows = f"{each.capacity.rate:.0f}", each.capacity.rows
        yield f"| {name} | {each.differs:.1e} | {rate} | {rows} | {' | '.join(shares)} |"


def _play(folder: Path, name: str, found: Found, number: int, asked: argparse.Namespace) -> None:
    stated = yaml.safe_load((folder / "model.yaml").read_text())
    (folder / "model.yaml").write_text(yaml.safe_dump({**stated, "default_variant": name}))
    with bare.loaded(str(folder), asked.worker_core) as alone:
        found.capacity = capacity = alone.capacity(SLO_MS * 1e3)
    entry: dict[str, object] = {"path": str(folder), "slices": ["measured"], "slo_ms": SLO_MS}
    entry |= {"variants": [name], "default_variant": name}
    with started([entry], [asked.worker_core], folder.parent / "profiles") as gateway:
        pin(gateway.pid, [asked.core])
        goodput(gateway, Share(0.5, capacity.rate), Run(MODEL, SLO_MS, WARM_UP_S, asked.core, rows=ROWS))
        for load in LOADS:
            share = Share(load, capacity.rate)
            run = Run(MODEL, SLO_MS, asked.seconds, asked.core, number, ROWS)
            good = goodput(gateway, share, run)
            found.shares.setdefault(load, []).append(good / share.best)
            sys.stderr.write(f"round {number + 1}: {name} at {load:g}: {good / share.best:.3f}\n")


def write_variants(folder: Path) -> None:
    layers = _layers(folder)
    nodes, kept, hidden = [], [], "INPUT"
    for at, (weight, bias) in enumerate(layers):
        last = at == len(layers) - 1
        kept += [numpy_helper.from_array(weight, f"w{at}"), numpy_helper.from_array(bias, f"b{at}")]
        nodes.append(helper.make_node("MatMul", [hidden, f"w{at}"], [f"m{at}"]))
        nodes.append(helper.make_node("Add", [f"m{at}", f"b{at}"], ["OUTPUT" if last else f"a{at}"]))
        if not last:
            nodes.append(helper.make_node("Relu", [f"a{at}"], [f"h{at}"]))
        hidden = f"h{at}"
    sizes = {"INPUT": layers[0][0].shape[0], "OUTPUT": layers[-1][0].shape[1]}
    ends = {
        name: helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", size])
        for name, size in sizes.items()
    }
    graph = helper.make_graph(nodes, MODEL, [ends["INPUT"]], [ends["OUTPUT"]], kept)
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=9)
    onnx.save(made, folder / "mlp.onnx")
    quantize_dynamic(folder / "mlp.onnx", folder / "mlp8.onnx", weight_type=QuantType.QInt8)
    _export(layers, folder / "mlp.pt2")
    stated = yaml.safe_load((folder / "model.yaml").read_text())
    variants = [{"name": name, **keys} for name, keys in VARIANTS.items()]
    changed = {**stated, "variants": variants, "default_variant": "torch", "deterministic": False}
    (folder / "model.yaml").write_text(yaml.safe_dump(changed))


def _export(layers: list[tuple[Any, Any]], file: Path) -> None:
    modules: list[torch.nn.Module] = []
    for weight, bias in layers:
        linear = torch.nn.Linear(*weight.shape)
        with torch.no_grad():
            linear.weight.copy_(torch.from_numpy(weight.T))
            linear.bias.copy_(torch.from_numpy(bias))
        modules += [linear, torch.nn.ReLU()]
    network = torch.nn.Sequential(*modules[:-1]).eval()
    rows = torch.export.Dim("rows", min=1, max=BATCH_MAX)
    example = (torch.rand(4, layers[0][0].shape[0]),)
    torch.export.save(torch.export.export(network, example, dynamic_shapes=({0: rows},)), file)


def _layers(folder: Path) -> list[tuple[Any, Any]]:
    """Return weight `[inputs, outputs]` and bias of each layer of the sample."""
    spec = importlib.util.spec_from_file_location("mlp_sample", folder / "model.py")
    assert spec is not None  # noqa: S101
    assert spec.loader is not None  # noqa: S101
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found = module.Model()._layers  # noqa: SLF001  # the sample's own weights
    return [(np.ascontiguousarray(weight.numpy()), bias.numpy()) for weight, bias in found]


def difference(folder: Path, name: str) -> float:
    """Return how far the variant's answers are from torch's."""
    spec = bare.read_spec(folder)
    rows = {"INPUT": np.random.default_rng(7).random((16, spec.inputs[0].shape[1]), np.float32)}
    backend = ChosenBackend(1)
    answers = [
        np.asarray(backend.load(LoadOrder.of(0, spec, each)).predict(dict(rows), {})["OUTPUT"])
        for each in ("torch", name)
    ]
    return float(np.abs(answers[1] - answers[0]).max() / np.abs(answers[0]).max())


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    add("--seconds", type=float, default=8.0, help="of each run")
    add("--rounds", type=int, default=3)
    add("--only", nargs="+", choices=VARIANTS, help="variants by name")
    add("--worker-core", type=int, default=0)
    add("--core", type=int, default=1, help="of gateway and client")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
