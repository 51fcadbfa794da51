"""What is held, and how many replicas there were, from what happened to them."""

from serving.simulation.devices.held import HeldSlices, Presence, Replicas, together


def test_a_slice_is_held_from_its_workers_start_to_its_end() -> None:
    held = HeldSlices()
    held.started("a", 10)
    held.started("b", 20)
    held.lost("a", 50)
    held.started("a", 70)
    assert sorted(held.within_us(0, 100)) == [("a", 30), ("a", 40), ("b", 80)]
    assert sorted(held.within_us(40, 60)) == [("a", 0), ("a", 10), ("b", 20)]
    assert "a" in held
    held.lost("b", 90)
    assert "b" not in held


def test_replicas_are_slices_whatever_number_of_variants_is_there() -> None:
    presence = Presence(["m", "other"])
    presence.up("a", "m", "fast", 10)
    presence.up("a", "m", "good", 20)
    presence.up("b", "m", "fast", 50)
    presence.down("a", "m", "fast", 60)  # "good" is still there
    presence.gone("a", 80)
    assert presence.replicas("m", 0, 100) == Replicas(0, 2, (40 + 2 * 30 + 20) / 100, 3)
    assert presence.replicas("m", 10, 50) == Replicas(1, 1, 1.0, 0)
    assert presence.replicas("other", 0, 100) == Replicas(0, 0, 0.0, 0)


def test_what_is_as_before_within_one_instant_is_no_change() -> None:
    presence = Presence(["m"])
    presence.up("a", "m", "v", 10)
    presence.gone("a", 50)
    presence.up("b", "m", "v", 50)
    assert presence.replicas("m", 20, 100) == Replicas(1, 1, 1.0, 0)


def test_runs_are_told_together() -> None:
    assert together([Replicas(1, 2, 1.5, 2), Replicas(0, 3, 2.5, 4)]) == Replicas(0, 3, 2.0, 6)
