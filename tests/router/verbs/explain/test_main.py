"""`penstock explain`: two readings of a gateway become sentences; what goes wrong is one clear line."""

import http.server
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from router.verbs.explain.body import Explanation
from router.verbs.explain.main import explain
from tests.router.verbs.explain.explanations import counters, explanation, ladder, promise


def standing(uptime_s: float, answered: int) -> Explanation:
    own = promise([ladder(["cnn", "mlp"])], variants=["cnn", "mlp"])
    gold = promise([ladder(["cnn"])], tier="gold", variants=["cnn"], accuracy_min=0.98)
    told = explanation(own, 10.0, counters=counters({"cnn": answered}), uptime_s=uptime_s)
    return {**told, "promises": [own, gold]}


@contextmanager
def gateway(*bodies: object, code: int = 200) -> Iterator[str]:
    """An HTTP server that gives these answers, one after the other, the last for ever; yields its URL."""
    left = [json.dumps(each).encode() for each in bodies]

    class Answer(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = left.pop(0) if len(left) > 1 else left[0]
            self.send_response(code if self.path == "/v2/models/digits/explain" else 404)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


def test_two_readings_become_sentences(capsys: pytest.CaptureFixture[str]) -> None:
    with gateway(standing(5.0, 100), standing(6.5, 130)) as url:
        assert explain("digits", url + "/", watched_s=0) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("digits: 99 % of requests within 50 ms")
    assert "  of the last 1.5 s: 30 answered (cnn 100 %), mean accuracy 0.9867\n" in shown
    assert shown.endswith("\n\nother promises, by --tier: gold\n")


def test_a_tier_is_explained_alone(capsys: pytest.CaptureFixture[str]) -> None:
    with gateway(standing(5.0, 1)) as url:
        assert explain("digits", url, tier="gold", watched_s=0) == 0
    shown = capsys.readouterr().out
    assert shown.startswith("digits, tier gold: ")
    assert "other promises" not in shown


def test_json_is_what_the_gateway_says_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    with gateway(standing(5.0, 1)) as url:
        assert explain("digits", url, as_json=True, watched_s=600) == 0
    assert json.loads(capsys.readouterr().out) == standing(5.0, 1)


@pytest.mark.parametrize(
    ("tier", "sentence"),
    [
        ("golf", "digits has no tier 'golf'; did you mean 'gold'?"),
        ("xyz", "digits has no tier 'xyz'; its tiers are 'gold'"),
    ],
)
def test_a_tier_that_is_none_is_one_line_of_error(
    capsys: pytest.CaptureFixture[str], tier: str, sentence: str
) -> None:
    with gateway(standing(5.0, 1)) as url:
        assert explain("digits", url, tier=tier, watched_s=600) == 1
    captured = capsys.readouterr()
    assert (captured.out, captured.err) == ("", f"{sentence}\n")


@pytest.mark.parametrize(
    ("body", "code", "part"),
    [
        ({"error": "Request for unknown model: 'digits' is not found"}, 404, "is not found"),
        ({"error": 5}, 404, "answered 404: is this the REST port of a gateway?"),
        ("<html>", 500, "answered 500: is this the REST port of a gateway?"),
        ([], 200, "its answer explains no model"),
        ({"model": "digits"}, 200, "its answer explains no model"),
    ],
)
def test_what_is_no_explanation_is_one_line_of_error(
    capsys: pytest.CaptureFixture[str], body: object, code: int, part: str
) -> None:
    with gateway(body, code=code) as url:
        assert explain("digits", url, watched_s=0) == 1
    captured = capsys.readouterr()
    assert part in captured.err
    assert (captured.out, captured.err.count("\n")) == ("", 1)


@pytest.mark.parametrize(
    ("url", "part"),
    [
        ("http://127.0.0.1:1", "No gateway at http://127.0.0.1:1 ([Errno 111] Connection refused)"),
        ("127.0.0.1:1", "No gateway at http://127.0.0.1:1 ([Errno 111] Connection refused)"),
        ("one two", "'one two' is no gateway address; expected something like http://127.0.0.1:8000."),
    ],
)
def test_no_gateway_is_one_line_of_error(capsys: pytest.CaptureFixture[str], url: str, part: str) -> None:
    assert explain("digits", url, watched_s=0) == 1
    assert part in capsys.readouterr().err


def test_a_models_name_is_no_path(capsys: pytest.CaptureFixture[str]) -> None:
    with gateway(standing(5.0, 1)) as url:
        assert explain("../../v2/models/digits", url, watched_s=0) == 1
    assert "answered 404" in capsys.readouterr().err


def test_what_is_kept_of_its_answers_is_said_where_any_is(capsys: pytest.CaptureFixture[str]) -> None:
    cache = {
        "kept": True,
        "pays": True,
        "hits": 3,
        "joins": 0,
        "misses": 1,
        "differs": {"mlp": "output 'Y' was 1"},
    }
    with gateway({**standing(5.0, 1), "cache": cache}) as url:
        assert explain("digits", url, watched_s=0) == 0
    assert (
        "\n\nkept answers\n  75.0 % had a kept answer, of 4\n"
        "  none of mlp is kept: it says that it is deterministic, but its output 'Y' was 1\n"
    ) in capsys.readouterr().out
