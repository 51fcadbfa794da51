"""What `penstock status` says of replicas that follow the load."""

from router.observing.scaled_status import SHOWN_MAX, ScaledStatus, scaled_lines, scaled_status
from serving.control.scaling.scaling_status import ScalingStatus


def scaled(ready: int = 2) -> ScaledStatus:
    return scaled_status(ScalingStatus("m", 2, 2, ready, 2 - ready, 0, 1, 4, ("a", "b"), 0.75))


def test_models_that_lack_replicas_come_first_and_the_rest_is_counted() -> None:
    models = {f"m{number:02}": scaled() for number in range(SHOWN_MAX + 2)} | {"z": scaled(ready=0)}
    lines = list(scaled_lines(models))
    assert lines[1].startswith("   z ")
    assert lines[-1] == "   and 3 more models"
    assert len(lines) == SHOWN_MAX + 2
