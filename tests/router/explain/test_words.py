"""Sentences: why the variant that answers does, and what would change it, as an operator reads it."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from router.explain.body import Explanation
from router.explain.words import sentences
from serving.vocabulary import DEADLINE_QUEUED, OVERLOAD
from tests.router.explain.explanations import counters, explanation, ladder, promise, variants

ALL = ("ensemble", "cnn", "mlp")
LOAD_US = 0.8e6
"""Of one slice's time in a second, what is planned with."""
PROMISED = """\
digits: 99 % of requests within 50 ms, the most accurate answer that the load allows, at least 0.97 accurate

may answer
  ensemble (0.9912), cnn (0.9867), mlp (0.975)
do not answer
  linear (0.926) is below the floor of 0.97
"""


CARRIES = "what a slice carries"


def told(now: Explanation, before: Explanation | None = None) -> str:
    """All but what a slice carries, which has tests of its own."""
    lines = sentences(now, now["promises"][0], before)
    if CARRIES in lines:
        place = lines.index(CARRIES)
        del lines[place - 1 : place + 1 + len(carried(now))]
    return "\n".join(lines)


def carried(now: Explanation) -> list[str]:
    lines = sentences(now, now["promises"][0])
    after = lines[lines.index(CARRIES) + 1 :]
    return after[: after.index("")] if "" in after else after


def test_what_a_slice_carries_is_told_as_profiled_and_at_what_batches_take_today() -> None:
    ladders = [ladder(["cnn"], where="cpu0", factor=1.25), ladder(["cnn"], where="cpu1")]
    assert carried(explanation(promise(ladders), 0.0)) == [
        "  cnn on cpu0: profiled capacity 769 rows/s in batches of 8; at what batches take today 615 "
        "rows/s in batches of 8",
        "  cnn on cpu1: profiled capacity 769 rows/s in batches of 8; at what batches take today the same",
        "  profiled capacity: the batch that carries most, of those that take at most 25 ms, half the SLO, "
        "by typical latencies (medians), with the model alone on the slice",
    ]


def test_a_slice_that_fits_no_two_batches_into_the_slo_is_told_so() -> None:
    slow = ladder(["cnn"])
    slow["rungs"][0]["capacity_today"] = None
    (line, _) = carried(explanation(promise([slow]), 0.0))
    assert line.endswith("; at what batches take today none: one row alone takes longer")
    slow["rungs"][0]["profiled_capacity"] = None
    (line, _) = carried(explanation(promise([slow]), 0.0))
    assert line == "  cnn: profiled capacity none: one row alone takes longer"


def test_idle_the_most_accurate_answers_and_rates_say_until_when() -> None:
    assert (
        told(explanation(promise([ladder(ALL)]), 0.0))
        == f"""\
{PROMISED}
now
  ensemble answers, the most accurate that may: it takes 4.1 ms a row; no requests come
  since the start: no requests

what would change it
  above about 200 rows/s there is only time for cnn
  above about 620 rows/s there is only time for mlp
  above about 2,400 rows/s requests are turned away, as linear is below the floor of 0.97"""
    )


def test_loaded_the_rung_that_carries_the_load_is_named_beside_the_one_that_would_be_too_slow() -> None:
    own = promise([ladder(ALL, carrying=1)])
    before = explanation(own, 300.0, LOAD_US / 300, uptime_s=99.0, counters=counters({"ensemble": 5}))
    answered = counters({"cnn": 25, "ensemble": 11}, {"load": 25})
    assert (
        told(explanation(own, 310.0, LOAD_US / 310, counters=answered), before)
        == f"""\
{PROMISED}
now
  there is time for cnn: it takes 1.3 ms a row in batches of 8, ensemble would take 4.1 ms and answers only \
while little waits; 310 rows/s come, for each of which 1 slice can spend 2.58 ms
  of the last 1.0 s: 31 answered (cnn 80.6 %, ensemble 19.3 %), mean accuracy 0.9876
  answered by less good variants: 80.6 % as more comes than better ones can carry

what would change it
  below about 200 rows/s, or with 1 more slice, there is time for ensemble
  above about 620 rows/s there is only time for mlp
  above about 2,400 rows/s requests are turned away, as linear is below the floor of 0.97"""
    )


