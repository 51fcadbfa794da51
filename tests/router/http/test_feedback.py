"""Feedback over REST: what is taken, what is refused, and with which words."""

from typing import Any  # JSON

import httpx
import orjson
import pytest

from router.http.app import create_app
from router.http.feedback import BODY_BYTES_MAX, VALUES_MAX, add_feedback, decode_feedback
from router.observing.telemetry import Telemetry
from router.payloads.bulk.pool import Bulk
from serving.ports import Reply
from serving.runtime.calls.selecting import SelectingServing
from serving.values.specs import Limits, TenantSpec
from tests.router.fakes import SIMPLE
from tests.runtime.members import Members
from tests.selection.panels import ask, selecting_model


class Desk:
    """An application over members that learn by `policy`."""

    def __init__(self, policy: str) -> None:
        self.model = selecting_model(policy)
        behind = Members(self.model)
        behind.models = {"m": self.model, "simple": SIMPLE}
        self.serving = SelectingServing(behind, seed=1)
        telemetry = Telemetry(behind.models.values(), behind.tenants)
        app = create_app(
            self.serving, telemetry.statistics, name="penstock", version="0.1.0", bulk=Bulk(Limits())
        )
        add_feedback(app, self.serving)
        transport = httpx.ASGITransport(app, raise_app_exceptions=False)
        self.client = httpx.AsyncClient(transport=transport, base_url="http://test")

    def query(self, rows: int = 1) -> str:
        replies: list[Reply] = []
        for behind in [self.serving._behind]:
            assert isinstance(behind, Members)
            behind.named = dict.fromkeys("abc", [1] * rows)
        self.serving.submit(ask(self.model, rows), replies.append)
        return replies[0].query

    async def post(self, body: Any, model: str = "m") -> tuple[int, Any]:
        answer = await self.client.post(f"/v2/models/{model}/feedback", content=orjson.dumps(body))
        return answer.status_code, answer.json()


async def test_labels_losses_and_lists_are_taken_and_shown() -> None:
    desk = Desk("exp3")
    assert await desk.post({"query": desk.query(), "label": 1}) == (200, {"taken": 1})
    assert await desk.post({"query": desk.query(2), "labels": [1, 2]}) == (200, {"taken": 1})
    two = [{"query": desk.query(), "loss": 0.2}, {"query": desk.query(2), "losses": [0, 1]}]
    assert await desk.post({"feedback": two}) == (200, {"taken": 2})
    told = (await desk.client.get("/v2/models/m/selection")).json()
    assert (told["policy"], told["feedback"]) == ("exp3", 4)
    assert [each["name"] for each in told["members"]] == ["a", "b", "c"]
    assert sum(each["plays"] for each in told["members"]) == 4


async def test_an_ensemble_shows_what_its_members_are_worth_together() -> None:
    told = (await Desk("ensemble").client.get("/v2/models/m/selection")).json()
    assert told["asked"] == ["a", "b", "c"]
    assert len(told["subsets"]) == 7
    assert told["subsets"][0] == {"members": ["a", "b", "c"], "accuracy": 1.0, "row_us": None}
    assert [len(each["weights"]) for each in told["members"]] == [4, 4, 4]


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ([], "must be a JSON object with a query"),
        ({"label": 1}, "x-penstock-query"),
        ({"query": 7, "label": 1}, "x-penstock-query"),
        ({"query": "q" * 65, "label": 1}, "x-penstock-query"),
        ({"query": "q"}, "expected one of label, labels, loss and losses, got none"),
        ({"query": "q", "label": 1, "loss": 0}, "got label and loss"),
        ({"query": "q", "lable": 1}, "unknown key 'lable'"),
        ({"query": "q", "label": True}, "the number of a class"),
        ({"query": "q", "label": -1}, "the number of a class, from 0 on, got -1"),
        ({"query": "q", "label": 1 << 40}, "the number of a class"),
        ({"query": "q", "label": "3"}, "the number of a class"),
        ({"query": "q", "labels": 3}, "a list of numbers"),
        ({"query": "q", "labels": []}, "a list of numbers"),
        ({"query": "q", "loss": 1.5}, "from 0 to 1, got 1.5"),
        ({"query": "q", "losses": [0.1, None]}, "from 0 to 1, got null"),
        ({"feedback": []}, "a list of 1 to 256"),
        ({"feedback": [{"query": "q", "loss": 0}] * 257}, "a list of 1 to 256"),
        ({"feedback": [{"query": "q", "loss": 0}], "query": "q"}, "nothing may be beside it"),
        ({"feedback": [{"query": "q", "loss": 0}, {"query": "q"}]}, "feedback[1]: "),
    ],
)
async def test_what_is_not_well_formed_gets_400_and_what_would_be_right(body: Any, words: str) -> None:
    status, told = await Desk("exp3").post(body)
    assert status == 400
    assert words in told["error"]


