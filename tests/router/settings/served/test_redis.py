"""`redis:` of `cache:`: what it becomes, the one sentence for each mistake, and no password ever shown."""

from pathlib import Path

import pytest

from router.settings import SettingsError, load_settings
from router.verbs.check import check
from serving.cache.spec import RedisSpec
from tests.router.settings.samples import gateway_faults, write_gateway

MODELS = "models: [{path: models/digits}]\n"
SECRET = "s3cret"  # noqa: S105  of no server


def redis(home: Path, text: str) -> RedisSpec | None:
    cache = load_settings(write_gateway(home, f"{MODELS}cache: {{redis: {text}}}\n")).cache
    assert cache is not None
    return cache.redis


def test_without_it_answers_are_kept_here_only(home: Path) -> None:
    assert redis(home, "") is None


@pytest.mark.parametrize(
    "url",
    [
        "redis://localhost",
        "redis://user:s3cret@cache.internal:6380/3",
        "rediss://cache.internal:6380?ssl_ca_certs=/etc/ca.pem",
        "unix:///run/redis/redis.sock",
        "redis://[::1]:6379/0",
    ],
)
def test_a_url_is_enough(home: Path, url: str) -> None:
    assert redis(home, f'"{url}"') == RedisSpec(url, "", "penstock", 2_000)


def test_a_section_becomes_this(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDIS_PASSWORD", SECRET)
    text = "{url: redis://me@host, namespace: blue, budget_ms: 1.5, password_env: REDIS_PASSWORD}"
    assert redis(home, text) == RedisSpec("redis://me@host", SECRET, "blue", 1_500)


URL, REDIS = "penstock.yaml:2:22: cache.redis.url", "penstock.yaml:2:16: cache.redis"
FORMS = "redis://host:6379/0, rediss://host:6379/0 or unix:///path/to/redis.sock"


@pytest.mark.parametrize(
    ("url", "sentence"),
    [
        ("host", f"not the URL of a Redis server; expected {FORMS}"),
        ("http://h", f"not the URL of a Redis server; got the scheme 'http', expected {FORMS}"),
        (
            "reddis://h",
            f"not the URL of a Redis server; got the scheme 'reddis', expected {FORMS} (did you mean redis?)",
        ),
        ("redis://", f"a URL without a host; expected {FORMS}"),
        ("redis://h:99999", f"not a URL; expected {FORMS}"),
        ("redis://h:0", f"a URL without a port; expected {FORMS}"),
        ("redis://h/one", "not the number of a database; got 'one', expected one such as /0"),
        ("unix://", "a URL without a path; expected unix:///path/to/redis.sock"),
        ("redis://h?db=2", "unknown option 'db' in the URL; expected none, as only rediss:// takes some"),
        (
            "rediss://h?ssl=1",
            "unknown option 'ssl' in the URL; expected ssl_ca_certs, ssl_certfile or ssl_keyfile",
        ),
        ("redis://h#x", "a fragment in the URL; expected none"),
        (5, "not text; got 5, expected text; quote what YAML would take for another type"),
    ],
)
def test_a_wrong_url_is_named_with_its_place(home: Path, url: object, sentence: str) -> None:
    text = f'"{url}"' if isinstance(url, str) else url
    assert gateway_faults(home, f"{MODELS}cache: {{redis: {{url: {text}}}}}\n") == [f"{URL}: {sentence}"]


def test_a_wrong_url_alone_is_named_too(home: Path) -> None:
    (found,) = gateway_faults(home, f"{MODELS}cache: {{redis: localhost}}\n")
    assert found.startswith(f"{REDIS}: not the URL")
    (found,) = gateway_faults(home, f"{MODELS}cache: {{redis: [a]}}\n")
    assert found == (
        f"{REDIS}: not a server; got a list of 1, expected a URL such as redis://localhost, or a mapping"
        " with a url"
    )
    assert gateway_faults(home, f"{MODELS}cache: {{redis: {{}}}}\n") == [
        "penstock.yaml:2:9: cache.redis.url: this key is required"
    ]


def test_a_password_that_is_missing_or_there_twice_is_named(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("REDIS_PASSWORD", raising=False)
    text = f"{MODELS}cache: {{redis: {{url: redis://me:pw@host, password_env: REDIS_PASSWORD}}}}\n"
    (found,) = gateway_faults(home, text)
    assert found.endswith(
        "password_env: the environment has no 'REDIS_PASSWORD'; expected the password there"
    )
    monkeypatch.setenv("REDIS_PASSWORD", SECRET)
    (found,) = gateway_faults(home, text)
    assert found.endswith("password_env: the url has a password too; expected one of them")


def test_answers_are_signed_with_the_key_else_with_the_password(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key, url = "0123456789abcdef", "redis://me:p%40ss@host"
    monkeypatch.setenv("CACHE_KEY", key)
    found = redis(home, f"{{url: '{url}', key_env: CACHE_KEY}}")
    assert found is not None
    assert key not in repr(found)
    signed = (found, RedisSpec(url), RedisSpec("redis://host", "other"), RedisSpec("redis://host"))
    assert [each.secret for each in signed] == [key, "p@ss", "other", ""]


@pytest.mark.parametrize(
    ("key", "got"), [("", "no 'CACHE_KEY'"), ("too short", "9 characters as 'CACHE_KEY'")]
)
def test_a_key_that_is_missing_or_too_short_is_named(
    home: Path, monkeypatch: pytest.MonkeyPatch, key: str, got: str
) -> None:
    monkeypatch.setenv("CACHE_KEY", key)
    (found,) = gateway_faults(home, f"{MODELS}cache: {{redis: {{url: redis://host, key_env: CACHE_KEY}}}}\n")
    expected = "expected a key of 16 characters or more there, the same for all gateways"
    assert found.endswith(f"key_env: the environment has {got}; {expected}")


@pytest.mark.parametrize(
    ("key", "sentence"),
    [
        (
            "namespace: a:b",
            "not a name; got 'a:b', expected letters, digits, '.', '_' and '-', first a letter",
        ),
        ("budget_ms: 0", "too small; got 0, expected 1 or more"),
        (
            "budgetms: 2",
            "unknown key; got 'budgetms', expected url, namespace, password_env, key_env or budget_ms",
        ),
    ],
)
def test_each_other_mistake_is_named(home: Path, key: str, sentence: str) -> None:
    (found,) = gateway_faults(home, f'{MODELS}cache: {{redis: {{url: "redis://h", {key}}}}}\n')
    assert found.split(": ", 2)[2].startswith(sentence)


def test_no_password_is_ever_shown(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REDIS_PASSWORD", SECRET)
    for cache in (
        f"redis: redis://me:{SECRET}@host:6380/1",
        "redis: {url: redis://me@host:6380/1, password_env: REDIS_PASSWORD, namespace: blue}",
    ):
        path = write_gateway(home, f"{MODELS}cache: {{{cache}}}\n")
        found = load_settings(path)
        plan = str(check(path, lambda _: lambda *_: None))
        assert "through redis://host:6380/1 as " in plan
        assert SECRET not in plan + repr(found)
    for url in (f"http://me:{SECRET}@h", f"redis://me:{SECRET}@h:x", f"redis://:{SECRET}@h/{SECRET[:1]}"):
        with pytest.raises(SettingsError) as error:
            load_settings(write_gateway(home, f"{MODELS}cache: {{redis: '{url}'}}\n"))
        assert SECRET not in str(error.value)
