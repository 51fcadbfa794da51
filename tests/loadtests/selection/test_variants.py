"""Stairs of load, answers judged by labels, what is broken; and one gateway that is asked, live."""

import json
from collections.abc import Mapping
from math import isnan, nan
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtests.harness.record import CLOSED, Record
from loadtests.harness.report import IN_TIME, LATE
from loadtests.selection import variants
from loadtests.selection.variants import held
from loadtests.selection.variants_chart import draw
from loadtests.selection.variants_play import CONFIGURATIONS, LADDER, TOP, Turn, entry, read_told
from loadtests.selection.variants_scores import (
    Figures,
    Known,
    Stair,
    Told,
    below,
    by_stair,
    pattern,
    staircase,
    unscaled,
    untrue,
    whole,
)
from loadtests.selection.variants_subjects import Digits, Summaries, accuracies, capacity, keeping
from serving.profile.curve import Point, Profile
from serving.profile.derived.latency import Latency
from serving.simulation.traffic.patterns import read_steps
from tests.loadtests.patience import patient

KNOWN = Known(
    {"big": 0.9, "mid": 0.8, "small": 0.6}, {"big": 100, "mid": 200, "small": 400}, ("big", "mid", "small")
)
STAIRS = staircase((0.5, 1.0, 3.0), 1.0)


def answer(variant: str, due_s: float = 0.5, right: int = 1, ending: str = IN_TIME) -> Told:
    return Told(due_s, 5.0, ending, variant, KNOWN.accuracy.get(variant, nan), "", right)


def away(due_s: float = 0.5) -> Told:
    return Told(due_s, 1.0, "503 overload")


def step(attainment: float, expected: float = 0.9, offered: int = 100) -> Figures:
    return Figures(1, 0, 1, offered, offered, attainment, 5.0, expected, expected, 0.9, {"big": 1}, {}, {})


def test_stairs_go_up_and_down_again_and_stay_down_for_a_while() -> None:
    assert [stair.load for stair in STAIRS] == [0.5, 1.0, 3.0, 1.0, 0.5, 0.5]
    assert [stair.seconds for stair in STAIRS] == [1.0] * 5 + [2.0]


@given(st.lists(st.floats(0.01, 9), min_size=1, max_size=5), st.floats(0.1, 5), st.floats(1, 5000))
def test_the_pattern_of_stairs_is_read_as_rates_of_requests(
    loads: list[float], seconds: float, full: float
) -> None:
    stairs = staircase(loads, seconds)
    steps = read_steps(pattern(stairs, full), 1.0)
    assert [each.rate for each in steps] == pytest.approx([stair.load * full for stair in stairs], rel=1e-4)
    assert [each.seconds for each in steps] == pytest.approx([stair.seconds for stair in stairs], rel=1e-4)


def test_a_request_belongs_to_the_stair_in_which_it_was_due() -> None:
    told = [answer("big", due_s) for due_s in (0.0, 0.999, 1.0, 4.5, 6.5)]
    assert [one.offered for one in by_stair(told, STAIRS, 1, KNOWN)] == [2, 1, 0, 0, 1, 1]


def test_accuracy_is_of_the_rows_of_answers_and_attainment_of_all_requests() -> None:
    told = [answer("big", right=8), answer("small", right=4, ending=LATE), away(), away()]
    found = by_stair(told, [Stair(1, 1.0)], 8, KNOWN)[0]
    assert (found.attainment, found.accuracy) == (0.25, 0.75)
    assert found.expected == pytest.approx(0.75)
    assert found.variants == {"big": 1, "small": 1}
    assert found.turned_away == {"503 overload": 2}
    assert found.rate == 32


def test_shares_of_nothing_are_no_numbers() -> None:
    found = by_stair([], [Stair(1, 1.0)], 1, KNOWN)[0]
    assert all(isnan(share) for share in (found.attainment, found.accuracy, found.expected, found.p99_ms))


def test_of_all_stairs_together_what_is_at_best_is_weighed_by_requests() -> None:
    told = [answer("big", 0.1), answer("small", 2.5), answer("small", 2.6)]
    steps = by_stair(told, STAIRS, 1, KNOWN)
    assert whole(told, steps, 1, KNOWN).best == pytest.approx((0.9 + 2 * KNOWN.best(300)) / 3)


@given(st.floats(1, 600))
def test_what_is_at_best_is_what_no_mix_of_variants_beats(rate: float) -> None:
    best = KNOWN.best(rate)
    names = list(KNOWN.allowed)
    shares = [share for share in np.ndindex(21, 21) if sum(share) <= 20]
    for first, second in shares:  # by trying mixes of all three
        mix = dict(zip(names, (first / 20, second / 20, 1 - (first + second) / 20), strict=True))
        if sum(mix[name] * rate / KNOWN.capacity[name] for name in names) <= 1:
            assert sum(mix[name] * KNOWN.accuracy[name] for name in names) <= best + 1e-9
    assert KNOWN.accuracy["small"] <= best <= KNOWN.accuracy["big"]


