"""What a request says in its header fields, and how each outcome is told; the same on both ways."""

import gzip
import json
import zlib
from collections.abc import Callable

import pytest

from router.protocol.outcomes import ANSWERS
from serving.values.vocabulary import (
    ALL_OUTCOMES,
    BAD_INPUT,
    CLIENT_GONE,
    COMPLETED,
    DEADLINE_QUEUED,
    DRAINING,
    OVERLOAD,
    QUEUE_FULL,
    QUOTA,
    TOO_LARGE,
    UNKNOWN_MODEL,
    Outcome,
)
from tests.router.fakes import SIMPLE
from tests.router.http.fastpath.wire import LIMITS, Running, binary_infer, body_of, get, infer, request, total


def raw_deflate(body: bytes) -> bytes:
    packer = zlib.compressobj(wbits=-15)
    return packer.compress(body) + packer.flush()


PACKED = {
    "gzip": gzip.compress(body_of(8)),
    "x-gzip": gzip.compress(body_of(8)),
    "GZip ": gzip.compress(body_of(8)[:40]) + gzip.compress(body_of(8)[40:]),
    "deflate": zlib.compress(body_of(8)),
    "Deflate": raw_deflate(body_of(8)),
    "identity": body_of(8),
}


@pytest.mark.parametrize("coding", PACKED)
def test_a_compressed_body_is_read(running: Running, coding: str) -> None:
    assert total(running.ask(request(body=PACKED[coding], content_encoding=coding))) == 9


def test_the_length_of_the_json_part_is_that_before_compression(running: Running) -> None:
    body = body_of(8)
    fields = {"content_encoding": "gzip", "inference_header_content_length": str(len(body))}
    assert total(running.ask(request(body=gzip.compress(body), **fields))) == 9


@pytest.mark.parametrize("coding", ["gzip", "deflate"])
@pytest.mark.parametrize("damage", ["cut", "swapped", "garbage", "empty", "garbage after it"])
def test_a_damaged_compressed_body_is_400(running: Running, coding: str, damage: str) -> None:
    whole = PACKED[coding]
    other = PACKED["deflate" if coding == "gzip" else "gzip"]
    body = {
        "cut": whole[:-6],
        "swapped": other,
        "garbage": b"garbage" * 5,
        "empty": b"",
        "garbage after it": whole + b"garbage",
    }[damage]
    answer = running.ask(request(body=body, content_encoding=coding))
    assert answer.status == 400
    assert f"the {coding} request body" in answer.error


@pytest.mark.slow
@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_a_compression_bomb_stops_at_the_limit(running: Running, coding: str) -> None:
    bomb = bytes(100 << 20)
    packed = gzip.compress(bomb, 1) if coding == "gzip" else zlib.compress(bomb, 1)
    packed = packed[: LIMITS.body_bytes]
    answer = running.ask(request(body=packed, content_encoding=coding))
    assert answer.status == 413
    assert "once decompressed" in answer.error


@pytest.mark.parametrize("coding", ["br", "zstd", "gzip, deflate"])
def test_an_unknown_coding_is_415(running: Running, coding: str) -> None:
    answer = running.ask(request(body=body_of(1), content_encoding=coding))
    assert answer.status == 415
    assert f"'{coding}'" in answer.error


@pytest.mark.parametrize(
    ("accepted", "coding"),
    [
        ("gzip", "gzip"),
        ("deflate", "deflate"),
        ("br, deflate;q=0.5, gzip", "deflate"),
        ("gzip;q=0, deflate", "deflate"),
        ("gzip; q=0.0", None),
        ("br, *", None),
        ("", None),
    ],
)
def test_a_long_answer_is_compressed_where_the_client_names_a_coding(
    running: Running, accepted: str, coding: str | None
) -> None:
    tensor = {"name": "IN", "shape": [1, 2000], "datatype": "INT8", "data": [1] * 2000}
    body = json.dumps({"inputs": [tensor]}).encode()
    answer = running.ask(request("/v2/models/identity/infer", body, accept_encoding=accepted))
    assert answer.fields.get("content-encoding") == coding
    assert answer.fields["x-penstock-variant"] == "exact"
    body = answer.body
    if coding is not None:
        body = zlib.decompress(body, wbits=47)  # 47: either framing
    assert json.loads(body)["outputs"][0]["data"] == [1] * 2000


def test_a_short_answer_is_not_compressed(running: Running) -> None:
    assert "content-encoding" not in running.ask(infer(1, accept_encoding="gzip")).fields


@pytest.mark.parametrize(
    ("header", "parameter", "timeout_us"),
    [
        (None, None, None),
        ("20", None, 20_000),
        ("0.5", None, 500),
        ("0.0001", None, 1),
        ("20", 5_000, 5_000),
        ("5", 20_000, 5_000),
        (None, 7_000, 7_000),
    ],
)
def test_the_tightest_timeout_counts(
    running: Running, header: str | None, parameter: int | None, timeout_us: int | None
) -> None:
    more = {} if parameter is None else {"parameters": {"timeout": parameter}}
    before_us = running.serving.now_us()
    total(running.ask(request(body=body_of(1, **more), x_request_timeout_ms=header)))
    call = running.serving.calls[0]
    assert call.timeout_us == timeout_us
    assert before_us <= call.arrived_us <= running.serving.now_us()


