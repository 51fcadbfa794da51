"""`/classify` and `/predict`: labels and probabilities of texts and of numbers."""

from typing import Any

import httpx
import numpy as np
import pytest

MOODS = ["sad", "calm", "glad"]


def softmax(values: list[float]) -> list[float]:
    powers = np.exp(values)
    return [float(each) for each in powers / powers.sum()]


async def classify(client: httpx.AsyncClient, **body: Any) -> Any:
    answer = await client.post("/v1/classify", json=body)
    assert answer.status_code == 200, answer.text
    return answer.json()


async def test_each_text_has_its_label_and_probabilities(client: httpx.AsyncClient) -> None:
    said = await classify(client, model="mood", input=["glad glad", "x"])
    first, second = said["data"]
    assert (first["label"], first["num_classes"], first["index"]) == ("glad", 3, 0)
    assert first["probs"] == pytest.approx(softmax([0, 0.5, 2]))
    assert second["label"] == "calm"
    assert said["usage"]["completion_tokens"] == 0
    raw = await classify(client, model="mood", input="sad", use_activation=False)
    assert raw["data"][0]["probs"] == [1.0, 0.5, 0.0]


@pytest.mark.parametrize("rows", [[[0, 1, 0, 0]], [[0, 1, 0, 0], [0.5, 0.25, 0.125, 0.125]]])
async def test_a_model_of_numbers_takes_rows(client: httpx.AsyncClient, rows: list[list[float]]) -> None:
    said = await classify(client, model="pixels", input=rows)
    assert [each["probs"] for each in said["data"]] == rows
    assert said["data"][0]["label"] == "LABEL_1"
    assert said["usage"]["prompt_tokens"] == 0


async def test_a_single_row_of_numbers_needs_no_brackets_of_its_own(client: httpx.AsyncClient) -> None:
    said = await classify(client, model="pixels", input=[1, 0, 0, 0])
    assert [each["label"] for each in said["data"]] == ["LABEL_0"]


async def test_predict_of_one_text_and_of_a_batch(client: httpx.AsyncClient) -> None:
    async def predict(**body: Any) -> Any:
        answer = await client.post("/predict", json={"model": "mood", "raw_scores": True, **body})
        assert answer.status_code == 200, answer.text
        return answer.json()

    sad = [{"score": 1.0, "label": "sad"}, {"score": 0.5, "label": "calm"}, {"score": 0.0, "label": "glad"}]
    assert await predict(inputs="sad") == sad
    assert await predict(inputs=["sad"]) == sad
    batch = await predict(inputs=[["sad"], ["glad glad"]])
    assert [row[0]["label"] for row in batch] == ["sad", "glad"]
    numbers = await predict(inputs=[[0, 0, 1, 0]], model="pixels")
    assert numbers[0][0] == {"score": 1.0, "label": "LABEL_2"}


@pytest.mark.parametrize(
    ("path", "body", "said"),
    [
        ("/v1/classify", {"model": "mood", "input": []}, "'input' of the request must be a text, a list of"),
        ("/v1/classify", {"model": "mood", "input": [1, 2]}, "unexpected shape for input 'TEXT'"),
        ("/v1/classify", {"model": "pixels", "input": "x"}, "takes no texts"),
        ("/v1/classify", {"model": "pixels", "input": [[1, 2]]}, "expected [-1,4], got [1,2]"),
        ("/v1/classify", {"model": "pixels", "input": [[1, 2, 3, 4], [1]]}, "must be a list of 4"),
        (
            "/v1/classify",
            {"model": "letters", "input": "x"},
            "does not serve /classify; 'mood', 'pixels' can",
        ),
        ("/predict", {"model": "mood", "inputs": ["a", "b"]}, "must be a list of one text"),
        ("/predict", {"model": "mood", "inputs": [["a"], "b"]}, "inputs[1] must be a list of one text"),
        ("/predict", {"model": "mood"}, "'inputs' of the request must be a text"),
    ],
)
async def test_a_request_that_is_not_valid_says_what_is_wrong(
    client: httpx.AsyncClient, path: str, body: dict[str, object], said: str
) -> None:
    answer = await client.post(path, json=body)
    assert answer.status_code == 400
    error = answer.json()["error"]
    assert said in (error if isinstance(error, str) else error["message"])
