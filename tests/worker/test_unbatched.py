"""The code of a model without a batch dimension sees none, whether it takes arrays or tensors."""

import gc
import weakref
from typing import Any

import numpy as np
import pytest

from serving.worker.backends.unbatched import Unbatched

PARAMETERS = {"k": 2}


class Plain:
    """Counts what it sees."""

    padded_size = 3

    def predict(self, inputs: dict[str, Any], parameters: dict[str, Any]) -> Any:
        assert inputs["X"].shape == (2, 3)
        return {"Y": inputs["X"] * parameters["k"], "Z": "no array"}

    def sample(self, rows: int, size: int) -> dict[str, Any]:
        return {"X": np.full((2, 3), size, np.float32)}


class OnDevice:
    """Takes tensors, which take indices as arrays do."""

    def predict_device(self, inputs: dict[str, Any], parameters: dict[str, Any]) -> Any:
        return {"Y": inputs["X"].sum(axis=0)}


class Wrong:
    """Returns no mapping."""

    def predict(self, inputs: dict[str, Any], parameters: dict[str, Any]) -> Any:
        return [inputs]


@pytest.fixture
def batch() -> dict[str, Any]:
    return {"X": np.arange(6, dtype=np.float32).reshape(1, 2, 3)}


def test_one_row_goes_in_and_comes_out(batch: dict[str, Any]) -> None:
    model: Any = Unbatched(Plain())
    found = model.predict(batch, PARAMETERS)
    assert np.array_equal(found["Y"], batch["X"] * 2)
    assert (found["Z"], model.padded_size) == ("no array", 3)
    assert model.sample(1, 5)["X"].shape == (1, 2, 3)
    assert not hasattr(model, "predict_device")


def test_a_model_of_tensors_has_its_own_method_only(batch: dict[str, Any]) -> None:
    model: Any = Unbatched(OnDevice())
    assert model.predict_device(batch, {})["Y"].tolist() == [[3, 5, 7]]
    assert not hasattr(model, "predict")
    assert not hasattr(model, "sample")
    assert model.padded_size == 0


def test_an_answer_that_is_none_stays_one(batch: dict[str, Any]) -> None:
    model: Any = Unbatched(Wrong())
    assert isinstance(model.predict(batch, {}), list)


def test_the_model_goes_with_the_adapter() -> None:
    own = Plain()
    left, adapter = weakref.ref(own), Unbatched(own)
    gc.disable()
    try:
        del own, adapter
        assert left() is None
    finally:
        gc.enable()