@pytest.mark.parametrize(("rate", "best"), [(100, 0.9), (200, 0.8), (400, 0.6), (500, 0.6)])
def test_at_best_a_variant_answers_alone_what_it_can_just_carry(rate: float, best: float) -> None:
    assert KNOWN.best(rate) == pytest.approx(best)


def test_answers_below_the_floor_are_told_by_their_variant_and_by_what_they_name() -> None:
    told = [answer("big"), answer("mid"), answer("small"), away()]
    assert below(told, 0.8, ("big", "mid")) == [
        "1 answers name an accuracy below the floor of 0.8",
        "1 answers are by small, below the floor of 0.8",
    ]
    assert not below(told[:2], 0.8, ("big", "mid"))
    nameless = Told(0.5, 5.0, LATE, "small")
    assert below([nameless], 0.8, ("big",)) == ["1 answers are by small, below the floor of 0.8"]


def test_an_answer_names_the_accuracy_of_its_variant() -> None:
    told = [Told(0.5, 5.0, IN_TIME, "big", 0.95, "", 1), Told(0.5, 5.0, IN_TIME, "big", nan, "", 1)]
    assert untrue(told, 1, KNOWN) == [
        "1 answers of big name no accuracy",
        "1 answers of big name another accuracy than its 0.9000",
    ]
    assert untrue([answer("none")], 1, KNOWN) == ["1 answers name the variant 'none', which there is not"]


def test_labels_contradict_a_variant_only_where_chance_would_not() -> None:
    def told(right: int) -> list[Told]:
        return [answer("big", right=int(number < right)) for number in range(1000)]

    assert not untrue(told(900), 1, KNOWN)
    assert not untrue(told(865), 1, KNOWN)  # 3.7 standard errors
    assert untrue(told(860), 1, KNOWN) == ["by 1000 labels big is 0.8600 accurate, its build says 0.9000"]
    assert not untrue([answer("big", right=0)], 1, KNOWN)  # of one row nothing can be said


def test_the_ladder_is_in_time_wherever_a_fixed_variant_is() -> None:
    carried = [step(1.0), step(0.995), step(0.4)]
    assert not unscaled([step(0.99), step(0.99), step(0.1)], [carried, [step(0.2)] * 3])
    assert unscaled([step(1.0), step(0.9), step(0.1)], [carried, [step(0.2)] * 3]) == [
        "95.00% in time at loads that a fixed variant carries (1, 1)"
    ]


def test_accuracy_is_at_the_end_what_it_was_at_the_start() -> None:
    assert not unscaled([step(1, 0.9), step(1, 0.6), step(1, 0.895)], [[step(1)] * 3])
    assert unscaled([step(1, 0.9), step(1, 0.6), step(1, 0.85)], [[step(1)] * 3]) == [
        "accuracy is 0.8500 at the end, at the start it was 0.9000"
    ]


def test_a_ladder_that_nothing_was_asked_of_at_the_end_has_not_recovered() -> None:
    assert unscaled([step(1, 0.9), step(1, nan)], [[step(1)] * 2])


def test_only_the_ladder_is_held_against_the_others() -> None:
    good, bad = [step(1.0)], [step(0.5)]
    ladder, top = (Turn(name, steps, steps[0], (), ()) for name, steps in ((LADDER, bad), (TOP, good)))
    assert held(ladder, [ladder, top]).broken
    assert not held(top, [ladder, top]).broken
    assert not held(ladder, [ladder]).broken


def test_every_variant_is_there_in_every_configuration() -> None:
    subject = Digits(0)
    entries = [entry(name, subject) for name in CONFIGURATIONS]
    assert all(each["variants"] == list(accuracies(subject)) for each in entries)
    ladder, top, bottom = entries
    assert ladder["accuracy_min"] == subject.terms.floor
    assert "default_variant" not in ladder
    assert (top["default_variant"], bottom["default_variant"]) == ("ensemble", "linear")
    assert not {"accuracy_min", "optimize"} & {*top, *bottom}


@pytest.mark.parametrize("subject", [Digits(0), Summaries(0)])
def test_the_stricter_class_leaves_some_variants_out_and_others_not(subject: Digits | Summaries) -> None:
    terms = subject.terms
    every, loose, strict = (keeping(subject, floor) for floor in (0, terms.floor, terms.strict))
    assert set(strict) < set(loose) <= set(every)
    assert len(strict) >= 2


