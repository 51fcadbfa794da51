"""What `penstock status` says of replicas that follow the load."""

from router.scaled_status import SHOWN_MAX, ScaledStatus, scaled_lines, scaled_status
from serving.control.scaling_status import ScalingStatus


def scaled(
    ready: int = 2, desired: int = 2, standing: int = 0, why: str = "", held: str = ""
) -> ScaledStatus:
    return scaled_status(
        ScalingStatus("m", desired, 2, ready, 2 - ready, standing, 1, 4, ("a", "b"), 0.75, why, held=held)
    )


def test_nothing_is_said_where_no_replicas_follow_the_load() -> None:
    assert list(scaled_lines({})) == []


def test_it_says_how_many_are_ready_coming_and_standing_by_and_why() -> None:
    found = list(scaled_lines({"digits": scaled(ready=1, standing=1, why="420 rows/s come")}))
    assert found == [
        " replicas that follow the load:",
        "   digits   1 of 2 ready, 1 coming, 1 standing by; pressure 0.75; 420 rows/s come",
    ]


def test_what_cannot_be_had_is_said_with_the_reason() -> None:
    (_, line) = scaled_lines({"m": scaled(desired=4, held="the ceiling of 3 an hour")})
    assert line == "   m   2 of 2 ready, 4 wished (the ceiling of 3 an hour); pressure 0.75; just begun"


def test_models_that_lack_replicas_come_first_and_the_rest_is_counted() -> None:
    models = {f"m{number:02}": scaled() for number in range(SHOWN_MAX + 2)} | {"z": scaled(ready=0)}
    lines = list(scaled_lines(models))
    assert lines[1].startswith("   z ")
    assert lines[-1] == "   and 3 more models"
    assert len(lines) == SHOWN_MAX + 2
