"""GPUs while they are filled: what is on one is always legal, and room is never overlooked."""

from collections.abc import Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from loadtests.virtual.baselines.filling import Filling
from serving.policy.placement.terms.geometry import A100_80, Multiset, multisets
from serving.policy.placement.terms.plan import Slot
from serving.values.slice_specs import Share
from tests.seeds import drawn

LEGAL = {tuple(sorted(each)) for each in multisets(A100_80)}
NAMES = st.sampled_from([each.name for each in A100_80])
SLOTS = st.lists(NAMES.map(lambda name: Slot(Share.parse(f"mig:{name}"), ())), max_size=25)


def first(index: int, _: Multiset) -> tuple[float, ...]:
    return (index,)


def labels(slots: Sequence[Slot]) -> tuple[str, ...]:
    return tuple(sorted(slot.share.label for slot in slots))


@given(SLOTS, st.integers(0, 5), st.data())
@settings(max_examples=drawn(20))
def test_the_first_gpu_with_room_is_found_however_often_slices_come_and_go(
    slots: list[Slot], limit: int, data: st.DataObject
) -> None:
    """Against a look at every GPU."""
    gpus = Filling(A100_80, limit)
    naive: list[list[Slot]] = [[] for _ in range(limit)]
    for slot in slots:
        room = next((place for place, there in enumerate(naive) if labels([*there, slot]) in LEGAL), None)
        if room is not None:
            naive[room].append(slot)
        assert gpus.place(slot, first) == (room is not None)
        used = [place for place, there in enumerate(naive) if there]
        place = data.draw(st.sampled_from([-1, *used]))
        if place >= 0:
            gone = naive[place].pop()
            gpus.remove(place, gone)
        assert [labels(each) for each in gpus.devices if each] == [labels(each) for each in naive if each]
