"""Published algorithms stand beside a plan, where they carry what it carries."""

import pytest

from router.place.comparing import compared
from tests.planning.worlds import question

pytestmark = pytest.mark.slow


def test_published_algorithms_that_carry_all_rates_are_there_with_devices_and_cost() -> None:
    found = compared(question({"m": 100.0}).problem)
    assert found
    assert {devices for devices, _ in found.values()} == {1}


def test_algorithms_that_do_not_carry_all_rates_are_left_out() -> None:
    assert compared(question({"m": 1e6}).problem) == {}
