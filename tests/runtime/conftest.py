"""What several files of tests ask for by name."""

from collections.abc import Iterator

import pytest

from tests.runtime.redis_tiers import away_after


@pytest.fixture
def patient_tier() -> Iterator[None]:
    """A machine that stands still for a while is no server that has gone."""
    with away_after(5.0):
        yield
