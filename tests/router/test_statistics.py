"""The statistics extension: what tritonclient and perf_analyzer read, over REST and over gRPC alike."""

from typing import Any  # tritonclient's answers carry no types

import httpx
import pytest
import tritonclient.grpc.aio as triton_grpc
from google.protobuf.json_format import MessageToDict  # type: ignore[import-untyped]
from hypothesis import given
from hypothesis import strategies as st
from tritonclient.utils import InferenceServerException

from router.http.app import create_app
from router.observing.telemetry import Telemetry
from router.payloads.bulk.pool import Bulk
from serving.scheduler.commands import RunBatch
from serving.scheduler.waiting.requests import Piece
from serving.values.specs import Limits
from serving.values.vocabulary import BAD_INPUT, COMPLETED, OVERLOAD
from tests.builders import model_spec, served
from tests.router.fakes import FakeServing
from tests.router.happenings import reply, request, run
from tests.router.rpc_edge import serve


def new() -> Telemetry:
    return Telemetry([served(model_spec("a")), served(model_spec("b"))])


def client_of(serving: FakeServing) -> httpx.AsyncClient:
    app = create_app(
        serving, serving.telemetry.statistics, name="penstock", version="0.1.0", bulk=Bulk(Limits())
    )
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://test")


def durations(stats: Any) -> dict[str, tuple[int, int]]:
    """(count, ns) of each kind that is not zero."""
    return {kind: (each["count"], each["ns"]) for kind, each in stats.items() if each["count"] or each["ns"]}


def test_requests_are_counted_with_their_time_in_nanoseconds() -> None:
    telemetry = new()
    for _ in range(2):
        telemetry.request_done(request("a", rows=3), reply(COMPLETED, 1_000, 300, 2_000), 3_500, True)
    telemetry.request_done(request("a"), reply(OVERLOAD), 70, False)
    telemetry.refused("a", "default", BAD_INPUT)
    a, b = map(telemetry.statistics, "ab")
    assert durations(a["inference_stats"]) == {
        "success": (2, 7_000_000),
        "fail": (2, 70_000),
        "queue": (2, 2_600_000),
        "compute_input": (2, 400_000),
        "compute_infer": (2, 4_000_000),
        "compute_output": (2, 0),
    }
    assert durations(b["inference_stats"]) == {}
    assert len(b["inference_stats"]) == 8  # perf_analyzer reads them all
    assert (b["response_stats"], b["memory_usage"]) == ({}, [])


@given(*[st.integers(0, 5_000)] * 6)
def test_the_phases_of_what_was_computed_add_up_to_its_success(
    read_us: int, parsed_us: int, waited_us: int, infer_us: int, back_us: int, made_us: int
) -> None:
    telemetry = new()
    answer = reply(COMPLETED, waited_us, 10, infer_us)
    answer.output_us, answer.ready_us = back_us, 7_000 + parsed_us + waited_us + 10 + 30 + infer_us + back_us
    latency_us = answer.ready_us - 7_000 + 5
    telemetry.request_done(request("a", arrived_us=7_000), answer, latency_us, True)
    telemetry.answered("a", answer, read_us, made_us)
    told = telemetry.statistics("a")["inference_stats"]
    total_ns = told["success"]["ns"]
    assert total_ns == 1000 * (read_us + latency_us + made_us)
    assert told["compute_input"]["ns"] == 1000 * (read_us + parsed_us + 30)
    assert told["compute_output"]["ns"] == 1000 * (back_us + 5 + made_us)
    parts = told["queue"], told["compute_input"], told["compute_infer"], told["compute_output"]
    assert sum(part["ns"] for part in parts) == total_ns


def test_an_edge_may_answer_what_was_asked_of_a_model_that_is_gone() -> None:
    telemetry = new()
    telemetry.answered("gone", reply(COMPLETED), 5, 5)
    assert durations(telemetry.statistics("a")["inference_stats"]) == {}


def test_what_the_cache_answered_is_a_success_that_was_not_computed() -> None:
    telemetry = new()
    telemetry.request_done(request("a"), reply(COMPLETED, 1_000, 300, 2_000), 3_500, True)
    for result, took_us in (("miss", 5), ("hit", 7), ("hit", 9), ("join", 11)):
        telemetry.cache_asked("a", result, took_us)
        if result != "miss":
            answer = reply(COMPLETED)
            answer.cache = result
            telemetry.request_done(request("a"), answer, 20, True)
    stats = durations(telemetry.statistics("a")["inference_stats"])
    assert stats["success"] == (4, 3_560_000)
    assert stats["cache_hit"] == (3, 60_000)
    assert stats["cache_miss"] == (1, 5_000)
    assert stats["queue"] == (4, 1_300_000)
    assert stats["compute_input"] == (1, 195_000)
    assert stats["compute_infer"] == (1, 2_000_000)