def test_at_the_floor_what_is_turned_away_and_what_it_takes_to_rise_is_told() -> None:
    answered = counters(
        {"mlp": 250, "cnn": 40}, {"load": 260, "backlog": 30}, [OVERLOAD] * 3 + [DEADLINE_QUEUED]
    )
    own = promise([ladder(ALL, carrying=2)])
    now = explanation(own, 3_900.0, 410.0, waiting_rows=1_040, counters=answered)
    assert (
        told(now)
        == f"""\
{PROMISED}
now
  mlp answers, the quickest that may, though there is no time for all: it takes \
0.41 ms a row in batches of 8, cnn would take 1.3 ms and answers only \
while little waits; 3,900 rows/s come, for each of which 1 slice can spend 0.205 ms
  1,040 rows wait
  since the start: 290 answered (mlp 86.2 %, cnn 13.7 %), mean accuracy 0.9766
  answered by less good variants: 89.6 % as more comes than better ones can carry, 10.3 % as some of what \
waited would have been late
  without an answer: 1.3 % of the requests (overload 1.0 %, deadline_queued 0.3 %)

what would change it
  below about 620 rows/s, or with 6 more slices, there is time for cnn
  below about 200 rows/s, or with 19 more slices, there is time for ensemble
  more come than about 2,400 rows/s, which is all that can be answered, as linear is below the floor \
of 0.97"""
    )


def test_where_nothing_may_be_chosen_one_answers_and_what_would_let_others_is_told() -> None:
    own = promise([ladder(["cnn"])], chooses=False, variants=["cnn"], accuracy_min=0.0)
    assert (
        told(explanation(own, 310.0))
        == """\
digits: 99 % of requests within 50 ms

may answer
  cnn (0.9867)
do not answer
  ensemble (0.9912) answers only where a request pins it
  mlp (0.975) answers only where a request pins it
  linear (0.926) answers only where a request pins it

now
  cnn answers, whatever the load, as nothing is stated by which to choose: it takes 1.3 ms a row in batches \
of 8; 310 rows/s come, for each of which 1 slice can spend 2.58 ms
  since the start: no requests

what would change it
  above about 770 rows/s requests are turned away; with accuracy_min, tolerance or optimize stated, others \
could answer"""
    )


@pytest.mark.parametrize(("served", "said"), [(1, False), (2, True)])
def test_others_could_answer_only_where_there_are_others(served: int, said: bool) -> None:
    own = promise([ladder(["cnn"])], chooses=False, variants=["cnn"], accuracy_min=0.0)
    replicas = variants({"cpu0": "ready"})
    replicas.sort(key=lambda each: each["name"] != "cnn")
    for place, each in enumerate(replicas):
        each["served"] = place < served
    now = explanation(own, 310.0, variants=replicas)
    assert ("others could answer" in told(now)) is said


def test_slices_whose_ladders_stand_alike_are_told_together_and_others_apart() -> None:
    ladders = [
        ladder(ALL, 1, where="cpu0"),
        ladder(ALL, 1, where="cpu1", factor=1.2),
        ladder(["cnn", "mlp"], 0, where="gpu0", factor=0.1),
    ]
    states = dict.fromkeys(("cpu0", "cpu1", "gpu0"), "ready")
    replicas = variants(states, ensemble={**states, "gpu0": "loading"})
    now = explanation(promise(ladders), 600.0, 3 * LOAD_US / 600, variants=replicas)
    assert (
        told(now)
        == """\
digits: 99 % of requests within 50 ms, the most accurate answer that the load allows, at least 0.97 accurate

may answer
  ensemble (0.9912), cnn (0.9867), mlp (0.975)
do not answer
  ensemble (0.9912) on gpu0 is not loaded (loading)
  linear (0.926) is below the floor of 0.97

now
  600 rows/s come, for each of which 3 slices can spend 4 ms
  on cpu0 and cpu1: there is time for cnn: it takes 1.56 ms a row in batches of 8, ensemble would take \
4.92 ms and answers only while little waits
  on gpu0: there is time for cnn, the best that is a choice there: it takes 0.13 ms a row in batches of 8
  since the start: no requests

what would change it
  on cpu0 and cpu1: below about 490 rows/s, or with 1 more slice, there is time for ensemble
  on cpu0 and cpu1: above about 1,500 rows/s there is only time for mlp
  on gpu0: above about 18,000 rows/s there is only time for mlp
  above about 29,000 rows/s requests are turned away, as linear is below the floor of 0.97"""
    )


