"""`cache:`: off without it, what it becomes, of which models, and the one sentence for each mistake."""

from pathlib import Path

import pytest

from router.settings import Settings, load_settings
from serving.cache.spec import CacheSpec
from tests.router.settings.samples import DIGITS, TEXT, gateway_faults, write_gateway, write_model

MODELS = "models: [{path: models/digits}]\n"
CACHE = "cache: {memory_mb: 1.5, ttl_s: 20, shared: true}\n"


def settings(home: Path, text: str) -> Settings:
    return load_settings(write_gateway(home, text))


def test_a_section_becomes_this_cache(home: Path) -> None:
    assert settings(home, MODELS + CACHE).cache == CacheSpec(3 << 19, 20_000_000, True)


@pytest.mark.parametrize("text", ["cache:\n", "cache: {}\n", "cache: true\n"])
def test_everything_in_it_has_a_default(home: Path, text: str) -> None:
    assert settings(home, MODELS + text).cache == CacheSpec(64 << 20, 300_000_000, False)


@pytest.mark.parametrize("text", ["", "cache: false\n"])
def test_it_is_off_unless_it_is_asked_for(home: Path, text: str) -> None:
    found = settings(home, MODELS + text)
    assert (found.cache, [model.cache for model in found.models]) == (None, [False])


def test_a_model_alone_may_ask_for_it(home: Path) -> None:
    write_model(home / "models" / "other", TEXT.replace("batch_max", "deterministic: true\nbatch_max"))
    found = settings(home, "models: [{path: models/digits, cache: true}, {path: models/other}]\n")
    assert found.cache == CacheSpec()
    assert [model.cache for model in found.models] == [True, False]


def test_a_model_cannot_ask_for_what_the_file_forbids(home: Path) -> None:
    (fault,) = gateway_faults(home, "models: [{path: models/digits, cache: true}]\ncache: false\n")
    assert fault == (
        "penstock.yaml:1:39: models[0].cache: the file says `cache: false`; expected `cache:` there, "
        "or false here"
    )


@pytest.mark.parametrize(
    ("served", "kept"),
    [
        ("", True),  # one of its variants is deterministic
        (", variants: [linear]", True),
        (", variants: [cnn]", False),
        (", variants: [cnn], cache: false", False),
        (", cache: false", False),
        (", cache: true", True),
        (", cache: ", True),
    ],
)
def test_answers_are_kept_where_a_served_variant_is_deterministic_and_the_model_does_not_say_else(
    home: Path, served: str, kept: bool
) -> None:
    (model,) = settings(home, f"models: [{{path: models/digits{served}}}]\ncache:\n").models
    assert model.cache is kept


MEMORY, TTL, SHARED = "2:20: cache.memory_mb", "2:32: cache.ttl_s", "2:44: cache.shared"


@pytest.mark.parametrize(
    ("old", "new", "where", "sentence"),
    [
        ("1.5", "0", MEMORY, "too small; got 0, expected 0.001 or more"),
        ("1.5", "all", MEMORY, "not a number; got 'all', expected a number"),
        ("20", "-1", TTL, "too small; got -1, expected 0.001 or more"),
        ("20", "100000", TTL, "too large; got 100000, expected 86400 or less"),
        ("shared: true", "shared: 1", SHARED, "not true or false; got 1, expected true or false"),
        ("ttl_s", "ttl", "2:25: cache.ttl",
         "unknown key; got 'ttl', expected memory_mb, ttl_s, shared or redis (did you mean ttl_s?)"),
        ("{memory_mb: 1.5, ttl_s: 20, shared: true}", "64", "2:8: cache",
         "not a mapping; got 64, expected keys and values (key: value), or false to keep no answers"),
    ],
)  # fmt: skip
def test_a_mistake_is_named_with_its_place_and_remedy(
    home: Path, old: str, new: str, where: str, sentence: str
) -> None:
    assert old in CACHE
    (fault,) = gateway_faults(home, MODELS + CACHE.replace(old, new, 1))
    assert fault == f"penstock.yaml:{where}: {sentence}"


def test_a_model_that_says_neither_true_nor_false_is_told(home: Path) -> None:
    (fault,) = gateway_faults(home, "models: [{path: models/digits, cache: 64}]")
    assert fault == "penstock.yaml:1:39: models[0].cache: not true or false; got 64, expected true or false"


def test_answers_that_differ_each_time_cannot_be_kept(home: Path) -> None:
    (fault,) = gateway_faults(home, "models: [{path: models/digits, variants: [cnn], cache: true}]")
    assert fault == (
        "penstock.yaml:1:56: models[0].cache: model.yaml does not say that 'digits' answers equal questions "
        "equally; expected deterministic: true there (cnn), or no cache: true here"
    )


@pytest.mark.parametrize("said", ["", "deterministic: false\n"])
def test_a_model_that_does_not_say_it_is_deterministic_is_not_kept(home: Path, said: str) -> None:
    write_model(home / "models" / "digits", DIGITS.replace("deterministic: true\n", said))
    assert not settings(home, MODELS + "cache:\n").models[0].cache
