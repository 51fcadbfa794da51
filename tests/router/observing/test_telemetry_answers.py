"""Metrics of answers: by variant and tier, how accurate, why not better ones, how votes went."""

import re
from collections import Counter
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from router.observing.telemetry import Telemetry
from router.observing.telemetry.counting.counts import OTHER, TIERS_MAX, VARIANTS_MAX
from serving.ports import Call, Reply
from serving.values.vocabulary import COMPLETED, DEADLINE_QUEUED, Downgrade
from tests.builders import model_spec, served
from tests.router.happenings import key, request, samples, text

ACCURACY = {"ensemble": 0.99, "cnn": 0.97, "linear": 0.92, "unmeasured": None}

answers = st.tuples(
    st.sampled_from(["", "gold", 'a"b']),
    st.sampled_from(list(ACCURACY)),
    st.integers(1, 9),
    st.sampled_from(["", *(each.value for each in Downgrade)]),
)
Answer = tuple[str, str, int, str]


def new() -> Telemetry:
    return Telemetry([served(model_spec("a")), served(model_spec("b"))])


def answer(
    telemetry: Telemetry, variant: str, tier: str = "", rows: int = 1, why: str = "", cache: str = ""
) -> None:
    """A request for a is answered by the variant."""
    asked = request("a", rows)
    asked.tier = tier
    made = Reply(COMPLETED)
    made.variant, made.accuracy, made.downgrade, made.cache = variant, ACCURACY.get(variant), why, cache
    telemetry.request_done(asked, made, 1_000, True)


@pytest.mark.slow
@given(st.lists(answers, max_size=20))
def test_every_answer_is_counted_once_under_its_variant_and_tier(done: list[Answer]) -> None:
    telemetry = new()
    for tier, variant, rows, why in done:
        answer(telemetry, variant, tier, rows, why)
    exported = samples(telemetry)
    for tier, variant in {each[:2] for each in done}:
        own = [rows for *where, rows, _ in done if where == [tier, variant]]
        labels = {"model": "a", "variant": variant, "tier": tier}
        assert exported[key("penstock_answers_total", **labels)] == len(own)
        assert exported[key("penstock_answer_rows_total", **labels)] == sum(own)
    for tier in {each[0] for each in done}:
        known = [(ACCURACY[variant], rows) for its, variant, rows, _ in done if its == tier]
        measured = [(share, rows) for share, rows in known if share is not None]
        labels = {"model": "a", "tier": tier}
        rows_measured = exported[key("penstock_answer_measured_rows_total", **labels)]
        assert rows_measured == sum(rows for _, rows in measured)
        total = exported[key("penstock_answer_accuracy_total", **labels)]
        assert total == pytest.approx(sum(share * rows for share, rows in measured))
    for why, count in Counter(each[3] for each in done if each[3]).items():
        labels = {"model": "a", "reason": why}
        assert exported[key("penstock_downgraded_requests_total", **labels)] == count
        rows_down = sum(rows for _, _, rows, its in done if its == why)
        assert exported[key("penstock_downgraded_rows_total", **labels)] == rows_down
    assert not any(dict(labels).get("model") == "b" and "answer" in name for name, labels in exported)


def test_the_snapshot_says_the_same_as_plain_values() -> None:
    telemetry = new()
    answer(telemetry, "cnn", rows=8)
    answer(telemetry, "linear", "gold", rows=2, why="load")
    answer(telemetry, "unmeasured", "gold", rows=5)
    counters = dict(telemetry.snapshot(0))["a"]
    assert counters["answers"] == {"": {"cnn": 1}, "gold": {"linear": 1, "unmeasured": 1}}
    assert counters["measured_rows"] == 10
    assert counters["accuracy_rows"] == pytest.approx(8 * 0.97 + 2 * 0.92)
    assert counters["downgrades"] == {"load": 1}
    assert telemetry.counters("a", 0) == counters
    assert telemetry.counters("b", 0)["answers"] == {}


@pytest.mark.parametrize("cache", ["hit", "join"])
def test_what_the_cache_answered_counts_as_an_answer_of_the_variant_that_computed_it(cache: str) -> None:
    telemetry = new()
    answer(telemetry, "cnn", cache=cache)
    labels = {"model": "a", "variant": "cnn", "tier": ""}
    assert samples(telemetry)[key("penstock_answers_total", **labels)] == 1


def test_what_was_not_completed_is_nobodys_answer() -> None:
    telemetry = new()
    telemetry.request_done(request("a"), Reply(DEADLINE_QUEUED), 1_000, False)
    assert "penstock_answers_total{" not in text(telemetry)


