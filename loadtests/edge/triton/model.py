"""A sample of this repository as Triton's Python backend runs it: the same code, batched by Triton."""

import importlib.util
import json
import sys
from typing import Any

import numpy as np
import triton_python_backend_utils as triton  # of the server


class TritonPythonModel:
    """Triton's interface (github.com/triton-inference-server/python_backend)."""

    def initialize(self, args: dict[str, str]) -> None:
        """Load the sample's model.py, which the parameter `file` names, with the packages in `packages`."""
        stated = json.loads(args["model_config"])["parameters"]
        sys.path.append(stated["packages"]["string_value"])
        spec = importlib.util.spec_from_file_location("sample", stated["file"]["string_value"])
        assert spec is not None  # noqa: S101
        assert spec.loader is not None  # noqa: S101
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        self._model = module.Model()

    def execute(self, requests: list[Any]) -> list[Any]:  # Any: Triton's own types
        """Run all requests that Triton has gathered as one batch."""
        rows = [triton.get_input_tensor_by_name(each, "INPUT").as_numpy() for each in requests]
        output = self._model.predict({"INPUT": np.concatenate(rows)}, {})["OUTPUT"]
        parts = np.split(output, np.cumsum([len(each) for each in rows])[:-1])
        return [
            triton.InferenceResponse(output_tensors=[triton.Tensor("OUTPUT", np.ascontiguousarray(part))])
            for part in parts
        ]
