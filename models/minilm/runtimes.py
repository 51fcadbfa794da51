"""minilm by several runtimes: the code of the folder that `python models/minilm/export.py FOLDER` writes.

Texts become tokens as in the sample; the encoder runs in torch, in ONNX Runtime or in OpenVINO.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from tokenizers import Tokenizer

from . import model as sample


class OnnxEncoder:
    """An exported encoder, run by ONNX Runtime."""

    device = torch.device("cpu")

    def __init__(self, file: Path) -> None:
        import onnxruntime

        settings = onnxruntime.SessionOptions()
        settings.intra_op_num_threads = torch.get_num_threads()
        settings.add_session_config_entry("session.intra_op.allow_spinning", "0")
        self._session = onnxruntime.InferenceSession(str(file), settings, providers=["CPUExecutionProvider"])

    def embed(self, ids: torch.Tensor, present: torch.Tensor) -> torch.Tensor:
        """Do as the sample's Encoder."""
        (found,) = self._session.run(None, {"ids": ids.numpy(), "present": present.numpy()})
        return torch.from_numpy(found)


class OpenVinoEncoder:
    """The same file, run by OpenVINO."""

    device = torch.device("cpu")

    def __init__(self, file: Path) -> None:
        import openvino

        threads = {"INFERENCE_NUM_THREADS": torch.get_num_threads(), "INFERENCE_PRECISION_HINT": "f32"}
        compiled = openvino.compile_model(str(file), "CPU", threads)
        self._request = compiled.create_infer_request()

    def embed(self, ids: torch.Tensor, present: torch.Tensor) -> torch.Tensor:
        """Do as the sample's Encoder."""
        self._request.infer({"ids": ids.numpy(), "present": present.numpy()})
        return torch.from_numpy(np.array(self._request.get_output_tensor(0).data))


ENCODERS: Mapping[str, Any] = {"onnx": OnnxEncoder, "openvino": OpenVinoEncoder}


def load(artifact: Path | None, options: Mapping[str, sample.Scalar]) -> sample.Model:
    """Return a variant. `options`: those of the sample, and the "runtime": torch where there is none."""
    if "runtime" not in options:
        return sample.load(artifact, options)
    folder = sample.package_folder()
    if folder is None:
        raise ModuleNotFoundError(f"minilm: package {sample.PACKAGE} is not installed; run `make setup`")
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    return sample.Model(tokenizer, ENCODERS[str(options["runtime"])](artifact), int(options["tokens"]))
