"""What metrics say of profiles."""

from router.observing.telemetry import Present, Telemetry
from serving.policy.estimates.freshness import BATCHES, Freshness, Judgement, ProfileWatch
from tests.router.happenings import key, samples


def test_what_batches_say_of_profiles_is_exported_by_replica() -> None:
    telemetry = Telemetry([])
    slow, unused = ProfileWatch(), ProfileWatch()
    for _ in range(BATCHES):
        slow.add(1, 0, 1.0, False)
        slow.add(1, 0, 1.3, True)
    judged = [Judgement(("cpu0", "a", "v"), slow), Judgement(('cpu"1', "b", "v"), unused)]
    telemetry.read_present = lambda: Present(profiles=judged)
    exported = samples(telemetry)
    place, other = {"model": "a", "variant": "v", "slice": "cpu0"}, {"model": "b", "variant": "v"}
    states = [exported[key("penstock_profile_state", **place, state=state)] for state in Freshness]
    assert states == [0, 0, 1]
    assert exported[key("penstock_profile_ratio", **place, neighbours="idle")] == 1.0
    assert exported[key("penstock_profile_ratio", **place, neighbours="busy")] == 1.3
    assert exported[key("penstock_profile_state", **other, slice='cpu"1', state="fresh")] == 1
    assert key("penstock_profile_ratio", **other, slice='cpu"1', neighbours="idle") not in exported