async def test_what_fits_no_answer_gets_409() -> None:
    desk = Desk("exp4")
    query = desk.query()
    for body, words in (
        ({"query": "never", "label": 1}, "unknown"),
        ({"query": query, "labels": [1, 1]}, "1 rows"),
        ({"query": query, "loss": 0.5}, "single members"),
    ):
        status, told = await desk.post(body)
        assert (status, words in told["error"]) == (409, True)
    assert (await desk.post({"query": query, "label": 1}))[0] == 200
    status, told = await desk.post({"query": query, "label": 1})
    assert (status, "taken before" in told["error"]) == (409, True)
    status, told = await desk.post({"query": query, "label": 1}, "simple")
    assert (status, "`selection`" in told["error"]) == (409, True)
    assert (await desk.client.get("/v2/models/simple/selection")).status_code == 409


async def test_unknown_models_broken_json_and_long_bodies_are_told_apart() -> None:
    desk = Desk("exp3")
    assert (await desk.post({"query": "q", "label": 1}, "nobody"))[0] == 404
    assert (await desk.client.get("/v2/models/nobody/selection")).status_code == 404
    broken = await desk.client.post("/v2/models/m/feedback", content=b'{"query": NaN}')
    assert (broken.status_code, "not valid JSON" in broken.json()["error"]) == (400, True)
    long = await desk.client.post("/v2/models/m/feedback", content=bytes(BODY_BYTES_MAX + 1))
    assert long.status_code == 413


async def test_feedback_of_another_tenant_is_unknown_and_takes_nothing_from_the_owner() -> None:
    desk = Desk("exp3")
    desk.serving.tenants = {name: TenantSpec(name) for name in ("default", "gold")}
    query = desk.query()
    body, path = orjson.dumps({"query": query, "loss": 1.0}), "/v2/models/m/feedback"
    answer = await desk.client.post(path, content=body, headers={"x-tenant": "gold"})
    assert (answer.status_code, "is unknown" in answer.json()["error"]) == (409, True)
    assert await desk.post({"query": query, "loss": 0.0}) == (200, {"taken": 1})


async def test_a_body_of_more_than_the_loop_can_read_at_once_is_too_large() -> None:
    """By its bytes, and within them by its values, of which a byte can become 64 of objects."""
    desk = Desk("exp3")
    bodies = (
        b'{"query":"q","label":1}' + b" " * BODY_BYTES_MAX,
        b'{"query":"q","labels":[' + b",".join([b"1"] * VALUES_MAX) + b"]}",
        b"[" + b",".join([b"{}"] * VALUES_MAX) + b"]",
    )
    for body, limit in zip(bodies, (BODY_BYTES_MAX, VALUES_MAX, VALUES_MAX), strict=True):
        answer = await desk.client.post("/v2/models/m/feedback", content=body)
        assert answer.status_code == 413
        assert str(limit) in answer.json()["error"]


async def test_a_loss_in_full_for_each_row_of_the_largest_request_can_be_read() -> None:
    losses = b",".join([b"0.12345678901234567"] * Limits().rows_per_request)
    (found,) = decode_feedback(b'{"query":"q","losses":[' + losses + b"]}")
    assert len(found.losses) == Limits().rows_per_request
