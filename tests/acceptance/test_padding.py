"""Rows of unlike length, live: each request gets the answer that it has alone, over REST and gRPC."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from tritonclient import grpc, http

from tests.acceptance.gateway import PATIENT_MS, START_S, serving

pytestmark = pytest.mark.slow

MODEL = f"""\
name: sums
inputs:
  - {{name: ids, datatype: INT64, shape: [-1, tokens], pad: 5}}
  - {{name: mask, datatype: INT64, shape: [-1, tokens], mask: true}}
outputs:
  - {{name: doubled, datatype: INT64, shape: [-1, tokens]}}
  - {{name: sum, datatype: INT64, shape: [-1]}}
  - {{name: rows, datatype: INT64, shape: [-1]}}
batch_max: 4
slo_ms: {PATIENT_MS}
size_hint: {{input: ids, buckets: [64]}}
"""
CODE = """\
import time
import numpy as np


class Model:
    def predict(self, inputs, parameters):
        time.sleep(0.01)  # so that others wait for a batch meanwhile
        ids, mask = inputs["ids"], inputs["mask"]
        return {"doubled": ids * 2, "sum": (ids * mask).sum(1), "rows": np.full(len(ids), len(ids))}


def load(artifact, options):
    return Model()
"""
REQUESTS = 60


def test_rows_of_unlike_length_share_batches_and_keep_their_answers(tmp_path: Path) -> None:
    folder = tmp_path / "sums"
    folder.mkdir()
    (folder / "model.yaml").write_text(MODEL)
    (folder / "model.py").write_text(CODE)
    (tmp_path / "penstock.yaml").write_text("slices: [{name: cpu}]\nmodels: [{path: sums}]\n")
    drawn = np.random.default_rng(1)
    asked = [
        drawn.integers(1, 99, (1 + at % 6, 1 + at % 17)) for at in range(REQUESTS)
    ]  # 6 rows: two batches
    with serving(tmp_path / "penstock.yaml") as gateway:
        gateway.await_ready()
        rpc = grpc.InferenceServerClient(gateway.grpc)

        def answer(at: int) -> int:
            """Check a request's answer; return the most rows that were computed with one of its rows."""
            client, kind = (rpc, grpc) if at % 2 else (rest(gateway.rest), http)
            given = kind.InferInput("ids", asked[at].shape, "INT64")
            given.set_data_from_numpy(asked[at])
            found = client.infer("sums", [given])
            assert np.array_equal(found.as_numpy("doubled"), asked[at] * 2)
            assert np.array_equal(found.as_numpy("sum"), asked[at].sum(1))
            return int(found.as_numpy("rows").max())

        with ThreadPoolExecutor(12) as threads:
            most = list(threads.map(answer, range(REQUESTS)))
        alone = [count for count, ids in zip(most, asked, strict=True) if len(ids) == 1]
        assert max(alone) > 1, "rows of unlike length never shared a batch"
        assert gateway.stop() == 0


def rest(url: str) -> http.InferenceServerClient:
    return http.InferenceServerClient(url, network_timeout=START_S, connection_timeout=START_S)
