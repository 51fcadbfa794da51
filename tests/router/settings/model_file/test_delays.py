"""A parameter by which a client says how long a batch takes is bounded by what ends a worker."""

from dataclasses import replace
from pathlib import Path

import pytest

from router.settings import load_settings
from router.settings.gateway import read_served
from router.settings.model_file.delays import bounded
from router.settings.values.document import read_document
from serving.values.specs import Limits, ParameterSpec
from tests.builders import model_spec, served
from tests.router.settings.samples import GATEWAY, TEXT, write_gateway, write_model

LIMITS = Limits(stall_us=5_000_000)


@pytest.mark.parametrize(
    ("unit", "maximum", "most"),
    [
        ("ms", 60_000, 2500), ("ms", None, 2500), ("ms", 2500, None), ("ms", 100, None),
        ("s", 60, 2.5), ("us", None, 2_500_000), ("", 60_000, None), ("", None, None),
    ],
)  # fmt: skip
def test_a_time_is_at_most_half_of_what_a_batch_may_be_late(
    unit: str, maximum: float | None, most: float | None
) -> None:
    spec = ParameterSpec("delay", "float", 0.0, 0, maximum, unit)
    model = served(replace(model_spec("m"), parameters=(spec,)), ())
    (found,) = bounded(model, LIMITS).spec.parameters
    bound = replace(spec, maximum=most, bounded_by="50% of limits.stall_s")
    assert found == (spec if most is None else bound)


def test_the_settings_have_the_bound_and_so_has_a_model_that_is_read_again(home: Path) -> None:
    write_model(home / "models" / "minilm", TEXT.replace("60000}", "60000, time_unit: ms}"))
    path = write_gateway(home, GATEWAY)
    expected = ParameterSpec("delay_ms", "int", 0, 0, 1250, "ms", "50% of limits.stall_s")
    assert load_settings(path).models[1].spec.parameters == (expected,)
    assert read_served(read_document(path), 1)[0].spec.parameters == (expected,)
