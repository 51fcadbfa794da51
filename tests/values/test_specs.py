"""What a size hint promises: a size that is at least the row's, close to it, and of its bucket."""

from hypothesis import given
from hypothesis import strategies as st

from serving.values.specs import SizeHint, stepped

buckets = st.sets(st.integers(1, 5000), min_size=1, max_size=4).map(lambda chosen: tuple(sorted(chosen)))


@given(st.integers(0, 10**9))
def test_a_step_is_the_least_that_covers_a_size_and_at_most_a_sixteenth_larger(size: int) -> None:
    step = stepped(size)
    assert size <= step <= size + size / 16
    assert stepped(step) == step


def test_an_octave_has_sixteen_steps() -> None:
    for octave in (16, 256, 1 << 20):
        assert len({stepped(size) for size in range(octave + 1, 2 * octave + 1, max(octave // 256, 1))}) == 16


@given(buckets, st.integers(0, 10_000))
def test_a_size_is_seen_within_the_bucket_that_holds_it_or_as_the_last_one(
    buckets: tuple[int, ...], size: int
) -> None:
    seen, bucket = SizeHint("X", buckets).place(size)
    assert bucket == min((bound for bound in buckets if bound >= size), default=buckets[-1])
    assert seen == min(stepped(size), bucket)
