from hypothesis import given
from hypothesis import strategies as st

from router.tensors.parts.recent import Recent


@given(st.lists(st.integers(0, 12), max_size=60), st.integers(1, 4))
def test_the_last_used_are_there_and_never_more_than_twice_the_size(keys: list[int], size: int) -> None:
    memory: Recent[int, str] = Recent(size)
    for at, key in enumerate(keys):
        if memory.get(key) is None:
            memory.put(key, str(key))
        assert len(memory) <= 2 * size
        lately = list(dict.fromkeys(reversed(keys[: at + 1])))[:size]
        held = {**memory._young, **memory._old}
        assert all(held[recent] == str(recent) for recent in lately)


def test_a_flood_of_keys_used_once_does_not_displace_one_in_use() -> None:
    memory: Recent[int, str] = Recent(4)
    memory.put(-1, "hot")
    for key in range(1000):
        memory.put(key, "once")
        assert memory.get(-1) == "hot"
