"""`/v1/models`: one document for OpenAI's clients and for KServe's."""

import httpx

from tests.router.http.endpoints.worlds import TextServing


async def test_the_list_has_both_forms(client: httpx.AsyncClient, serving: TextServing) -> None:
    said = (await client.get("/v1/models")).json()
    assert said["object"] == "list"
    assert [each["id"] for each in said["data"]] == said["models"] == [*serving.models]
    assert {each["object"] for each in said["data"]} == {"model"}
    tasks = {each["id"]: (each["task"], each["max_model_len"]) for each in said["data"]}
    assert tasks["letters"] == ("embed", 8)
    assert tasks["simple"] == (None, None)


async def test_one_model_has_both_forms_and_readiness(
    client: httpx.AsyncClient, serving: TextServing
) -> None:
    ready = await client.get("/v1/models/letters")
    said = ready.json()
    assert (ready.status_code, said["id"], said["name"], said["ready"]) == (200, "letters", "letters", True)
    assert said["created"] > 0
    serving.unready_models.add("letters")
    waiting = await client.get("/v1/models/letters")
    assert (waiting.status_code, waiting.json()["ready"]) == (503, False)
    unknown = await client.get("/v1/models/leters")
    error = unknown.json()["error"]
    assert (unknown.status_code, error["code"], error["param"]) == (404, "model_not_found", "model")
    assert "did you mean 'letters'?" in error["message"]
