"""Tables side by side say what each says alone."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.policy.scaling.carried.capacity import Capacity
from serving.policy.scaling.slow.tables import NEVER, make_tables
from tests.policy.scaling.scaling_tasks import capacity

BURSTY = Capacity((1, 2, 4, 8), (1.0, 4.0), ((22.0, 108.0, 300.0, 696.0), (10.0, 60.0, 200.0, 500.0)))
SHORT = Capacity((1, 3), (1.0,), ((10.0, 45.0),))


@given(st.integers(1, 40), st.floats(0.5, 6.0), st.floats(0.1, 2000.0))
def test_they_pace_and_count_as_the_capacities_do(pool: int, cv: float, rate: float) -> None:
    tables = make_tables([BURSTY, SHORT], [cv, cv])
    pace = tables.pace(np.arange(2), np.array([pool, pool]))
    needed = tables.needed(np.arange(2), np.array([rate, rate]))
    for place, alone in enumerate((BURSTY, SHORT)):
        assert pace[place] * pool == pytest.approx(alone.rate(pool, cv))
        assert needed[place] == alone.needed(rate * (1 - 1e-9), cv)


def test_a_lucky_simulation_is_not_believed() -> None:
    """One replica that carries more than half of what two do is taken for half."""
    tables = make_tables([Capacity((1, 2), (1.0,), ((60.0, 100.0),))], [1.0])
    assert tables.pace(np.array([0]), np.array([1])) == pytest.approx([50.0])


def test_none_for_no_rows_and_never_where_nothing_is_carried() -> None:
    tables = make_tables([capacity(100.0), capacity(0.0)], [1.0, 1.0])
    assert tables.needed(np.arange(2), np.array([0.0, 5.0])).tolist() == [0, NEVER]
