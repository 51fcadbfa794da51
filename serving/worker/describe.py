"""`python -m serving.worker.describe BACKEND ARTIFACT`: what a model takes and answers, as JSON in a file.

`penstock serve FILE` asks it, in a process of its own: what a file brings in, or prints, or breaks, stays
there.
"""

import argparse
import json
import os
import statistics
import sys
import time
import traceback
from collections.abc import Callable, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Final

from serving.values.specs import ParameterValue
from serving.worker.backends import onnx, openvino, python, remote, scikit, torch_export
from serving.worker.backends.chosen import ChosenBackend
from serving.worker.backends.hf import backend as transformers
from serving.worker.backends.signature import Signature, SignatureError, batch_max_of, specs_of, unpack
from serving.worker.frames.arrays import TensorError
from serving.worker.frames.orders import LoadOrder

SIGNATURES: Final[Mapping[str, Callable[[str, Mapping[str, ParameterValue]], Signature]]] = {
    "python": python.signature_of,
    "onnx": onnx.signature_of,
    "openvino": openvino.signature_of,
    "torch_export": torch_export.signature_of,
    "transformers": transformers.signature_of,
    "sklearn": scikit.signature_of,
    "remote": remote.signature_of,
}
WARM, RUNS = 3, 7


def main() -> int:
    """Write the signature, or why there is none; returns 0 or 1."""
    parser = argparse.ArgumentParser(prog="serving.worker.describe", description=__doc__)
    parser.add_argument("backend", choices=SIGNATURES)
    parser.add_argument("artifact")
    parser.add_argument("--options", default="{}", help="of the variant, as JSON")
    parser.add_argument("--stated", type=Path, help="a file with the signature, which then is not asked for")
    parser.add_argument("--to", type=Path, required=True)
    asked = parser.parse_args()
    options = json.loads(asked.options)
    try:
        stated = unpack(json.loads(asked.stated.read_text("utf-8"))) if asked.stated else None
        found = describe(asked.backend, asked.artifact, options, stated)
    except (SignatureError, TensorError) as error:
        asked.to.write_text(json.dumps({"error": str(error)}), "utf-8")
        return 1
    except Exception as error:  # a file's own code may raise anything
        sys.stderr.write("".join(own_frames(error, asked.artifact)))
        asked.to.write_text(json.dumps({"error": f"{type(error).__name__}: {error}"}), "utf-8")
        return 1
    asked.to.write_text(json.dumps(asdict(found)), "utf-8")
    return 0


def own_frames(error: Exception, artifact: str) -> list[str]:
    """Return the part of a traceback that begins in the file's folder; nothing if no line of it ran."""
    folder = f"{Path(artifact).parent}{os.sep}"
    frames = traceback.extract_tb(error.__traceback__)
    own = next((at for at, frame in enumerate(frames) if frame.filename.startswith(folder)), len(frames))
    return traceback.format_list(frames[own:])


def describe(
    backend: str, artifact: str, options: Mapping[str, ParameterValue], stated: Signature | None = None
) -> Signature:
    """Return the signature, with the latency of one made-up row on one thread. `stated`: what is known of it
    already."""
    found = stated or SIGNATURES[backend](artifact, options)
    loaded = ChosenBackend(1).load(_order(backend, artifact, options, found))
    sample = getattr(loaded, "sample")  # noqa: B009  signatures are found of models that have one
    spent = []
    for _ in range(WARM + RUNS):
        inputs = sample(1, found.sample_size)
        started = time.perf_counter()
        loaded.predict(inputs, {})
        spent.append((time.perf_counter() - started) * 1000)
    return replace(found, latency_ms=statistics.median(spent[WARM:]))


def _order(backend: str, artifact: str, options: Mapping[str, ParameterValue], found: Signature) -> LoadOrder:
    file = Path(found.artifact or artifact)
    batch_max = batch_max_of(found)
    named = options
    if backend == "remote":
        url, model = remote.parts_of(artifact)
        named = {**options, remote.URL: url, remote.MODEL: model}
    return LoadOrder(
        0, file.stem, file.parent, "default", file if backend not in ("python", "remote") else None,
        tuple(named.items()), specs_of(found.inputs, batch_max), specs_of(found.outputs, batch_max), (0, 0),
        batch_max=max(batch_max, 1), unbatched=batch_max == 0, backend=backend,
        code=file if backend == "python" else None,
    )  # fmt: skip


if __name__ == "__main__":
    sys.exit(main())