def test_variants_and_tiers_beyond_the_bound_are_counted_as_others() -> None:
    telemetry = new()
    answer(telemetry, "cnn")
    for number in range(3 * VARIANTS_MAX):
        answer(telemetry, f"ensemble({number})")
    for number in range(3 * TIERS_MAX):
        answer(telemetry, "cnn", f"tier-{number}")
    answer(telemetry, "cnn")  # one that was told apart goes on being so
    found = dict(telemetry.snapshot(0))["a"]["answers"]
    assert found[""]["cnn"] == 2
    assert len(found[""]) == VARIANTS_MAX + 1
    assert found[""][OTHER] == 3 * VARIANTS_MAX - (VARIANTS_MAX - 1)
    assert len(found) == TIERS_MAX + 1
    assert found[OTHER] == {"cnn": 3 * TIERS_MAX - (TIERS_MAX - 1)}


def test_counts_go_on_when_the_model_is_served_otherwise_or_gone() -> None:
    telemetry = new()
    answer(telemetry, "cnn", rows=3, why="load")
    before = {where: value for where, value in samples(telemetry).items() if where[0].endswith("_total")}
    telemetry.serve(served(model_spec("a", ("mlp",), slo_ms=90)))
    answer(telemetry, "mlp")
    telemetry.retire("a")
    after = samples(telemetry)
    assert all(after[where] >= value for where, value in before.items() if where[0].startswith("penstock_"))


def select(
    telemetry: Telemetry, name: str, votes: str = "", sure: float | None = None, latency_us: int = 1_000
) -> None:
    """A call to the members of a, of 50 ms and 20 ms of its own, is answered."""
    call = Call(served(model_spec("a")), (), 1)
    call.timeout_us = 20_000
    made = Reply(COMPLETED)
    made.variant, made.votes, made.confidence = name, votes, sure
    telemetry.selected(call, made, latency_us)


def test_votes_and_what_came_of_them_are_counted_by_model() -> None:
    telemetry = new()
    assert "penstock_votes_total{" not in text(telemetry)
    select(telemetry, "ensemble(cnn+mlp+linear)", "3/3", 1.0)
    select(telemetry, "ensemble(cnn+mlp)", "2/3", 0.55, latency_us=20_000)
    select(telemetry, "ensemble(cnn)", "1/2", latency_us=20_001)
    call = Call(served(model_spec("a")), (), 1)
    telemetry.selected(call, Reply(DEADLINE_QUEUED), 50_000)
    exported = samples(telemetry)
    assert exported[key("penstock_votes_total", model="a")] == 8
    assert exported[key("penstock_votes_missing_total", model="a")] == 2
    assert exported[key("penstock_answer_confidence_ratio_count", model="a")] == 2
    assert exported[key("penstock_answer_confidence_ratio_sum", model="a")] == pytest.approx(1.55)
    assert exported[key("penstock_answer_confidence_ratio_bucket", model="a", le="0.6")] == 1
    assert exported[key("penstock_selected_answers_total", model="a", variant="ensemble(cnn)")] == 1
    assert exported[key("penstock_selected_goodput_requests_total", model="a")] == 2
    for ended, count in ((("completed", "ok"), 3), (("shed", "deadline_queued"), 1)):
        labels = dict(zip(("outcome", "reason"), ended, strict=True))
        assert exported[key("penstock_selected_requests_total", model="a", **labels)] == count
    assert "penstock_answers_total{" not in text(telemetry), "members' answers are told one by one"


def test_the_names_of_what_answered_together_are_bounded() -> None:
    telemetry = new()
    for number in range(2 * VARIANTS_MAX):
        select(telemetry, f"ensemble({number})")
    found = [labels for name, labels in samples(telemetry) if name == "penstock_selected_answers_total"]
    assert len(found) == VARIANTS_MAX + 1
    labels = {"model": "a", "variant": OTHER}
    assert samples(telemetry)[key("penstock_selected_answers_total", **labels)] == VARIANTS_MAX


def test_a_selection_of_a_model_that_was_never_served_here_is_counted_nowhere() -> None:
    telemetry = new()
    telemetry.selected(Call(served(model_spec("gone")), (), 1), Reply(COMPLETED), 1)
    assert "penstock_selected_requests_total{" not in text(telemetry)


def test_every_metric_of_answers_is_in_the_documentation() -> None:
    telemetry = new()
    answer(telemetry, "cnn", why="load")
    select(telemetry, "ensemble(cnn)", "1/1", 1.0)
    names = re.findall(
        r"^# TYPE (penstock_\w*(?:answer|downgraded|selected|votes)\w*) ", text(telemetry), re.MULTILINE
    )
    documented = (Path(__file__).parents[3] / "docs/metrics.md").read_text()
    assert len(names) == 12
    assert [name for name in names if f"`{name}`" not in documented] == []
