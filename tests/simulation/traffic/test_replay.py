"""What was recorded is what the simulator gets: order, models, deadlines, buckets, tenants."""

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtests.virtual.virtual_world import Run, World
from serving.recording import RECORD, RecordedFlow, arrivals_block, flows_block, header
from serving.simulation.traffic.arrivals import Arrival
from serving.simulation.traffic.replay import recorded_files, replay
from serving.values.objectives import Needs
from serving.values.specs import BatchingSpec
from tests.builders import model_spec, served

UNIX_US = 1_700_000_000_000_000
DIGITS, MINILM = served(model_spec("digits", slo_ms=25)), served(model_spec("minilm", buckets=(64, 128)))
FLOWS = (
    RecordedFlow("minilm", "shop", "", 250_000),
    RecordedFlow("digits", "default", "cnn", 40_000),
    RecordedFlow("gone", "default", "", 1),
)
SHOP, CNN, GONE = range(3)


def write(path: Path, start_us: int, *rows: tuple[int, int, int, int, int]) -> Path:
    """A file that starts so many us after UNIX_US."""
    records = b"".join(RECORD.pack(*row) for row in rows)
    path.write_bytes(header(UNIX_US + start_us) + flows_block(FLOWS) + arrivals_block(0, records))
    return path


def test_requests_come_in_their_order_with_the_first_at_0(tmp_path: Path) -> None:
    second = write(tmp_path / "b", 2_000_000, (0, 0, CNN, 2, 0), (-900, 0, SHOP, 1, 0))  # decoding took long
    first = write(tmp_path / "a", 1_000_000, (500, 0, CNN, 1, 0), (999_600, 0, CNN, 3, 0))
    played = replay([second, first], [DIGITS, MINILM])
    assert [(each.at_us, each.model, each.rows) for each in played] == [
        (0, 0, 1), (998_600, 1, 1), (999_100, 0, 3), (999_500, 0, 2)
    ]  # fmt: skip
    assert (len(played), played.span_us, played.notes) == (4, 999_500, ())
    assert list(played) == list(played)


def test_a_request_is_due_after_what_its_client_gave_or_the_slo_of_now(tmp_path: Path) -> None:
    file = write(tmp_path / "a", 0, (0, 0, CNN, 1, 0), (1, 9_000, CNN, 1, 0), (2, 30_000, CNN, 1, 0))
    assert [each.slack_us for each in replay([file], [DIGITS])] == [None, 9_000, 25_000]


def test_a_request_of_many_rows_is_due_as_its_slo_is_stated_for_rows_now(tmp_path: Path) -> None:
    rows = [(place, 60_000 * (place > 3), CNN, count, 0) for place, count in enumerate((1, 4, 5, 9, 5, 9))]
    file = write(tmp_path / "a", 0, *rows)
    stated = replace(DIGITS, needs=Needs(slo_rows=4))
    played = [*replay([file], [stated])]
    assert [each.slack_us for each in played] == [None, None, None, None, 50_000, 60_000]
    assert [each.expires for each in played] == [False] * 5 + [True]
    assert [each.slack_us for each in replay([file], [DIGITS])][4:] == [25_000, 25_000]


def test_a_request_of_a_tier_is_due_as_the_tier_says_now_and_asks_for_it(tmp_path: Path) -> None:
    flows = [RecordedFlow("digits", "default", "", 40_000, tier) for tier in ("", "gold", "gone")]
    flows.append(RecordedFlow("other", "default", "", 40_000, "gone"))
    records = b"".join(RECORD.pack(at, timeout_us, flow, 1, 0) for at, timeout_us, flow in (
        (0, 0, 0), (1, 0, 1), (2, 9_000, 1), (3, 30_000, 1), (4, 30_000, 2),
    ))  # fmt: skip
    file = tmp_path / "a"
    file.write_bytes(header(UNIX_US) + flows_block(flows) + arrivals_block(0, records))
    gold = replace(DIGITS, tiers=(Needs("gold", slo_us=12_000),))
    played = replay([file], [gold], skip_unknown=True)
    assert [(each.tier, each.slack_us) for each in played] == [
        ("", None), ("gold", None), ("gold", 9_000), ("gold", 12_000), ("", 25_000)
    ]  # fmt: skip
    assert played.notes == ("digits has no tier gone here: requests for it are simulated as for none",)