def test_a_promise_that_one_variant_keeps_says_which_floor_shuts_the_others_out() -> None:
    own = promise([ladder(["cnn"])], variants=["cnn"], accuracy_min=0.988, percentile=99.9, tier="gold")
    shown = told(explanation(own, 0.0))
    assert shown.startswith("digits, tier gold: 99.9 % of requests within 50 ms, ")
    assert "cnn answers, the only one that may: it takes 1.3 ms" in shown
    assert "above about 770 rows/s requests are turned away, as ensemble, mlp and linear are below" in shown


def test_where_nothing_is_live_it_is_told_what_is_not_loaded_and_no_figures() -> None:
    now = explanation(promise([]), 0.0, variants=variants({"cpu0": "loading"}, mlp={}))
    assert (
        told(now)
        == f"""\
{PROMISED}
now
  nothing answers: none of ensemble, cnn and mlp can be given a batch on any slice
  ensemble on cpu0 is loading
  cnn on cpu0 is loading
  since the start: no requests"""
    )


def test_why_a_variant_is_not_there_is_said() -> None:
    found = variants({"cpu0": "failed"}, mlp={})
    found[0]["reasons"] = {"cpu0": "ensemble could not be loaded: OSError: no weights (model.py:9)"}
    now = explanation(promise([]), 0.0, variants=found)
    shown = told(now)
    assert (
        "  ensemble on cpu0 is failed: ensemble could not be loaded: OSError: no weights (model.py:9)"
        in shown
    )
    assert "  cnn on cpu0 is failed\n" in shown


def test_a_floor_that_no_variant_reaches_is_said_to_refuse_all() -> None:
    shown = told(explanation(promise([], variants=[], accuracy_min=0.999), 0.0))
    assert "  none: no variant that is served is accurate enough" in shown
    assert "  nothing answers: every request is refused" in shown
    assert "  ensemble (0.9912) is below the floor of 0.999" in shown


def test_the_cheapest_answers_within_its_ceiling_and_what_costs_more_is_named() -> None:
    cheap = ladder(["cnn", "mlp", "linear"], carrying=2, preferred=2)
    for rung in cheap["rungs"]:
        rung["cost"] = rung["row_us"] / 4_000
    own = promise([cheap], optimize="cheapest", accuracy_min=0.0, cost_max=0.5,
                  variants=["ensemble", "cnn", "mlp", "linear"])  # fmt: skip
    shown = told(explanation(own, 310.0)).splitlines()
    assert shown[0] == (
        "digits: 99 % of requests within 50 ms, the cheapest answer, for at most 0.5 a million rows"
    )
    assert "  ensemble (0.9912) costs more than 0.5 a million rows" in shown
    assert (
        "  there is time for linear, the quickest that may: it takes 0.06 ms a row in batches of 8, at 0.015 "
        "a million rows; 310 rows/s come, for each of which 1 slice can spend 2.58 ms"
    ) in shown
    assert "  with optimize: most_accurate, cnn would answer while the load allows" in shown


def test_a_ceiling_that_all_exceed_is_said_to_be_met_by_none() -> None:
    dear = ladder(["linear"])
    dear["rungs"][0]["cost"] = 0.9
    own = promise([dear], accuracy_min=0.0, cost_max=0.5, variants=["mlp", "linear"])
    shown = told(explanation(own, 0.0))
    assert "  all cost more than 0.5 a million rows: the cheapest answers" in shown
    assert "  mlp (0.975) costs more than 0.5 a million rows" in shown


def test_a_variant_that_takes_as_long_as_a_better_one_is_named_with_that() -> None:
    shown = told(explanation(promise([ladder(["ensemble", "mlp"])]), 0.0))
    assert "  cnn (0.9867) takes no less time than ensemble, which is no less accurate" in shown


def test_variants_that_are_not_served_or_that_nobody_measured_are_named() -> None:
    now = explanation(promise([ladder(ALL)]), 0.0)
    now["variants"] += [
        {"name": "huge", "accuracy": 0.999, "served": False, "states": {}},
        {"name": "new", "accuracy": None, "served": True, "states": {"cpu0": "ready"}},
    ]
    shown = told(now)
    assert "  huge (0.999) is not served: penstock.yaml leaves it out" in shown
    assert "  new, whose accuracy was not measured, may be below the floor of 0.97" in shown


