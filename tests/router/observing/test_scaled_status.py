"""What `penstock status` says of replicas that follow the load."""

import pytest

from router.observing.scaled_status import SHOWN_MAX, ScaledStatus, ScaleNews, scaled_lines, scaled_status
from serving.control.scaling.scaling_status import ScalingStatus


def scaled(ready: int = 2) -> ScaledStatus:
    return scaled_status(ScalingStatus("m", 2, 2, ready, 2 - ready, 0, 1, 4, ("a", "b"), 0.75))


def test_models_that_lack_replicas_come_first_and_the_rest_is_counted() -> None:
    models = {f"m{number:02}": scaled() for number in range(SHOWN_MAX + 2)} | {"z": scaled(ready=0)}
    lines = list(scaled_lines(models))
    assert lines[1].startswith("   z ")
    assert lines[-1] == "   and 3 more models"
    assert len(lines) == SHOWN_MAX + 2


def test_a_change_of_replicas_is_logged_with_its_reason(caplog: pytest.LogCaptureFixture) -> None:
    news = ScaleNews()

    def look(count: int, why: str) -> list[str]:
        caplog.clear()
        news.look({"digits": ScalingStatus("digits", count, count, 1, 0, 0, 1, 4, ("a",), why=why)})
        return [each.getMessage() for each in caplog.records]

    with caplog.at_level("INFO", "penstock.scale"):
        assert look(1, "just begun") == []
        assert look(1, "it is enough") == []
        assert look(3, "200 rows/s come") == ["digits gets 3 replicas, 1 before: 200 rows/s come"]
        assert look(3, "200 rows/s come") == []
