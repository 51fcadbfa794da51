"""docs/metrics.md and docs/cache.md list every metric with its kind and labels, and no other."""

import re
from collections.abc import Mapping
from pathlib import Path

import promql_parser
import pytest
from prometheus_client.parser import text_string_to_metric_families

from router.observing.sequence_status import SequenceStatus
from router.observing.telemetry import (
    AuthPresent,
    CellsPresent,
    ConditionPresent,
    Present,
    RedisPresent,
    ScalePresent,
    Telemetry,
)
from router.observing.telemetry.families.condition import TlsPresent
from serving.policy.device_health import GpuReading
from serving.policy.estimates.freshness import BATCHES, Judgement, ProfileWatch
from serving.ports import Call, Reply
from serving.runtime.observer import RowAnswer
from serving.values.vocabulary import COMPLETED, OVERLOAD
from tests.builders import model_spec, served
from tests.router.happenings import end, reply, request, run, text

DOCS = Path(__file__).parents[3] / "docs"
SEQUENCES: SequenceStatus = {
    "strategy": "direct", "slots": 2, "live": 1, "waiting": 1, "started": 3, "ended": 1, "idle": 0, "lost": 0,
}  # fmt: skip
Metric = tuple[str, frozenset[str]]
"""Its kind and labels."""


def documented() -> dict[str, Metric]:
    """What the tables say. A row may name several metrics."""
    found: dict[str, Metric] = {}
    for page in ("metrics.md", "cache.md"):
        rows = re.findall(
            r"^\| (`penstock_[^|]+) \| (counter|gauge|histogram) \| ([\w, ]*?) *\| ",
            (DOCS / page).read_text("utf-8"),
            re.MULTILINE,
        )
        for names, kind, labels in rows:
            for name in re.findall(r"`(\w+)`", names):
                assert name not in found, f"{name} is listed twice"
                found[name] = kind, frozenset(filter(None, labels.split(", ")))
    return found


def voted() -> Reply:
    """An answer of several variants."""
    answer = reply()
    answer.accuracy, answer.downgrade, answer.votes, answer.confidence = 0.9, "load", "1/2", 0.5
    return answer


def judgement() -> Judgement:
    """A profile that batches bear out."""
    watch = ProfileWatch()
    for beside in (False, True) * BATCHES:
        watch.add(1, 0, 1.0, beside)
    return Judgement(("cpu0", "a", "x"), watch)


def everything() -> Telemetry:
    """A gateway that has a sample of each metric."""
    telemetry = Telemetry([served(model_spec("a"))], slices=["cpu0"])
    telemetry.parsed("a", 30)
    run(telemetry, "a", "x", 3)
    end(telemetry, request("a"), OVERLOAD)
    telemetry.request_done(request("a"), answer := voted(), 1_000, True)
    telemetry.selected(Call(served(model_spec("a")), (), 1), answer, 1_000)
    telemetry.cache_asked("a", "hit", 3)
    telemetry.cache_looked("a", "hit", 3)
    telemetry.endpoint_asked("embeddings", "a", COMPLETED, 7)
    telemetry.replica_loaded("a", 1_000)
    telemetry.worker_overran("a")
    telemetry.output_refused("a", "Y")
    telemetry.row_answered("a", RowAnswer(0, "success", 5, 1, 9))
    telemetry.slices_held({"cpu0": 1.0}, 0)
    telemetry.observe_lag(1_000)
    judged = judgement()
    telemetry.read_present = lambda: Present(
        now_us=1_000_000,
        queued={"a": (1, 1)},
        replicas={("a", "ready"): 1},
        worth={"a": (True, 1.0, 1)},
        redis=RedisPresent(),
        profiles=[judged],
        replans={"proposed": 1},
        scaling=ScalePresent({"a": (1.0, 1)}, {"a": (1, 1)}, {"cpu0": {"a"}}, {("cpu", False): 1}, 5.0),
        gpus=[GpuReading("GPU-1", 1, temperature_c=41)],
        condition=ConditionPresent(
            {"a": True},
            {("a", "x"): True},
            held={"uploads": 1},
            connections={("rest", "regular"): 1},
            turned_out={"rest": (1, 1)},
            edges={"grpc": (True, 1)},
            isolation={"a": (1, True)},
            sequences={"a": SEQUENCES},
            traces_dropped=1,
            rollouts={("a", "b"): 0.5},
            shifts={"a": {"rows": 0.5}},
            auth=AuthPresent(1, True, {"missing": 1}),
            rehearsed={"s": False},
            nodes={"n": True},
            needed={"n": True},
            cells=CellsPresent({"b": True}, {("b", "completed"): 1}, 1, True),
            tls=TlsPresent({"done": 1}, 0, 1e9, True),
            rates={"gold": {"rows": 1}},
        ),
    )
    return telemetry


def exported() -> Mapping[str, Metric]:
    found: dict[str, Metric] = {}
    for family in text_string_to_metric_families(text(everything())):
        if family.name.startswith("penstock_"):
            labels = {label for sample in family.samples for label in sample.labels} - {"le"}
            name = f"{family.name}_total" if family.type == "counter" else family.name
            assert family.samples, f"nothing happened that {name} counts"
            found[name] = family.type, frozenset(labels)
    return found


def test_every_metric_is_listed_with_its_kind_and_labels_and_nothing_else_is() -> None:
    assert documented() == exported()


def queries() -> list[str]:
    """The questions and the alerts of docs/metrics.md."""
    page = (DOCS / "metrics.md").read_text("utf-8")
    asked = re.findall(r"```promql\n(.*?)```", page, re.DOTALL)
    blocks = [block for each in asked for block in re.split(r"\n\n|^# .*$", each, flags=re.MULTILINE)]
    lines = [re.sub(r"^#.*$", "", block, flags=re.MULTILINE).strip() for block in blocks]
    return [line for line in lines if line] + re.findall(r"^  expr: (.+)$", page, re.MULTILINE)


@pytest.mark.parametrize("query", queries())
def test_questions_and_alerts_ask_for_metrics_and_labels_that_there_are(query: str) -> None:
    promql_parser.parse(query)
    known = exported()
    for name, matchers in re.findall(r"(penstock_\w+)(?:\{([^}]*)\})?", query):
        family = re.sub(r"_(bucket|sum|count)$", "", name)
        _, labels = known[family] if family in known else known[name]
        assert set(re.findall(r"(\w+) ?[=!]", matchers)) - {"le"} <= labels, name