def test_a_variant_that_is_late_even_alone_is_named() -> None:
    own = promise([ladder(ALL)], slo_us=5_000)
    assert (
        "  ensemble takes 8.2 ms for one row alone, more than 5 ms: only what has more time is given to it"
    ) in told(explanation(own, 0.0))


def test_of_members_that_answer_together_or_are_learnt_of_it_is_told_who_they_are() -> None:
    own = promise([ladder(ALL)], chooses=False, accuracy_min=0.0)
    answered = counters({"mlp": 12, "linear": 8})
    voting = explanation(own, 1.0, selection="ensemble", members=["mlp", "linear"], counters=answered)
    assert (
        told(voting)
        == """\
digits: 99 % of requests within 50 ms

may answer
  mlp (0.975) and linear (0.926): by a weighted majority; the fewest are asked whose joint accuracy is enough
do not answer
  ensemble (0.9912) answers only where a request pins it
  cnn (0.9867) answers only where a request pins it

now
  1 rows/s come to the members; GET /v2/models/digits/selection says who is asked, and what they weigh
  since the start: 20 answered (mlp 60.0 %, linear 40.0 %), mean accuracy 0.9554"""
    )
    for policy in ("exp3", "exp4"):
        learning = explanation(own, 0.0, selection=policy, members=["mlp", "linear"])
        assert "by what feedback says of each" in told(learning)


def test_after_a_restart_what_happened_is_that_since_the_start() -> None:
    own = promise([ladder(ALL)])
    before = explanation(own, 1.0, uptime_s=500.0, counters=counters({"cnn": 40}))
    now = explanation(own, 1.0, uptime_s=0.5, counters=counters({"cnn": 2}))
    assert "  since the start: 2 answered (cnn 100 %), mean accuracy 0.9867" in told(now, before)


def test_requests_of_which_none_was_answered_are_told() -> None:
    now = explanation(promise([ladder(ALL)]), 1.0, counters=counters({}, None, [OVERLOAD] * 2))
    assert "  since the start: none answered" in told(now)
    assert "  without an answer: 100 % of the requests (overload 100 %)" in told(now)


@settings(max_examples=50)
@given(
    st.lists(st.integers(0, 2), min_size=0, max_size=3),
    st.sampled_from([0.0, 0.2, 900.0, 1e6]),
    st.sampled_from([None, 0.0, 410.0, 1e9]),
    st.sampled_from(["most_accurate", "balanced", "cheapest"]),
    st.booleans(),
)
def test_anything_a_gateway_may_say_can_be_told(
    carrying: list[int], rate: float, afford_us: float | None, optimize: str, chooses: bool
) -> None:
    ladders = [ladder(ALL, each, min(each, 1), f"s{place}") for place, each in enumerate(carrying)]
    lines = sentences(
        now := explanation(promise(ladders, optimize=optimize, chooses=chooses), rate, afford_us),
        now["promises"][0],
    )
    assert all(line == line.rstrip() and "None" not in line and "inf" not in line for line in lines)


def test_what_answered_is_told_of_the_promise_beside_all_that_was_answered() -> None:
    own, gold = promise([ladder(ALL)]), promise([ladder(["ensemble"])], tier="gold")
    answered = counters({"cnn": 3})
    answered["answers"]["gold"] = {"ensemble": 1}
    answered["completed"] += 1
    answered["requests"] += 1
    now = explanation(own, 1.0, counters=answered, promises=[own, gold])
    start = "  since the start: "
    assert f"{start}3 answered (cnn 100 %), 4 with those of all tiers, mean accuracy 0.9867" in told(now)
    assert f"{start}1 answered (ensemble 100 %), 4 with those of all tiers" in "\n".join(sentences(now, gold))


@pytest.mark.parametrize(("slo_rows", "said"), [(8, " for each 8 rows"), (1, " for each row"), (None, "")])
def test_rows_that_an_slo_is_stated_for_are_told(slo_rows: int | None, said: str) -> None:
    own = promise([ladder(ALL)], slo_rows=slo_rows)
    assert f"99 % of requests within 50 ms{said}, the most accurate" in told(explanation(own, 0.0))
