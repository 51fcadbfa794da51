"""What control promises whatever happens: random fleets, moves, crashes, failed loads and lost devices, in
virtual time. What is held against each event is in `controlled_watch.py`."""

from collections import Counter

import pytest

from serving.values.vocabulary import COMPLETED, NO_REPLICA, UNKNOWN_MODEL, Outcome
from tests.seeds import parts, seeds
from tests.simulation.controlled_watch import Watch
from tests.simulation.controlled_worlds import END_US, Asked, Residing, Simple, Solved

World = type[Simple] | type[Solved] | type[Residing]
NIGHT: list[tuple[World, int]] = [(Simple, 500), (Solved, 40), (Residing, 460)]


def play(world: World, seed: int) -> Watch:
    """A world to its end; the log of a broken promise is shown."""
    watch = world(seed).watch(seed)
    try:
        watch.play(END_US)
        watch.conclude()
    except AssertionError as error:
        error.add_note("\n".join([f"{world.__name__} {seed}", *watch.log[-60:]]))
        raise
    return watch


@pytest.mark.parametrize(("world", "seeds"), [(Simple, 6), (Residing, 8)])
def test_promises_are_kept_at_every_event_and_what_is_wanted_is_so_in_the_end(
    world: World, seeds: int
) -> None:
    for seed in range(seeds):
        play(world, seed)


@pytest.mark.slow
@pytest.mark.timeout(400)
@pytest.mark.parametrize(
    ("world", "part"), [(world, part) for world, night in NIGHT for part in parts(night)]
)
def test_a_thousand_worlds_keep_the_promises(world: World, part: range) -> None:
    happened: Counter[str] = Counter()
    steady = 0
    for seed in part:
        watch = play(world, seed)
        happened += watch.seen
        steady += watch.control.progress.state == "steady"
    assert steady > 0.9 * len(part) - 1
    if len(part) > 20:  # fewer worlds may lack an event
        assert (
            min(happened[each] for each in ("UnloadReplica", "device_lost", "replica_failed"))
            > len(part) / 10
        )
        assert world is Residing or happened["Replan"] > len(part) / 10


@pytest.mark.slow
def test_what_is_accepted_is_answered_in_time_whatever_is_wanted_in_between() -> None:
    outcomes: Counter[Outcome] = Counter()
    for seed in (played := seeds(100)):
        world = Asked(seed)
        watch = world.watch(seed)
        watch.play(END_US)
        watch.conclude()
        assert world.requests.open == 0
        assert len(world.requests.ended) == 200 * len(world.models)
        late = [each for each in world.requests.ended if each.outcome is COMPLETED and each.late_us > 0]
        assert not late
        outcomes.update(each.outcome for each in world.requests.ended)
    assert outcomes.keys() <= {COMPLETED, NO_REPLICA, UNKNOWN_MODEL}
    assert outcomes[COMPLETED] > 250 * len(played)


def test_a_seed_gives_the_same_run() -> None:
    assert play(Simple, 3).log == play(Simple, 3).log
