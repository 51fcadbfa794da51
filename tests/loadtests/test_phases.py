"""The phases of real requests explain what their clients measure, in every dialect."""

from collections.abc import Iterator

import pytest

from loadtests.dialects import MODEL
from loadtests.gateway import Gateway, model_entry, started
from loadtests.phases import measure
from tests.loadtests.patience import PATIENT_MS

pytestmark = [pytest.mark.live, pytest.mark.slow]


@pytest.fixture(scope="module")
def gateway() -> Iterator[Gateway]:
    with started([model_entry(MODEL, slo_ms=PATIENT_MS)]) as running:
        yield running


def test_phases_and_floor_explain_what_a_client_measures_and_never_more_than_that(gateway: Gateway) -> None:
    dialects = measure(gateway, requests=150, turns=4)
    assert [each.name for each in dialects] == ["REST, JSON", "REST, binary", "gRPC"]
    for one in dialects:
        assert all(phases_us < client_us for client_us, phases_us in one.gateway), one.name
        assert 0.75 <= one.explained <= 1.25, (one.name, one.client_us, one.phases_us, one.floor_us)