def test_every_held_out_digit_is_asked_for_equally_often_and_known() -> None:
    subject = Digits(3)
    turns = range(len(subject.requests()))
    of_digit = [np.repeat(np.eye(10, dtype=np.float32)[digit][None], 8, 0) for digit in range(10)]
    threes = sum(subject.right(turn, "any", of_digit[3]) for turn in turns)
    other = Digits(9)
    assert threes == sum(other.right(turn, "any", of_digit[3]) for turn in turns)
    right = [sum(subject.right(turn, "any", scores) for scores in of_digit) for turn in turns]
    assert right == [subject.terms.rows] * len(turns)
    assert subject.right(len(turns) + 5, "any", of_digit[3]) == subject.right(5, "any", of_digit[3])


def test_a_summary_is_right_where_its_own_body_is_nearest() -> None:
    subject = Summaries(1)
    count = len(subject.requests())
    bodies = subject._known["one"] = np.eye(count, dtype=np.float32)
    assert all(subject.right(turn, "one", bodies[own]) for turn, own in enumerate(subject._order))
    assert sum(subject.right(turn, "one", bodies[0]) for turn in range(2 * count)) == 2
    assert subject.right(0, "unheard of", np.zeros(count, np.float32)) == 0


def test_capacity_is_that_of_the_best_batches_of_whole_requests_that_fit_twice() -> None:
    times_us = ((1, 1000.0), (8, 2000.0), (16, 8000.0), (64, 12_400.0))
    points = tuple(Point(0, rows, us, us, 100) for rows, us in times_us)
    profile = Profile("digits", "cnn", "cpu", points, 0, 0, "test")
    latency = Latency(profile)
    fits = [rows for rows in range(8, 65, 8) if latency.predict_us(rows) <= 12_500]
    best = max(rows / latency.predict_us(rows) * 1e6 for rows in fits)
    assert capacity(Digits(0), latency) == pytest.approx(best)


def test_answers_are_read_by_load_with_their_own_questions() -> None:
    subject = Digits(0)
    record = Record([0, 10**6, 2 * 10**6, 3 * 10**6], [0, 1, 0, 1])
    kept: dict[int, bytes] = {}
    for number, (status, ms) in enumerate(((200, 5), (200, 26), (503, 1), (0, 2))):
        record.settle(number, status, {503: "overload", 0: CLOSED}.get(status, ""))
        record.done_ns[number] = record.due_ns[number] + ms * 10**6
        kept[number] = wire({"x-penstock-variant": "cnn", "x-penstock-accuracy": "0.9916"}, np.zeros((8, 10)))
    first, second = read_told(record, kept, subject, 2)
    assert [one.ending for one in first] == [IN_TIME, "503 overload"]
    assert [one.ending for one in second] == [LATE, CLOSED]
    assert (second[0].variant, second[0].named, second[0].due_s) == ("cnn", 0.9916, 0.001)
    assert first[0].right == subject.right(0, "cnn", np.zeros((8, 10), np.float32))
    assert isnan(first[1].named)


def wire(fields: Mapping[str, str], outputs: np.ndarray) -> bytes:
    header = b'{"outputs":[]}'
    lines = {**fields, "Inference-Header-Content-Length": str(len(header))}
    head = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    return f"HTTP/1.1 200 OK\r\n{head}\r\n".encode() + header + outputs.astype("<f4").tobytes()


@pytest.mark.slow
def test_the_picture_has_a_column_for_each_model(tmp_path: Path) -> None:
    steps = by_stair([answer("big"), away(2.5)], STAIRS, 1, KNOWN)
    turns = [Turn(name, steps, steps[0], (), ("late",)) for name in CONFIGURATIONS]
    draw({"digits": (KNOWN, turns), "minilm": (KNOWN, turns[:1])}, tmp_path / "stairs.png")
    assert (tmp_path / "stairs.png").stat().st_size > 10_000


@pytest.mark.in_turn(2)
@pytest.mark.live
@pytest.mark.slow
def test_no_answer_over_the_wire_is_below_its_floor_and_each_is_as_accurate_as_it_says(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(Digits, "terms", patient(Digits.terms))
    out = tmp_path / "variants.json"
    asked = ["variants", "--model", "digits", "--only", LADDER, "--loads", "0.1", "--seconds", "1"]
    monkeypatch.setattr("sys.argv", [*asked, "--out", str(out)])
    assert variants.main() in (0, 1)  # void where others use the cores
    (found,) = json.loads(out.read_text())["models"]
    every = [*found["turns"], *found["classes"]]
    assert [turn["name"] for turn in every] == [LADDER, "floor 0.97", "floor 0.99"]
    assert not [turn["broken"] for turn in every if turn["broken"]]
    assert set(every[2]["whole"]["variants"]) <= {"ensemble", "cnn"}
    assert every[0]["whole"]["accuracy"] == pytest.approx(every[0]["whole"]["expected"], abs=0.03)


@pytest.mark.slow
def test_what_cannot_be_started_is_said_and_ends_with_2(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("sys.argv", ["variants", "--model", "digits", "--only", TOP, "--worker-core", "4711"])
    assert variants.main() == 2
    assert "cores" in capsys.readouterr().err
