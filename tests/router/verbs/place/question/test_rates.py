"""How much is asked: the command line's rates, those of recordings, and those of a gateway that runs."""

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from router.commandline.key_env import KEY_ENV
from router.commandline.reading import UnreachableError
from router.settings import Settings, load_settings
from router.verbs.place.question import rates
from router.verbs.place.question.rates import WATCHED_S, WINDOW_S, RunningGateway, recorded, watched
from router.verbs.place.question.rates import given as rates_given
from router.verbs.simulate.traffic import SimulateRequestError
from serving.planning.task import AskedRate
from serving.recording import RECORD, RecordedFlow, arrivals_block, flows_block, header
from serving.simulation.traffic.traffic import Mix, constant
from tests.router.settings.samples import write_deployment
from tests.seeds import drawn

FLOWS = [RecordedFlow("digits", "default", "", 25_000), RecordedFlow("minilm", "default", "", 200_000)]


@pytest.fixture
def served(tmp_path: Path) -> Settings:
    return load_settings(write_deployment(tmp_path))


def test_rates_are_requests_of_one_row_where_nothing_is_said(served: Settings) -> None:
    found = rates_given(served, ["minilm=2.5", " digits = 40 "], "")
    assert list(found.by_model.items()) == [("digits", AskedRate(40.0)), ("minilm", AskedRate(2.5))]
    assert [rate.rows_per_s for rate in found.by_model.values()] == [40.0, 2.5]
    assert not found.notes


def test_requests_may_have_more_rows(served: Settings) -> None:
    found = rates_given(served, ["digits=40,minilm=3"], "digits=1:0.5+4:0.5")
    assert found.by_model["digits"] == AskedRate(40.0, Mix((1, 4), (0.5, 0.5)))
    assert found.by_model["digits"].rows_per_s == pytest.approx(100)


def test_models_without_a_rate_are_named_and_left_out(served: Settings) -> None:
    found = rates_given(served, ["digits=0"], "")
    assert dict(found.by_model) == {"digits": AskedRate(0.0)}  # nothing is asked, which is not to say nothing
    assert found.notes == ("not placed, as no rate was given: minilm",)


@pytest.mark.parametrize(
    ("text", "rows", "sentence"),
    [
        ("digits", "", "--rates: expected MODEL=REQUESTS_A_SECOND, such as digits=50; got 'digits'"),
        ("digits=", "", "--rates: expected MODEL=REQUESTS_A_SECOND, such as digits=50; got 'digits='"),
        ("", "", "--rates: expected MODEL=REQUESTS_A_SECOND, such as digits=50; got ''"),
        ("digits=5,", "", "--rates: expected MODEL=REQUESTS_A_SECOND, such as digits=50; got ''"),
        ("digit=5", "", "--rates: unknown model; got 'digit', "
         "expected digits or minilm (did you mean digits?)"),
        ("digits=5,digits=6", "", "--rates: digits is given more than once"),
        ("digits=-1", "", "--rates: expected requests a second, 0 to 1e+09; got 'digits=-1'"),
        ("digits=nan", "", "--rates: expected requests a second, 0 to 1e+09; got 'digits=nan'"),
        ("digits=inf", "", "--rates: expected requests a second, 0 to 1e+09; got 'digits=inf'"),
        ("digits=fast", "", "--rates: expected requests a second, 0 to 1e+09; got 'digits=fast'"),
        ("digits=5", "minilm=4", "--rows: a model without a rate; got 'minilm', expected digits"),
    ],
)  # fmt: skip
def test_what_is_no_rate_is_refused_in_a_sentence(
    served: Settings, text: str, rows: str, sentence: str
) -> None:
    with pytest.raises(SimulateRequestError) as caught:
        rates_given(served, [text], rows)
    assert str(caught.value) == sentence


Asked = Sequence[tuple[float, int, int]]
"""Second, flow, rows."""


def write_recording(home: Path, arrivals: Asked) -> Path:
    records = b"".join(RECORD.pack(round(at_s * 1e6), 0, flow, rows, 64) for at_s, flow, rows in arrivals)
    path = home / "one.arrivals"
    path.write_bytes(header(0) + flows_block(FLOWS) + arrivals_block(0, records))
    return path


@settings(max_examples=drawn(25), deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(
        st.tuples(st.integers(0, 400).map(lambda tenths: tenths / 10), st.integers(0, 1), st.integers(1, 9)),
        min_size=1,
        max_size=30,
    ).map(sorted)
)
def test_a_recorded_rate_is_that_of_the_ten_seconds_with_the_most_rows(
    tmp_path: Path, served: Settings, arrivals: Asked
) -> None:
    found = recorded(served, write_recording(tmp_path, arrivals))
    first, last = arrivals[0][0], arrivals[-1][0]
    window_s = min(WINDOW_S, max(last - first, 1.0))
    for flow, name in enumerate(("digits", "minilm")):
        ours = [(at_s, rows) for at_s, owner, rows in arrivals if owner == flow]
        if not ours:
            assert name not in found.by_model
            continue
        sums = [sum(rows for at_s, rows in ours if 0 <= at_s - start < window_s - 1e-9) for start, _ in ours]
        rate = found.by_model[name]
        assert rate.rows_per_s == pytest.approx(max(sums) / window_s)
        assert dict(zip(rate.rows.values, rate.rows.shares, strict=True)) == Counter(rows for _, rows in ours)


