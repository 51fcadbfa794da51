"""What `penstock place` is asked becomes a problem, or one sentence that says what is missing."""

from pathlib import Path

import pytest

from router.verbs.place.question.asked import PlacementTask, ask
from router.verbs.place.question.rates import RunningGateway
from router.verbs.simulate.traffic import SimulateRequestError
from serving.policy.placement.terms.check import faults
from serving.recording import RECORD, RecordedFlow, arrivals_block, flows_block, header
from serving.values.slice_specs import Share
from tests.router.verbs.place.deployments import GATEWAY, H200, HERE, HOST, deployment, four_cores, measured


@pytest.fixture(autouse=True)
def _machine(monkeypatch: pytest.MonkeyPatch) -> None:
    four_cores(monkeypatch)


def asked(path: Path, rates: str = "digits=100,minilm=5", reserve: float = 0.2) -> PlacementTask:
    return ask(path, [rates], reserve, RunningGateway(), None)


def test_rates_settings_profiles_and_devices_become_a_problem(tmp_path: Path) -> None:
    found = asked(deployment(tmp_path))
    assert [(each.model, each.rate) for each in found.problem.demands] == [("digits", 120.0), ("minilm", 6.0)]
    (pool,) = found.problem.pools
    assert (pool.name, pool.kind, pool.division.kind, pool.price) == ("host", HERE, "cores", 1.0)
    assert [rate.requests for rate in found.rates.values()] == [100.0, 5.0]  # without the reserve
    assert found.current
    assert not faults(found.problem, found.current)


def test_the_same_question_is_the_same_problem(tmp_path: Path) -> None:
    path = deployment(tmp_path)
    assert asked(path) == asked(path)


def test_without_devices_the_fleet_is_this_machine_and_that_is_said(tmp_path: Path) -> None:
    found = asked(deployment(tmp_path, GATEWAY))
    cpu = found.problem.pool_of["cpu"]
    assert (cpu.kind, cpu.division.kind) == (HERE, "cores")
    assert "the devices are those of this machine: penstock.yaml has no `devices:`" in found.notes


def test_that_prices_are_missing_is_said_of_several_kinds_of_devices(tmp_path: Path) -> None:
    two = HOST.replace("]", f", {{name: g, kind: {H200}}}]")
    path = deployment(tmp_path, two + GATEWAY)
    measured(tmp_path, "digits", "linear", Share("mps", 50.0), 100)
    note = "no device has a price, so each counts as 1"
    assert note in asked(path).notes
    assert note not in asked(deployment(tmp_path, two.replace("}]", ", price: 3}]") + GATEWAY)).notes
    assert note not in asked(deployment(tmp_path)).notes


def test_domains_are_asked_for_by_the_model(tmp_path: Path) -> None:
    path = deployment(tmp_path, HOST + GATEWAY.replace("slo_ms: 200", "slo_ms: 200, domains: 2"))
    assert [each.domains_min for each in asked(path).problem.demands] == [1, 2]


def test_rates_can_be_those_of_a_recording(tmp_path: Path) -> None:
    path, trace = deployment(tmp_path), tmp_path / "one.arrivals"
    records = b"".join(RECORD.pack(at * 100_000, 0, 0, 3, 0) for at in range(200))
    flows = flows_block([RecordedFlow("digits", "default", "", 25_000)])
    trace.write_bytes(header(0) + flows + arrivals_block(0, records))
    found = ask(path, [], 0.0, RunningGateway(), trace)
    (digits,) = found.problem.demands
    assert digits.model == "digits"
    assert digits.rate == pytest.approx(30.0)


@pytest.mark.parametrize("reserve", [-0.1, float("nan"), float("inf")])
def test_a_reserve_that_is_none_is_refused(tmp_path: Path, reserve: float) -> None:
    with pytest.raises(SimulateRequestError, match=r"--reserve: expected a share of the rates such as 0\.2"):
        asked(deployment(tmp_path), reserve=reserve)


def test_faulty_settings_are_named_with_their_place(tmp_path: Path) -> None:
    path = deployment(tmp_path, HOST.replace("memory_gb: 8", "memory_gb: much") + GATEWAY)
    with pytest.raises(
        SimulateRequestError, match=r"penstock\.yaml:1:\d+: devices\[0\]\.memory_gb: not a number"
    ):
        asked(path)


@pytest.mark.parametrize(
    ("rates", "url", "trace", "rows", "sentence"),
    [
        (["digits=1"], "http://x", None, "", "--rates says what is asked; leave out --url"),
        (["digits=1"], "http://x", Path("t"), "", "--rates says what is asked; leave out --trace and --url"),
        ([], "http://x", Path("t"), "", "--trace brings its own rates; leave out --url"),
        (
            [],
            None,
            None,
            "digits=4",
            "--rows says how many rows a request of --rates has; give --rates as well",
        ),
    ],
)  # fmt: skip
def test_only_one_says_what_is_asked(
    tmp_path: Path, rates: list[str], url: str | None, trace: Path | None, rows: str, sentence: str
) -> None:
    with pytest.raises(SimulateRequestError) as caught:
        ask(deployment(tmp_path), rates, 0.2, RunningGateway(url), trace, rows)
    assert str(caught.value) == sentence


def test_without_rates_and_a_gateway_it_is_said_what_to_give(tmp_path: Path) -> None:
    path = deployment(tmp_path, "server: {rest_port: 1}\n" + HOST + GATEWAY)
    with pytest.raises(
        SimulateRequestError, match=r"what is asked\? No gateway at http://127\.0\.0\.1:1 .* Or give --rates"
    ):
        ask(path, [], 0.2, RunningGateway(), None)
