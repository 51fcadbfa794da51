"""Renewed files come into force by themselves, or are refused once and the certificate before stays."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from pathlib import Path
from typing import Any  # what watchfiles takes

import pytest
from watchfiles import awatch

from router.security.tls import certificates as module
from router.security.tls.certificates import Certificates, CertificateWatch
from router.settings import file_following
from tests.certificates import Authority

pytestmark = pytest.mark.live


class Followed:
    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(module, "SETTLE_S", 0.05)
        self.mine = Authority(folder)
        self.mine.sign("server")
        self.certificates = Certificates(self.mine.tls())
        self.said: list[str] = []
        self.watch = CertificateWatch(self.certificates, self.said.append)

    def put(self, other: Authority, *suffixes: str) -> None:
        for suffix in suffixes:
            path = self.mine.folder / f"server.{suffix}"
            fresh = path.with_suffix(".new")
            fresh.write_bytes((other.folder / f"server.{suffix}").read_bytes())
            fresh.replace(path)


async def until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110  # files change without an event
            await asyncio.sleep(0.01)


async def test_an_edit_before_the_watch_began_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "server.key"
    path.write_text("as it was read")

    def late(*folders: Path, **options: Any) -> AsyncGenerator[object, None]:
        path.write_text("an edit")
        return awatch(*folders, **options)

    monkeypatch.setattr("router.settings.file_following.awatch", late)
    async with asyncio.timeout(60):
        async for _ in file_following.changes(path):
            break


async def test_a_renewed_pair_is_taken_and_a_broken_one_is_refused_once(
    signed: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    followed = Followed(tmp_path, monkeypatch)
    certificates = followed.certificates
    before = certificates.context(("http/1.1",))
    watching = asyncio.create_task(followed.watch.run())
    try:
        followed.put(signed, "pem", "key")
        await until(lambda: certificates.renewals == 1)
        after = certificates.context(("http/1.1",))
        assert after is not before
        (tmp_path / "server.key").write_text("broken")
        await until(lambda: certificates.fault)
        await followed.watch.look()
        assert (certificates.refused, certificates.renewals) == (1, 1)
        assert certificates.context(("http/1.1",)) is after
        assert len(caplog.records) == 1
        followed.put(signed, "key")
        await until(lambda: not certificates.fault)
        assert certificates.context(("http/1.1",)) is after
        assert len(followed.said) == 1
    finally:
        watching.cancel()