@pytest.mark.parametrize("header", ["0", "-1", "abc", "", "nan", "inf", "1e999"])
def test_a_timeout_that_is_none_is_400_and_names_the_header(running: Running, header: str) -> None:
    answer = running.ask(infer(1, x_request_timeout_ms=header))
    assert answer.status == 400
    assert "x-request-timeout-ms must be a positive number of milliseconds" in answer.error


@pytest.mark.parametrize("body", [body_of(1), b"{"])
def test_the_request_id_comes_back(running: Running, body: bytes) -> None:
    answer = running.ask(request(body=body, x_request_id="a/b c\xe9"))
    assert answer.fields["x-request-id"] == "a/b c\xe9"


@pytest.mark.parametrize(
    "outcome", [o for o in ALL_OUTCOMES if o not in (COMPLETED, CLIENT_GONE)], ids=lambda o: o.reason
)
def test_each_outcome_is_told_as_the_table_says(running: Running, outcome: Outcome) -> None:
    running.serving.outcome = outcome
    answer = running.ask(infer(1, x_request_id="7"))
    assert answer.status == ANSWERS[outcome].http_status
    assert answer.error == ANSWERS[outcome].sentence
    assert json.loads(answer.body)["reason"] == outcome.reason
    assert answer.fields["x-penstock-reason"] == outcome.reason
    assert answer.fields["x-request-id"] == "7"


@pytest.mark.parametrize("data", [infer(4), binary_infer(4), infer(4, x_request_id="7")])
def test_an_answer_says_where_its_time_went_and_who_gave_it(running: Running, data: bytes) -> None:
    running.serving.waited_us = (1_204, 50, 12_000_000)
    fields = running.ask(data).fields
    assert fields["server-timing"] == (
        "request;dur=0.000, queue;dur=1.204, batch;dur=0.050, input;dur=0.000, infer;dur=12000.000, "
        "output;dur=0.000, answer;dur=0.000"
    )
    assert (fields["x-penstock-variant"], fields["x-penstock-batch-rows"]) == ("exact", "1")
    assert not fields.keys() & {"x-penstock-reason", "retry-after", "x-retry-after-ms"}


@pytest.mark.parametrize(
    ("retry_us", "seconds", "milliseconds"),
    [
        (1, "1", "1"),
        (1_000, "1", "1"),
        (1_001, "1", "2"),
        (1_000_001, "2", "1001"),
        (90_000_000, "90", "90000"),
    ],
)
@pytest.mark.parametrize("outcome", [OVERLOAD, QUOTA, QUEUE_FULL], ids=lambda outcome: outcome.reason)
def test_who_is_turned_away_is_told_when_to_come_back(
    running: Running, outcome: Outcome, retry_us: int, seconds: str, milliseconds: str
) -> None:
    running.serving.outcome, running.serving.retry_us = outcome, retry_us
    fields = running.ask(infer(1)).fields
    assert (fields["retry-after"], fields["x-retry-after-ms"]) == (seconds, milliseconds)


@pytest.mark.parametrize(("outcome", "retry_us"), [(OVERLOAD, 0), (DRAINING, 5_000)])
def test_where_nobody_can_say_when_nothing_is_said(running: Running, outcome: Outcome, retry_us: int) -> None:
    running.serving.outcome, running.serving.retry_us = outcome, retry_us
    assert not running.ask(infer(1)).fields.keys() & {"retry-after", "x-retry-after-ms", "server-timing"}


def test_a_request_that_was_shed_says_how_long_it_waited(running: Running) -> None:
    running.serving.outcome, running.serving.waited_us = DEADLINE_QUEUED, (20_001, 0, 0)
    assert running.ask(infer(1)).fields["server-timing"] == "queue;dur=20.001"


@pytest.mark.parametrize(
    ("stated", "tenant"),
    [
        (None, "default"),
        ("gold", "gold"),
        ("batch.jobs  ", "batch.jobs"),
        ("default", "default"),
        ("silver", "default"),
        ("", "default"),
        ("z\xb3oto\xff", "default"),
        ("g" * 10_000, "default"),
    ],
)
def test_a_request_belongs_to_the_tenant_that_it_names_where_that_is_listed(
    running: Running, stated: str | None, tenant: str
) -> None:
    assert total(running.ask(request(body=body_of(1), x_tenant=stated))) == 2
    assert running.serving.calls[0].tenant == tenant