def test_of_a_recording_it_is_said_which_rates_count_and_who_is_not_in_it(
    tmp_path: Path, served: Settings
) -> None:
    path = write_recording(tmp_path, [(0.0, 0, 2), (30.0, 0, 2)])
    found = recorded(served, path)
    assert found.by_model["digits"].rows_per_s == pytest.approx(0.2)
    rule, missing = found.notes
    assert rule == f"rates are those recorded in {path}, of each model that of the 10 s with the most rows"
    assert missing == f"not placed, as {path} has no request for it: minilm"


def test_what_cannot_be_read_as_a_recording_is_named(tmp_path: Path, served: Settings) -> None:
    path = tmp_path / "one.arrivals"
    path.write_bytes(b"something else")
    with pytest.raises(SimulateRequestError, match=r"--trace: cannot read the recording .*one\.arrivals"):
        recorded(served, path)


def status(uptime_s: float, **models: dict[str, Any]) -> dict[str, Any]:
    """What a gateway says; of a model: rows in batches, completed requests and their rows, missed."""
    zero: dict[str, Any] = {"batch_rows": 0, "completed": 0, "rows": 0, "missed": {}}
    listed = [{"name": name, "counters": zero | counters} for name, counters in models.items()]
    return {"uptime_s": uptime_s, "models": listed}


@pytest.fixture
def gateway(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What a gateway answers, one status after the other; and what was asked of it, and waited."""
    answers: list[Any] = []

    def fetch(url: str, key_env: str) -> Any:
        assert key_env == KEY_ENV
        answers.append(url)
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(rates, "fetch", fetch)
    return answers


def test_a_running_gateway_is_asked_twice_and_the_higher_of_both_rates_counts(
    served: Settings, gateway: list[Any]
) -> None:
    busy, idle = {"completed": 1000, "rows": 2000}, {"completed": 10, "rows": 10}
    gateway += [
        status(100, digits={**busy, "batch_rows": 2000}, minilm={**idle, "batch_rows": 10}),
        status(105, digits={**busy, "batch_rows": 2000}, minilm={**idle, "batch_rows": 60}),
    ]
    waited: list[float] = []
    found = watched(served, RunningGateway(), waited.append)
    assert waited == [WATCHED_S]
    assert gateway == ["http://127.0.0.1:9000"] * 2
    digits, minilm = found.by_model["digits"], found.by_model["minilm"]
    assert digits.rows == constant(2)
    assert digits.rows_per_s == pytest.approx(2000 / 105)
    assert minilm.rows_per_s == minilm.requests == pytest.approx(10)
    assert "since its start, or now where that is more" in found.notes[0]


def test_what_was_refused_was_asked_and_what_was_kept_costs_nothing(
    served: Settings, gateway: list[Any]
) -> None:
    counters = {"completed": 300, "rows": 450, "batch_rows": 150, "missed": {"overload": 100, "late": 20}}
    gateway += [status(10, digits=counters), status(10, digits=counters)]
    found = watched(served, RunningGateway("http://elsewhere:8000"), lambda _seconds: None)
    assert found.by_model["digits"].rows_per_s == pytest.approx((150 + 100 * 1.5) / 10)
    assert found.by_model["digits"].rows.mean == pytest.approx(1.5)
    assert found.notes[1:] == ("not placed, as http://elsewhere:8000 was not asked for it: minilm",)


def test_a_gateway_of_other_settings_is_noticed(served: Settings, gateway: list[Any]) -> None:
    counters = {"completed": 5, "rows": 5, "batch_rows": 5}
    gateway += [status(1, digits=counters, other=counters), status(2, digits=counters, other=counters)]
    found = watched(served, RunningGateway(), lambda _seconds: None)
    assert list(found.by_model) == ["digits"]
    assert found.notes[1] == "left out, as penstock.yaml does not serve it: other"


def test_without_a_gateway_or_requests_it_is_said_what_to_give(served: Settings, gateway: list[Any]) -> None:
    what = "give --rates MODEL=REQUESTS_A_SECOND, such as --rates digits=50,minilm=20, or --trace FILE"
    gateway.append(UnreachableError("No gateway at there."))
    with pytest.raises(SimulateRequestError) as caught:
        watched(served, RunningGateway(), lambda _seconds: None)
    assert str(caught.value) == f"what is asked? No gateway at there. Or {what}"
    gateway[:] = [status(1, digits={}), status(2, digits={})]
    with pytest.raises(SimulateRequestError, match="was asked for nothing yet; give --rates"):
        watched(served, RunningGateway(), lambda _seconds: None)


@pytest.mark.parametrize(
    ("server", "address"),
    [
        ("host: 0.0.0.0, rest_port: 81", "http://127.0.0.1:81"),
        ("host: '::', rest_port: 81", "http://127.0.0.1:81"),
        ("host: '::1', rest_port: 81", "http://[::1]:81"),
        ("host: example.org", "http://example.org:8000"),
    ],
)
def test_the_settings_say_where_their_gateway_is(
    tmp_path: Path, gateway: list[Any], server: str, address: str
) -> None:
    text = f"server: {{{server}}}\nmodels: [{{path: models/digits}}]\n"
    gateway.append(UnreachableError("gone"))
    with pytest.raises(SimulateRequestError):
        watched(load_settings(write_deployment(tmp_path, text)), RunningGateway(), lambda _seconds: None)
    assert gateway == [address]


def test_a_gateway_on_any_free_port_has_to_be_named(tmp_path: Path) -> None:
    text = "server: {rest_port: 0}\nmodels: [{path: models/digits}]\n"
    with pytest.raises(SimulateRequestError, match="any free one: give --url"):
        watched(load_settings(write_deployment(tmp_path, text)), RunningGateway(), lambda _seconds: None)
