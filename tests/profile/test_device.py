"""What the device kind promises: a file name, the same on every slice of the kind."""

import re

from hypothesis import given
from hypothesis import strategies as st

from serving.profile.device import device_kind
from serving.specs import SliceSpec

cores = st.lists(st.integers(0, 64), max_size=4).map(tuple)


@given(cores, cores, st.integers(1, 64))
def test_all_slices_of_a_processor_are_of_one_kind_and_its_name_is_a_safe_folder(
    here: tuple[int, ...], there: tuple[int, ...], threads: int
) -> None:
    kind = device_kind(SliceSpec("s0", here, threads))
    assert kind == device_kind(SliceSpec("s1", there, threads + 1))
    assert re.fullmatch(r"cpu-[a-z0-9]+(-[a-z0-9]+)*", kind)
