"""What the Redis tier promises while its server is out of reach, hangs, is killed and comes back."""

import asyncio
import logging
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest

from loadtests.stand.redis_server import RedisServer, redis_server
from serving.cache.spec import RedisSpec
from serving.runtime.caching.redis_tier import RedisTier
from tests.runtime.house import until
from tests.runtime.redis_tiers import (
    EPOCH_US,
    KEY,
    OTHER,
    PATIENT_US,
    TTL_US,
    answer,
    ask,
    away_after,
    number_of,
    running,
    share,
    tier_on,
)

pytestmark = [pytest.mark.live, pytest.mark.slow, pytest.mark.usefixtures("patient_tier")]

HASTY_US = 20_000
LOCALHOST = Path(__file__).with_name("localhost.pem")  # its own authority, and its key; until 2126
SECRET = "s3cret"  # noqa: S105  of a server that lives for one test


async def test_a_server_with_a_password_is_reached_with_it_only(caplog: pytest.LogCaptureFixture) -> None:
    with redis_server("--requirepass", SECRET) as server:
        async with tier_on(server, password=SECRET) as tier:
            assert await ask(tier) == 0
        wrong = RedisTier(RedisSpec(server.url, "guess"), TTL_US, ("a",), EPOCH_US)
        async with running(wrong):
            await until(lambda: wrong.counts.trips == 1)
            assert not wrong.usable
    assert "invalid username-password pair" in caplog.text
    assert SECRET not in caplog.text
    assert "guess" not in caplog.text


@pytest.mark.parametrize("scheme", ["redis", "rediss"])
async def test_a_server_is_reached_over_tcp_and_tls_with_its_database(scheme: str) -> None:
    with redis_server("--requirepass", SECRET) as server:
        async with door_to(server, LOCALHOST if scheme == "rediss" else None) as port:
            options = f"?ssl_ca_certs={LOCALHOST}" if scheme == "rediss" else ""
            url = f"{scheme}://:{SECRET}@localhost:{port}/3{options}"
            tier = RedisTier(RedisSpec(url, budget_us=PATIENT_US), TTL_US, ("a",), EPOCH_US)
            async with running(tier):
                await until(lambda: tier.usable)
                await share(tier, answer(5))
                assert number_of(await ask(tier)) == 5
            assert server.client(SECRET).info("keyspace").keys() == {"db3"}


@asynccontextmanager
async def door_to(server: RedisServer, certificate: Path | None) -> AsyncIterator[int]:
    """The port of a listener, with TLS where it has a certificate, behind which the server is."""
    context = None
    if certificate is not None:
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(certificate)
    pipes: list[asyncio.Task[None]] = []

    async def pipe(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with suppress(ConnectionError):
            while chunk := await reader.read(1 << 16):
                writer.write(chunk)
        writer.close()

    async def connect(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        inner_reader, inner_writer = await asyncio.open_unix_connection(server.socket)
        pipes.append(asyncio.create_task(pipe(inner_reader, writer)))
        await pipe(reader, inner_writer)

    listener = await asyncio.start_server(connect, "127.0.0.1", 0, ssl=context)
    yield listener.sockets[0].getsockname()[1]
    listener.close()
    await listener.wait_closed()
    await asyncio.gather(*pipes)


async def test_when_redis_is_killed_every_look_is_told_and_after_a_restart_it_is_asked_again(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    with redis_server() as server:
        async with tier_on(server) as tier:
            await share(tier, answer())
            server.kill()
            await asyncio.gather(*(ask(tier, bytes([n]) * 32) for n in range(50)))
            await until(lambda: not tier.usable)
            tier.put(KEY, answer())
            assert tier.counts.dropped == 1
            server.start()
            await until(lambda: tier.usable)
            assert await ask(tier) == 0
            await share(tier, answer(9))
            assert number_of(await ask(tier)) == 9
            assert tier.counts.trips == 1
    said = [record.getMessage() for record in caplog.records]
    assert len(said) == 3, said
    assert "is left alone, requests go on: " in said[1]
    assert " is back after " in said[2]


async def test_when_redis_answers_nothing_looks_end_within_their_budget_and_then_none_is_made() -> None:
    with redis_server() as server:
        async with tier_on(server, HASTY_US) as tier:
            server.pause()
            for _ in range(20):
                if tier.usable:
                    assert await ask(tier) is None
            assert not tier.usable
            server.resume()
            await until(lambda: tier.usable)
            await until(lambda: tier.counts.trips == 1)
            assert await ask(tier, OTHER) in (0, None)


async def test_a_redis_that_hangs_while_nobody_asks_is_noticed() -> None:
    with redis_server() as server:
        async with tier_on(server) as tier:
            server.pause()
            with away_after(0.3):
                await until(lambda: not tier.usable)
            server.resume()
            await until(lambda: tier.usable)


async def test_an_invalidation_while_redis_is_away_is_not_forgotten() -> None:
    with redis_server() as server:
        async with tier_on(server, HASTY_US) as first, tier_on(server) as second:
            await share(second, answer())
            server.pause()
            while first.usable:
                await ask(first)
            first.invalidate("a")
            assert second.name("a", KEY) != first.name("a", KEY)
            server.resume()
            await until(lambda: first.usable and second.usable)
            await until(lambda: second.name("a", KEY) == first.name("a", KEY))
            assert await ask(second) == 0


async def test_a_server_that_was_never_there_costs_nothing_and_may_come_late(tmp_path: Path) -> None:
    with redis_server() as server:
        server.kill()
        tier = RedisTier(RedisSpec(server.url, budget_us=PATIENT_US), TTL_US, ("a",), EPOCH_US)
        async with running(tier):
            await until(lambda: tier.counts.trips == 1)
            assert not tier.usable
            server.start()
            await until(lambda: tier.usable)
            assert await ask(tier) == 0


async def test_a_server_that_is_no_redis_is_left_alone() -> None:
    async def chatter(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n" * 9)
        await reader.read()
        writer.close()

    listener = await asyncio.start_server(chatter, "127.0.0.1", 0, family=socket.AF_INET)
    port = listener.sockets[0].getsockname()[1]
    tier = RedisTier(RedisSpec(f"redis://127.0.0.1:{port}"), TTL_US, ("a",), EPOCH_US)
    async with running(tier):
        await until(lambda: tier.counts.trips == 1)
        assert not tier.usable
    listener.close()
    await listener.wait_closed()
