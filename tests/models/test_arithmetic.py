"""The models without training: simple, identity, mlp."""

import time

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.models.samples import loaded

pytestmark = pytest.mark.live

INT32 = st.integers(-(1 << 31), (1 << 31) - 1)


def _wrapped(number: int) -> int:
    return (number + (1 << 31)) % (1 << 32) - (1 << 31)


@given(st.lists(st.tuples(INT32, INT32), min_size=16, max_size=16))
def test_simple_adds_and_subtracts_and_wraps_at_32_bits(pairs: list[tuple[int, int]]) -> None:
    left, right = (np.array([column], np.int32) for column in zip(*pairs, strict=True))
    outputs = loaded("simple", "default").predict({"INPUT0": left, "INPUT1": right}, {})
    assert outputs["OUTPUT0"].tolist() == [[_wrapped(a + b) for a, b in pairs]]
    assert outputs["OUTPUT1"].tolist() == [[_wrapped(a - b) for a, b in pairs]]


@pytest.mark.parametrize(
    "array",
    [
        np.array([[1.5, np.nan]], np.float32),
        np.array([[True, False]]),
        np.array([[0x3F80, 0x7FC1]], np.uint16),  # BF16: 1.0 and a NaN with a payload
        np.array([[b"", b"\x00\xff"]], object),
        np.zeros((0, 3), np.int64),
        np.zeros((2, 0), np.float16),
    ],
    ids=lambda array: f"{array.dtype}{list(array.shape)}",
)
def test_identity_gives_back_every_datatype_unchanged(array: np.ndarray) -> None:
    output = loaded("identity", "default").predict({"INPUT0": array}, {})["OUTPUT0"]
    assert output.dtype == array.dtype
    assert output.shape == array.shape
    assert output.tobytes() == array.tobytes()


def test_identity_answers_after_the_delay_that_was_asked_for() -> None:
    started = time.perf_counter()
    loaded("identity", "default").predict({"INPUT0": np.zeros((1, 1))}, {"execute_delay_ms": 30})
    assert time.perf_counter() - started >= 0.030


@pytest.mark.slow
def test_mlp_rows_do_not_depend_on_their_batch() -> None:
    model = loaded("mlp", "fp32")
    batch = model.sample(5, 0)["INPUT"]
    alone = np.concatenate([model.predict({"INPUT": row[None]}, {})["OUTPUT"] for row in batch])
    assert np.abs(model.predict({"INPUT": batch}, {})["OUTPUT"] - alone).max() <= 1e-5


@pytest.mark.slow
def test_mlp_weights_are_those_of_its_seed() -> None:
    """Pinned, so that profiles and load tests of different days speak of the same model."""
    output = loaded("mlp", "fp32").predict({"INPUT": np.ones((1, 1024), np.float32)}, {})["OUTPUT"]
    assert output.std() > 0.1  # neither vanished nor exploded through the layers
    assert output[0, :3] == pytest.approx([-0.27062, -0.57875, -1.30394], abs=1e-4)