@pytest.mark.parametrize(
    ("stated", "max_age_us", "store"),
    [
        ((), None, True),
        (("no-cache",), 0, True),
        (("no-store",), None, False),
        (("max-age=30",), 30_000_000, True),
        (("no-store", "max-age=30"), 30_000_000, False),
    ],
)
def test_a_request_says_which_kept_answers_it_takes_and_whether_its_own_is_kept(
    running: Running, stated: tuple[str, ...], max_age_us: int | None, store: bool
) -> None:
    lines = "".join(f"cache-control: {each}\r\n" for each in stated).encode()
    line, _, rest = infer(1).partition(b"\r\n")
    assert total(running.ask(line + b"\r\n" + lines + rest)) == 2
    (call,) = running.serving.calls
    assert (call.max_age_us, call.store) == (max_age_us, store)


def test_a_max_age_that_is_none_is_400_and_names_the_header(running: Running) -> None:
    answer = running.ask(infer(1, cache_control="max-age=soon"))
    assert answer.status == 400
    assert "max-age of cache-control must be a whole number of seconds" in answer.error
    assert running.serving.turned_away == [("simple", BAD_INPUT, "default")]


@pytest.mark.parametrize(
    ("cache", "told"),
    [
        ("", {}),
        ("miss", {"x-cache": "miss"}),
        ("join", {"x-cache": "join"}),
        ("hit", {"x-cache": "hit", "age": "12"}),
    ],
)
@pytest.mark.parametrize("ask", [infer, binary_infer])
def test_an_answer_says_what_the_cache_did_where_it_was_asked(
    running: Running, ask: Callable[[int], bytes], cache: str, told: dict[str, str]
) -> None:
    running.serving.cache, running.serving.age_us = cache, 12_900_000 if cache == "hit" else 0
    fields = running.ask(ask(1)).fields
    assert {name: fields[name] for name in fields if name in ("x-cache", "age")} == told


def test_kept_answers_are_dropped_over_rest(running: Running) -> None:
    running.serving.kept = 2
    for path, model in (("/v2/cache", ""), ("/v2/cache/models/simple", "simple")):
        answer = running.ask(request(path, method="DELETE"))
        assert (answer.status, json.loads(answer.body)["dropped"]) == (200, 2)
        assert running.serving.invalidated[-1] == model
    assert running.ask(request("/v2/cache/models/nobody", method="DELETE")).status == 404


def test_the_cores_own_sentence_is_told(running: Running) -> None:
    running.serving.outcome, running.serving.detail = QUEUE_FULL, "Exceeds maximum queue size of 3"
    assert running.ask(infer(1)).error == "Exceeds maximum queue size of 3"


def test_an_output_that_cannot_be_written_as_asked_is_400(running: Running) -> None:
    inputs = [{"name": "IN", "shape": [1, 1], "datatype": "BYTES", "parameters": {"binary_data_size": 5}}]
    head = json.dumps({"inputs": inputs}).encode()
    data = head + b"\1\0\0\0\xff"  # not UTF-8, and asked for as JSON
    answer = running.ask(
        request("/v2/models/identity/infer", data, inference_header_content_length=str(len(head)))
    )
    assert answer.status == 400
    assert "OUT" in answer.error


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_bug_in_the_core_is_500_without_its_text(running: Running) -> None:
    tensor = {"name": "IN", "shape": [1, 1], "datatype": "FP32", "data": [1]}
    answer = running.ask(request("/v2/models/crash/infer", json.dumps({"inputs": [tensor]}).encode()))
    assert answer.status == 500
    assert answer.error == "internal error of the gateway; its log has the cause"


@pytest.mark.parametrize(
    ("data", "model", "outcome", "tenant"),
    [
        (request(body=b"{"), "simple", BAD_INPUT, "default"),
        (request(body=b"{", content_encoding="br"), "simple", BAD_INPUT, "default"),
        (request(body=b"x", content_encoding="gzip", x_tenant="gold"), "simple", BAD_INPUT, "gold"),
        (
            request(body=gzip.compress(bytes(2 << 20)), content_encoding="gzip"),
            "simple",
            TOO_LARGE,
            "default",
        ),
        (infer(1, "/v2/models/nobody/infer", x_tenant="gold"), "nobody", UNKNOWN_MODEL, "gold"),
        (infer(1, "/v2/models/simple/versions/2/infer"), "simple", UNKNOWN_MODEL, "default"),
    ],
)
def test_a_request_that_never_became_a_call_is_counted_for_its_tenant_and_told_the_reason(
    running: Running, data: bytes, model: str, outcome: Outcome, tenant: str
) -> None:
    answer = running.ask(data)
    assert answer.status >= 400
    assert answer.fields["x-penstock-reason"] == json.loads(answer.body)["reason"] == outcome.reason
    assert running.serving.turned_away == [(model, outcome, tenant)]
    assert not running.serving.calls


def test_metadata_of_an_unknown_model_has_its_reason_too(running: Running) -> None:
    answer = running.ask(get("/v2/models/nobody"))
    assert (answer.status, answer.fields["x-penstock-reason"]) == (404, "unknown_model")


def test_the_model_that_the_call_names_is_the_one_served(running: Running) -> None:
    running.ask(infer(1))
    assert running.serving.calls[0].model is SIMPLE
