"""What the check says of a real Redis."""

import pytest

from loadtests.stand.redis_server import redis_server
from router.verbs.doctor.network import check_redis
from serving.cache.spec import RedisSpec
from tests.router.verbs.doctor.roots import is_fault, is_ok

pytestmark = pytest.mark.live


def test_a_redis_that_answers_is_fine_and_one_that_refuses_the_password_is_not() -> None:
    with redis_server("--requirepass", "secret") as server:
        assert is_ok(check_redis(RedisSpec(server.url, "secret")))
        refused = check_redis(RedisSpec(server.url, "wrong"))
        assert is_fault(refused)
        assert "wrong" not in refused.sentence
        assert is_fault(check_redis(RedisSpec(server.url)))
    assert is_fault(check_redis(RedisSpec(server.url, "secret")))