def test_a_size_comes_as_decisions_see_it_with_its_bucket_and_a_tenant_is_kept(tmp_path: Path) -> None:
    rows = [(place, 0, SHOP, 1, size) for place, size in enumerate((0, 64, 65, 9999))]
    file = write(tmp_path / "a", 0, *rows, (4, 0, CNN, 1, 70))
    played = list(replay([file], [DIGITS, MINILM]))
    assert [(each.size, each.bucket) for each in played] == [
        (0, 64), (64, 64), (68, 128), (128, 128), (0, 0)
    ]  # fmt: skip
    assert played[1] == Arrival(1, 1, 1, None, "shop", 64, bucket=64)


def test_models_that_are_not_here_are_an_error_or_skipped(tmp_path: Path) -> None:
    file = write(tmp_path / "a", 0, (0, 0, GONE, 1, 0), (10, 0, SHOP, 1, 0), (30, 0, CNN, 1, 0))
    with pytest.raises(ValueError, match=r"has requests for gone, minilm; the models here are digits$"):
        replay([file], [DIGITS])
    played = replay([file], [DIGITS], skip_unknown=True)
    assert [(each.at_us, each.model) for each in played] == [(0, 0)]
    assert played.notes == (
        "requests for gone are skipped: it is not served here",
        "requests for minilm are skipped: it is not served here",
    )


def test_a_model_that_nobody_asked_for_is_no_stranger(tmp_path: Path) -> None:
    assert len(replay([write(tmp_path / "a", 0, (0, 0, CNN, 1, 0))], [DIGITS])) == 1


def test_a_recording_without_a_request_is_an_error(tmp_path: Path) -> None:
    file = write(tmp_path / "a", 0, (0, 0, GONE, 1, 0))
    for files in ([write(tmp_path / "b", 0)], [file], []):
        with pytest.raises(ValueError, match="the recording has no request for digits"):
            replay(files, [DIGITS], skip_unknown=True)


def test_a_file_that_was_cut_off_is_played_up_to_there_with_a_note(tmp_path: Path) -> None:
    file = write(tmp_path / "a", 0, (0, 0, CNN, 1, 0), (10, 0, CNN, 1, 0))
    file.write_bytes(file.read_bytes()[:-1])
    played = replay([file], [DIGITS])
    assert len(played) == 1
    assert played.notes[0].startswith(f"{file} ends at byte ")


def test_a_folder_stands_for_its_recordings(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"holds no recording; expected files that end with \.arrivals"):
        recorded_files(tmp_path)
    files = [write(tmp_path / f"{name}.arrivals", 0) for name in "ba"]
    (tmp_path / "notes.txt").touch()
    assert recorded_files(tmp_path) == files[::-1]
    assert recorded_files(files[0]) == [files[0]]


@given(st.lists(st.integers(0, 10**9), min_size=1, max_size=20), st.floats(0.1, 100))
def test_speed_divides_the_instants_and_nothing_else(
    tmp_path_factory: pytest.TempPathFactory, at_us: list[int], speed: float
) -> None:
    file = tmp_path_factory.mktemp("speed") / "a"
    write(file, 0, *((each, 7, CNN, 1, 0) for each in at_us))
    usual, fast = list(replay([file], [DIGITS])), list(replay([file], [DIGITS], speed=speed))
    assert [each.at_us for each in fast] == [int(each.at_us / speed) for each in usual]
    assert [each[1:] for each in fast] == [each[1:] for each in usual]


@pytest.mark.parametrize("speed", [0, -1, float("inf"), float("nan")])
def test_a_speed_that_is_none_is_an_error(speed: float) -> None:
    with pytest.raises(ValueError, match="a replay needs a speed above 0"):
        replay([], [DIGITS], speed=speed)


def test_a_recording_can_be_simulated(tmp_path: Path) -> None:
    world = World(BatchingSpec())
    flow = RecordedFlow("m0", "default", "", 25_000)
    records = b"".join(RECORD.pack(10_000 * count, 0, 0, 1, 0) for count in range(100))
    file = tmp_path / "a.arrivals"
    file.write_bytes(header(UNIX_US) + flows_block([flow]) + arrivals_block(0, records))
    tally = Run(world).play(replay([file], world.site().served))
    assert (tally.offered, tally.good) == (100, 100)