@given(
    st.lists(
        st.tuples(st.sampled_from(["", "hit", "join", "miss"]), *[st.integers(0, 5_000)] * 5), max_size=12
    )
)
def test_the_phases_add_up_to_success_whatever_the_cache_answered(
    answers: list[tuple[str, int, int, int, int, int]],
) -> None:
    telemetry = new()
    for result, looked_us, waited_us, infer_us, read_us, made_us in answers:
        answer, latency_us = reply(COMPLETED, waited_us, 0, infer_us), looked_us + waited_us + infer_us + 9
        if result:
            telemetry.cache_asked("a", result, looked_us)
        if result in ("hit", "join"):
            answer = reply(COMPLETED, waited_us if result == "join" else 0)
            answer.cache = result
        telemetry.request_done(request("a"), answer, latency_us, True)
        answer.cache = result
        telemetry.answered("a", answer, read_us, made_us)
    told = telemetry.statistics("a")["inference_stats"]
    parts = (
        told["queue"], told["compute_input"], told["compute_infer"], told["compute_output"],
        told["cache_hit"], told["cache_miss"],
    )  # fmt: skip
    assert sum(part["ns"] for part in parts) == told["success"]["ns"]
    assert told["queue"]["count"] == told["success"]["count"] == len(answers)
    assert told["cache_hit"]["count"] + told["compute_infer"]["count"] == len(answers)


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(0, 50)), max_size=8))
def test_batches_are_counted_by_their_rows(ran: list[tuple[int, int]]) -> None:
    telemetry = new()
    for rows, compute_us in ran:
        run(telemetry, "a", "x", rows, compute_us)
    stats = telemetry.statistics("a")
    assert (stats["execution_count"], stats["inference_count"]) == (len(ran), sum(rows for rows, _ in ran))
    assert [each["batch_size"] for each in stats["batch_stats"]] == sorted({rows for rows, _ in ran})
    for each in stats["batch_stats"]:
        own_us = [compute_us for rows, compute_us in ran if rows == each["batch_size"]]
        assert each["compute_infer"] == {"count": len(own_us), "ns": 1000 * sum(own_us)}
        assert each["compute_input"] == each["compute_output"] == {"count": len(own_us), "ns": 0}


def test_a_batch_took_what_lies_between_dispatch_and_return() -> None:
    telemetry = new()
    batch = RunBatch(1, "cpu0", [Piece(request("a"), 0, 1)], 1)
    batch.model, batch.variant = "a", "x"
    telemetry.batch_done(batch, 100, 180, output_us=50)
    (size,) = telemetry.statistics("a")["batch_stats"]
    assert durations({name: size[name] for name in size if name != "batch_size"}) == {  # type: ignore[literal-required]
        "compute_input": (1, 30_000),
        "compute_infer": (1, 100_000),
        "compute_output": (1, 50_000),
    }


def test_the_last_inference_is_told_in_unix_time() -> None:
    telemetry = new()
    telemetry.epoch_us = 1_700_000_000_000_000
    run(telemetry, "a", "x", 1, compute_us=5_000)  # from 0 on
    a, b = map(telemetry.statistics, "ab")
    assert (a["last_inference"], b["last_inference"]) == (1_700_000_000_005, 0)


@pytest.mark.parametrize("path", ["/v2/models/simple/stats", "/v2/models/simple/versions/1/stats"])
async def test_one_model_or_all_are_told_over_rest(path: str) -> None:
    serving = FakeServing()
    run(serving.telemetry, "simple", "exact", 4)
    async with client_of(serving) as client:
        everything = (await client.get("/v2/models/stats")).json()["model_stats"]
        (simple,) = (await client.get(path)).json()["model_stats"]
    assert [each["name"] for each in everything] == ["crash", "identity", "simple"]
    assert simple == everything[-1]
    assert (simple["name"], simple["version"], simple["inference_count"]) == ("simple", "1", 4)


@pytest.mark.parametrize("model", ["nobody", "simple/versions/2"])
async def test_statistics_of_an_unknown_model_are_404(model: str) -> None:
    async with client_of(FakeServing()) as client:
        answer = await client.get(f"/v2/models/{model}/stats")
    assert (answer.status_code, answer.headers["x-penstock-reason"]) == (404, "unknown_model")


@pytest.mark.usefixtures("both_servers")
async def test_grpc_tells_what_rest_tells() -> None:
    async with serve() as edge, triton_grpc.InferenceServerClient(edge.address) as client:
        telemetry = edge.core.telemetry
        telemetry.request_done(request("simple"), reply(COMPLETED, 1_000, 300, 2_000), 3_500, True)
        run(telemetry, "simple", "exact", 4)
        told = await client.get_inference_statistics("simple", "1")
        everything = await client.get_inference_statistics()
        with pytest.raises(InferenceServerException, match=r"NOT_FOUND.*'simpel' is not found"):
            await client.get_inference_statistics("simpel")
    assert [each.name for each in everything.model_stats] == ["identity", "simple"]
    assert told.model_stats[0] == everything.model_stats[-1]
    stated = MessageToDict(told.model_stats[0], preserving_proto_field_name=True)
    expected = telemetry.statistics("simple")
    assert stated["inference_stats"]["success"] == {"count": "1", "ns": "3500000"}  # uint64 as JSON has it
    assert int(stated["inference_count"]) == expected["inference_count"] == 4
    assert [each["batch_size"] for each in stated["batch_stats"]] == ["4"]
