"""A model that does not fit its slice: it is tried, refused for a reason that lasts, and tried again when
something has changed."""

from dataclasses import replace

from serving.control.commands import Cold, Command, LoadReplica
from serving.control.on_demand.on_demand import PROCESS_BYTES, memory_estimate
from serving.control.state.desired import DesiredState
from serving.control.state.replicas import why_absent
from serving.profile.curve import Profile
from serving.values.slice_specs import SliceSpec
from serving.values.vocabulary import NEVER_US
from tests.builders import profile
from tests.control.on_demand.test_on_demand import SIZE, Small
from tests.control.test_control import only
from tests.control.test_moves import model

MB = 1 << 20


class Surprising(Small):
    """The model m takes `takes` bytes, and nothing is known of it before."""

    takes = 3 * SIZE

    def known(self) -> dict[tuple[str, str, str], Profile]:
        return {key: found for key, found in super().known().items() if key[1] != "m"}

    def answer(self, command: Command):  # type: ignore[no-untyped-def]
        if isinstance(command, LoadReplica) and command.model == "m":
            self.held[str(command.replica)] = SIZE
            return self.control.replica_loaded("a", command.replica, (1000, self.takes), self.now, ())
        return super().answer(command)

    def reason(self, name: str) -> str:
        record = self.control.slices["a"]
        return next(why_absent(record, each) for each in record.replicas.values() if each.model == name)


def surprising() -> Surprising:
    world = Surprising(room=2, names="m")
    world.now += 60_000_000
    return world


def test_one_that_proves_too_large_as_it_is_loaded_ahead_of_any_request_is_not_expected_any_more() -> None:
    world = surprising()
    last = [each for each in world.done if isinstance(each, Cold) and each.model == "m"][-1]
    assert last.load_us < NEVER_US  # the first load of a process may bring what stays: it is tried once more
    assert only(world.miss("m", m=1.0), LoadReplica)


def test_the_second_time_it_is_refused_with_a_reason_until_something_changes() -> None:
    world = surprising()
    done = world.miss("m", m=1.0)
    reason = "it takes 48 MB, and its slice has 32 MB for models (memory_mb)"
    assert only(done, Cold)[-1] == Cold("m", "a", NEVER_US, reason)
    assert world.reason("m") == reason
    world.now += 600_000_000
    assert not only(world.miss("m", m=1.0), LoadReplica)


def test_it_is_tried_again_when_its_files_have_changed() -> None:
    world = surprising()
    world.miss("m", m=1.0)
    world.takes = SIZE
    spec = SliceSpec("a", (0,), memory_bytes=2 * SIZE)
    world.want(DesiredState.of([spec], [model("m", "a", revision="2")]))
    assert world.routed == {"a": ["m"]} or (world.miss("m", m=1.0) and world.routed == {"a": ["m"]})
    assert world.reason("m") == ""


def test_it_is_tried_again_when_the_slice_has_more_memory() -> None:
    world = surprising()
    world.miss("m", m=1.0)
    spec = SliceSpec("a", (0,), memory_bytes=4 * SIZE)
    done = world.want(DesiredState.of([spec], [model("m", "a")]))
    assert only(done, LoadReplica)


def test_it_is_tried_again_when_another_model_has_left() -> None:
    world = Surprising(room=2, names="mn")
    world.now += 60_000_000
    world.miss("m", m=9.0)
    world.now += 60_000_000
    world.miss("m", m=9.0)
    assert world.reason("m")
    world.takes = SIZE  # what the other one took beside it was counted
    world.want(DesiredState.of([SliceSpec("a", (0,), memory_bytes=2 * SIZE)], [model("m", "a")]))
    assert world.routed == {"a": ["m"]} or (world.miss("m", m=1.0) and world.routed == {"a": ["m"]})


def test_one_that_fails_as_it_is_loaded_ahead_is_asked_for_again_later() -> None:
    class Broken(Small):
        def answer(self, command: Command):  # type: ignore[no-untyped-def]
            if isinstance(command, LoadReplica) and command.model == "m" and self.now < 1:
                return self.control.replica_failed("a", command.replica, "it is broken", self.now)
            return super().answer(command)

    world = Broken(room=2, names="m")
    told = [each for each in world.done if getattr(each, "model", "") == "m"]
    assert isinstance(told[-1], Cold)  # the last word is not that it is being loaded
    assert told[-1].load_us > 1_000_000
    world.now += 60_000_000
    assert only(world.miss("m", m=1.0), LoadReplica)


def test_a_profile_that_counts_imports_apart_is_believed_another_only_as_far_as_it_fits() -> None:
    old = replace(profile("m"), memory_bytes=198 * MB, import_bytes=None)
    new = replace(old, import_bytes=190 * MB)
    assert memory_estimate(None, MB, 150 * MB) == MB + PROCESS_BYTES
    assert memory_estimate(old, MB, 150 * MB) == 150 * MB  # it is tried, with all of the slice
    assert memory_estimate(old, MB, 250 * MB) == 198 * MB
    assert memory_estimate(old, 160 * MB, 150 * MB) == 198 * MB  # its weights alone are too large
    assert memory_estimate(new, MB, 150 * MB) == 198 * MB
