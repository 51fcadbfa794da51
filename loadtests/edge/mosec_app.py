"""The tiny model of `loadtests.edge.tiny_model` behind mosec, tuned by hand: bytes in, bytes out, no header.

mosec runs this file itself, with its own options: `python loadtests/edge/mosec_app.py --port 8000`.
"""

import importlib
import os
import sys
from typing import Any  # mosec carries no types

import numpy as np
from mosec import Server, Worker

sys.path.insert(0, os.environ["TINY_MODEL"])  # the folder that holds model.py


class Tiny(Worker):  # type: ignore[misc]  # see above
    """One process with the model, as one replica of the others."""

    def __init__(self) -> None:
        super().__init__()
        self._model = importlib.import_module("model").Model()

    def deserialize(self, data: bytes) -> np.ndarray:
        """Return the row of a request."""
        return np.frombuffer(data, np.float32)

    def forward(self, data: list[Any]) -> list[np.ndarray]:
        """Answer a batch."""
        return list(self._model.predict({"INPUT": np.stack(data)}, {})["OUTPUT"])

    def serialize(self, data: np.ndarray) -> bytes:
        """Return an answer as bytes."""
        return data.tobytes()


if __name__ == "__main__":
    server = Server()
    server.append_worker(Tiny, num=1, max_batch_size=int(os.environ["TINY_ROWS"]), max_wait_time=1)
    server.run()
