"""Which version of a model a request means, and what the fast path knows of it."""

from dataclasses import replace
from types import SimpleNamespace
from typing import cast

import pytest

from router.http.fastpath.paths import InferPaths
from router.protocol.oip import find_model, served_versions, told_of, versions_of
from router.security.auth.identity import Identity, may_use
from router.tensors.parts.errors import RequestError
from serving.ports import Serving
from serving.values.specs import ServedModel
from tests.builders import model_spec, served


def version(number: int, name: str = "m") -> ServedModel:
    return served(replace(model_spec(name), version=number))


PRESENT, OLD, PLAIN = version(2), version(1, "m@1"), served(model_spec("plain"))
MODELS = {each.name: each for each in (PRESENT, OLD, PLAIN)}
SERVING = cast(Serving, SimpleNamespace(models=MODELS))


@pytest.mark.parametrize(
    ("name", "stated", "found"),
    [
        ("m", "", PRESENT),
        ("m", "2", PRESENT.pinned),
        ("m", "1", OLD.pinned),
        ("m@1", "", OLD.pinned),
        ("m@1", "1", OLD.pinned),
        ("m@2", "", PRESENT.pinned),
        ("plain", "", PLAIN),
        ("plain", "1", PLAIN),
        ("plain@1", "", PLAIN),
    ],
)  # fmt: skip
def test_a_request_means_a_version(name: str, stated: str, found: ServedModel) -> None:
    assert find_model(SERVING, name, stated) == found


@pytest.mark.parametrize(
    ("name", "stated", "message"),
    [
        ("m", "3", "Request for unknown model: 'm' version 3 is not found; its versions are 1, 2"),
        ("m@3", "", "Request for unknown model: 'm' version 3 is not found; its versions are 1, 2"),
        ("m", "x", "version x is not found"),
        ("plain", "2", "the only version is 1"),
        ("m@1", "2", "m@1"),
        ("other", "", "other"),
        ("other", "1", "other"),
    ],
)  # fmt: skip
def test_a_version_that_is_not_served_is_named_with_those_that_are(
    name: str, stated: str, message: str
) -> None:
    with pytest.raises(RequestError, match=r"unknown model|no model") as caught:
        find_model(SERVING, name, stated)
    assert message in caught.value.message


def test_the_model_of_a_stated_version_stays_and_is_the_same_otherwise() -> None:
    pinned = PRESENT.pinned
    assert pinned.stays
    assert replace(pinned, stays=False) == PRESENT
    assert (OLD.pinned.name, PLAIN.pinned) == ("m@1", PLAIN)


def test_versions_are_listed_ascending_under_any_of_their_names() -> None:
    ten = version(10, "m@10")
    serving = cast(Serving, SimpleNamespace(models={**MODELS, ten.name: ten}))
    assert versions_of(serving, "m") == versions_of(serving, "m@1") == ["1", "2", "10"]
    assert served_versions(serving, "m") == [OLD, PRESENT, ten]
    assert versions_of(serving, "plain") == ["1"]


def test_statistics_have_the_models_name_and_the_version() -> None:
    told = told_of(lambda name: {"name": name, "version": "1", "count": 3}, PRESENT)
    assert told == {"name": "m", "version": "2", "count": 3}
    assert told_of(lambda name: {"name": name}, OLD)["name"] == "m"


def test_the_fast_path_knows_each_version_by_number_and_by_name() -> None:
    paths = InferPaths(MODELS)
    assert paths.find(b"/v2/models/m/infer") is PRESENT
    assert paths.find(b"/v2/models/m/versions/2/infer") is PRESENT.pinned
    assert paths.find(b"/v2/models/m/versions/1/infer") is OLD.pinned
    assert paths.find(b"/v2/models/m@1/infer") is paths.find(b"/v2/models/m%401/infer") is OLD
    assert paths.find(b"/v2/models/plain/versions/1/infer") is PLAIN
    assert paths.find(b"/v2/models/m/versions/3/infer") is None


@pytest.mark.parametrize("order", [1, -1])
def test_while_a_version_has_two_names_the_one_that_answers_counts(order: int) -> None:
    again = version(2, "m@2")  # is loaded before version 3 takes the model's name
    paths = InferPaths({each.name: each for each in (PRESENT, again)[::order]})
    assert paths.find(b"/v2/models/m/versions/2/infer") is PRESENT.pinned


def test_a_key_for_a_model_is_good_for_its_versions() -> None:
    identity = Identity("k", "t", frozenset(), frozenset({"m"}))
    assert may_use(identity, "m@1")
    assert may_use(identity, "m")
    assert not may_use(identity, "plain")
