"""OpenMetrics: the same samples as the plain text, valid by its own parser, with exemplars of traces."""

from prometheus_client.openmetrics.parser import text_string_to_metric_families as opened
from prometheus_client.parser import text_string_to_metric_families as plain

from router.observing.telemetry import Telemetry
from tests.builders import model_spec, served
from tests.router.happenings import end, request, run
from tests.router.observing.test_telemetry_documented import everything

TRACE = "a" * 32


def text(telemetry: Telemetry, openmetrics: bool) -> str:
    return b"".join(telemetry.steps(openmetrics)).decode()


def values(families: object) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (_name(sample.name), tuple(sorted(sample.labels.items()))): sample.value
        for family in families  # type: ignore[attr-defined]  # the parsers have no types
        for sample in family.samples
        if not sample.name.startswith(("process_", "python_"))
    }


def _name(name: str) -> str:
    """Triton's counters do not end with `_total`: the plain parser adds it."""
    return name.removesuffix("_total") if name.startswith("nv_") else name


def test_all_samples_are_the_same_whatever_there_is_to_export() -> None:
    telemetry = everything()
    assert values(opened(text(telemetry, True))) == values(plain(text(telemetry, False)))  # type: ignore[no-untyped-call]


def test_a_traced_request_is_the_exemplar_of_its_bucket() -> None:
    telemetry = Telemetry([served(model_spec("digits"))])
    telemetry.epoch_us = 1_700_000_000_000_000
    telemetry.trace = lambda entry, parent, below: TRACE if parent else ""
    asked = request("digits", arrived_us=0)
    end(telemetry, asked, latency_us=1_200)
    traced = request("digits", arrived_us=1_000_000)
    traced.trace = f"00-{TRACE}-{'b' * 16}-01"
    end(telemetry, traced, latency_us=4_000)
    found = {
        sample.labels["le"]: sample.exemplar
        for family in opened(text(telemetry, True))  # type: ignore[no-untyped-call]
        for sample in family.samples
        if sample.name == "penstock_request_duration_seconds_bucket"
    }
    (le,) = [each for each, exemplar in found.items() if exemplar]
    assert le == "0.005"
    assert (found[le].labels, found[le].value) == ({"trace_id": TRACE}, 0.004)
    assert float(found[le].timestamp) == 1_700_000_001.004
    assert "trace_id" not in text(telemetry, False)


def test_a_model_without_traces_costs_nothing_and_says_nothing() -> None:
    telemetry = Telemetry([served(model_spec("digits"))])
    run(telemetry, "digits", "cnn", 1)
    end(telemetry, request("digits"))
    assert telemetry.exemplars == {}
