"""What if: a question is understood or refused in words, and the simulator's answer is of the settings in
force."""

import asyncio
import json
import re
from collections import Counter
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from router.management.operations.current import Current
from router.settings import load_settings
from router.startup.what_if import WAITING_MAX, WhatIf, WhatIfError, read_question
from router.verbs.simulate.what_if import WhatIfBody, WhatIfTask, forecast
from serving.simulation.traffic.traffic import Mix
from tests.router.settings.samples import write_candidate, write_deployment
from tests.router.verbs.simulate.conftest import GATEWAY, measured

MODELS = ["digits", "minilm"]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    write_deployment(tmp_path, GATEWAY)
    measured(tmp_path, "digits", "linear", 1000)
    measured(tmp_path, "minilm", "fp32", 2500, (64, 128))
    return tmp_path


def asked(home: Path, rates: dict[str, float], **more: object) -> WhatIfTask:
    settings = load_settings(home / "penstock.yaml")
    found = {"slo_ms": {}, "rows": {}, "sizes": {}, "ratios": {}} | more
    return WhatIfTask(settings, rates, **found)  # type: ignore[arg-type]  # by name


def answer(task: WhatIfTask) -> WhatIfBody:
    (found,) = forecast(task)
    assert not isinstance(found, str), found
    return found


def share(task: WhatIfTask, model: str = "digits") -> float:
    (found,) = [each for each in answer(task)["models"] if each["model"] == model]
    assert found["in_time"] is not None
    return found["in_time"]


def test_a_light_load_is_answered_in_time_and_a_heavy_one_is_not(home: Path) -> None:
    assert share(asked(home, {"digits": 100})) > 0.99
    assert share(asked(home, {"digits": 3000})) < 0.6


def test_the_slo_is_the_one_that_is_asked(home: Path) -> None:
    assert share(asked(home, {"digits": 500}, slo_ms={"digits": 2.5})) < 0.9
    found = answer(asked(home, {"digits": 500}, slo_ms={"digits": 40}))
    assert found["models"][0]["slo_ms"] == 40


def test_latencies_are_those_that_batches_have(home: Path) -> None:
    slow = {("cpu-a", "digits", "linear"): 12.0}
    assert share(asked(home, {"digits": 100}, ratios=slow)) < share(asked(home, {"digits": 100})) - 0.3


def test_rows_and_sizes_are_those_that_came(home: Path) -> None:
    short = {"minilm": Mix((64,), (1.0,))}
    load = {"minilm": 250.0}
    assert share(asked(home, load, sizes=short), "minilm") > share(asked(home, load), "minilm") + 0.1
    many = {"digits": Mix((8,), (1.0,))}
    assert share(asked(home, {"digits": 300}, rows=many)) < 0.7


def test_no_rate_and_no_profile_are_said(home: Path) -> None:
    assert list(forecast(asked(home, {"digits": 0}))) == ["no model has a rate above 0"]
    for each in (home / "profiles").rglob("*.json"):
        each.unlink()
    (found,) = forecast(asked(home, {"digits": 10}))
    assert "never measured: digits linear" in str(found)


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"{", "no JSON"),
        (b"[]", "expected"),
        (b'{"rate": {}}', "expected"),
        (b"{}", "rates: expected an object"),
        (b'{"rates": {"digit": 1}}', "did you mean"),
        (b'{"rates": {"digits": -1}}', "rates: digits: expected 0 to 1e+06, got '-1'"),
        (b'{"rates": {"digits": true}}', "got 'True'"),
        (b'{"rates": {"digits": "5"}}', "got '5'"),
        (b'{"rates": {"digits": 5}, "slo_ms": {"digits": 0}}', "slo_ms: digits: expected 0.1"),
    ],
)
def test_a_bad_question_is_refused_in_words(body: bytes, words: str) -> None:
    with pytest.raises(WhatIfError, match=re.escape(words)) as refused:
        read_question(body, MODELS)
    assert refused.value.status == 400


def test_a_good_question_is_read() -> None:
    assert read_question(b'{"rates": {"digits": 5}, "slo_ms": {"minilm": 9.5}}', MODELS) == (
        {"digits": 5.0},
        {"minilm": 9.5},
    )


@pytest.mark.slow
async def test_a_child_process_answers_one_question_at_a_time_and_too_many_are_refused(home: Path) -> None:
    current = cast(Current, SimpleNamespace(settings=load_settings(home / "penstock.yaml")))
    shapes = {"digits": (Counter({1: 3}), Counter({0: 3}))}
    what_if = WhatIf(current, lambda: shapes, dict)
    body = json.dumps({"rates": {"digits": 50}}).encode()
    questions = [asyncio.create_task(what_if.answer(body)) for _ in range(WAITING_MAX + 1)]
    found = await asyncio.gather(*questions, return_exceptions=True)
    refused = [each for each in found if isinstance(each, WhatIfError)]
    assert [each.status for each in refused] == [503]
    answered = [each for each in found if isinstance(each, dict)]
    assert len(answered) == WAITING_MAX
    assert (answered[0]["models"][0]["in_time"] or 0) > 0.99


ROLLOUT = """\
slices: [{name: cpu-a, cores: 1}, {name: cpu-b, cores: 1}]
models:
  - {path: models/digits, slices: [cpu-a], variants: [linear], default_variant: linear}
  - path: models/digits-2
    slices: [cpu-b]
    variants: [linear]
    default_variant: linear
    rollout: {of: digits, steps: [50]}
"""


@pytest.fixture
def rolling(home: Path) -> WhatIf:
    """A gateway with a candidate that has answered 3 of 8 requests."""
    write_candidate(home)
    measured(home, "digits-2", "linear", 1000)
    (home / "penstock.yaml").write_text(ROLLOUT)
    current = cast(Current, SimpleNamespace(settings=load_settings(home / "penstock.yaml")))
    shapes = {"digits": (Counter({1: 5}), Counter({0: 5})), "digits-2": (Counter({5: 3}), Counter({0: 3}))}
    return WhatIf(current, lambda: shapes, dict)


@pytest.mark.slow
async def test_a_rollout_is_predicted_for_the_load_of_both_or_for_stated_rates(rolling: WhatIf) -> None:
    present = {"digits": 20.0, "digits-2": 10.0}
    found = await rolling.predict("digits", "", present)
    assert found["rate"] == 30
    assert found["said"][0].startswith("30 requests a second for digits, 2.5 rows each: ")  # of both models
    found = await rolling.predict("digits", "digits=40", present)
    assert found["rate"] == 40


async def test_what_cannot_be_predicted_is_said(rolling: WhatIf) -> None:
    for model, text, status, words in [
        ("digits-2", "", 404, "digits-2 has no candidate, .*; expected digits"),
        ("digits", "digits", 400, "expected MODEL=REQUESTS_A_SECOND"),
        ("digits", "digits=-1", 400, "expected requests a second"),
        ("digits", "", 409, "digits is asked for nothing now"),
    ]:
        with pytest.raises(WhatIfError, match=words) as refused:
            await rolling.predict(model, text, {})
        assert refused.value.status == status
