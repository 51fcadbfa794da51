"""Writes a model folder with minilm by several runtimes: `python models/minilm/export.py FOLDER`.

The variants are torch in fp32, bf16 and int8, ONNX Runtime in fp32 and int8, and OpenVINO in fp32. Each has
its accuracy beside it, measured as the sample's. Needs onnx, onnxruntime and openvino (`make test` installs
them).
"""

import argparse
import importlib.util
import json
import sys
import warnings
from pathlib import Path

import torch
import yaml

HERE = Path(__file__).resolve().parent
OPSET = 17
VARIANTS = [
    {"name": "torch-fp32", "options": {"precision": "fp32", "tokens": 128}},
    {"name": "torch-bf16", "options": {"precision": "bf16", "tokens": 128}},
    {"name": "torch-int8", "options": {"precision": "int8", "tokens": 128}},
    {"name": "onnx-fp32", "artifact": "encoder.onnx", "options": {"runtime": "onnx", "tokens": 128}},
    {"name": "onnx-int8", "artifact": "encoder-int8.onnx", "options": {"runtime": "onnx", "tokens": 128}},
    {"name": "openvino-fp32", "artifact": "encoder.onnx", "options": {"runtime": "openvino", "tokens": 128}},
]


class Exported(torch.nn.Module):
    """The sample's encoder, as what torch exports."""

    def __init__(self, encoder: object) -> None:
        super().__init__()
        self._encoder = encoder

    def forward(self, ids: torch.Tensor, present: torch.Tensor) -> torch.Tensor:
        """Do as `Encoder.embed`."""
        return self._encoder.embed(ids, present)


def write_graphs(folder: Path) -> None:
    """Write the encoder as ONNX, in fp32 and with weights in 8 bits."""
    import model
    from onnxruntime.quantization import QuantType, quantize_dynamic
    from onnxruntime.quantization.shape_inference import quant_pre_process

    package = model.package_folder()
    if package is None:
        raise SystemExit(f"minilm: package {model.PACKAGE} is not installed; run `make setup`")
    free = {0: "rows", 1: "tokens"}
    ids = torch.arange(14).reshape(2, 7)
    with torch.inference_mode(), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of an exporter that is old, and needs no further package
        encoder = model.Encoder(model.package_weights(package), "fp32")
        torch.onnx.export(
            Exported(encoder), (ids, torch.ones_like(ids, dtype=torch.bool)), str(folder / "encoder.onnx"),
            input_names=["ids", "present"], output_names=["embedding"], opset_version=OPSET, dynamo=False,
            dynamic_axes={"ids": free, "present": free, "embedding": {0: "rows"}},
        )  # fmt: skip
    # Folded first: an exported weight is a constant that is turned around, which none takes for a weight.
    folded = folder / "folded.onnx"
    quant_pre_process(folder / "encoder.onnx", folded, skip_symbolic_shape=True)
    quantize_dynamic(folded, folder / "encoder-int8.onnx", weight_type=QuantType.QInt8)
    folded.unlink()


def loaded() -> object:
    """Return the module `runtimes`, as a worker executes it: with its neighbours as its package."""
    spec = importlib.util.spec_from_file_location(
        "minilm_runtimes", HERE / "runtimes.py", submodule_search_locations=[str(HERE)]
    )
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path, help="a new folder, for the model")
    parser.add_argument("--pairs", type=int, default=300, help="to measure accuracy with")
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True)
    write_graphs(asked.folder)
    import retrieval

    torch.set_num_threads(1)
    pairs, runtimes, accuracy = retrieval.collect_pairs()[: asked.pairs], loaded(), {}
    for variant in VARIANTS:
        artifact = asked.folder / variant["artifact"] if "artifact" in variant else None
        made = runtimes.load(artifact, variant["options"])
        accuracy[variant["name"]] = retrieval.recall_at_1(made, pairs)
        print(f"{variant['name']}: recall@1 {accuracy[variant['name']]:.4f} of {len(pairs)}", flush=True)
    (asked.folder / "accuracy.json").write_text(json.dumps(accuracy, indent=2) + "\n")
    stated = yaml.safe_load((HERE / "model.yaml").read_text(encoding="utf-8"))
    left_out = ("build", "endpoints")
    stated = {key: value for key, value in stated.items() if key not in left_out} | {
        "name": "minilm-runtimes", "default_variant": "torch-fp32", "variants": VARIANTS,
        "code": str(HERE / "runtimes.py"), "deterministic": False,
        "accuracy": {**stated["accuracy"], "file": "accuracy.json"},
    }  # fmt: skip
    (asked.folder / "model.yaml").write_text(yaml.safe_dump(stated, sort_keys=False))
    print(f"{asked.folder}: `penstock serve {asked.folder}` measures and serves the variants")


if __name__ == "__main__":
    main()
