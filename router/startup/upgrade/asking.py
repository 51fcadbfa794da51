"""`penstock upgrade` and the gateway: a command of the same user asks, over an abstract Unix socket."""

import asyncio
import logging
import os
import socket
from pathlib import Path
from typing import Final

from router.startup.upgrade.channel import Channel
from router.startup.upgrade.going import BEGIN_S, START_S, Going, UpgradeError
from serving.worker.process.orphans import address, peer

logger = logging.getLogger(__name__)

WAIT_S: Final = START_S + BEGIN_S + 600.0
"""For an upgrade; streams may take as long as `limits.drain_s`."""


class UpgradeDoor:
    """A gateway's, at an address that follows from its settings file."""

    def __init__(self, owner: str, going: Going) -> None:
        self._address = address(owner, "")
        self._going = going
        self._listener: socket.socket | None = None
        self._asking: set[asyncio.Task[None]] = set()

    def open(self) -> None:
        """Listen, if no other gateway of the same settings does."""
        found = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        found.setblocking(False)
        try:
            found.bind(self._address)
            found.listen()
        except OSError as error:
            found.close()
            logger.warning("`penstock upgrade` does not reach this gateway: %s", error.strerror)
            return
        self._listener = found
        asyncio.get_running_loop().add_reader(found, self._accept, found)

    def close(self) -> None:
        """Give the address to the next gateway."""
        if self._listener is not None:
            asyncio.get_running_loop().remove_reader(self._listener)
            self._listener.close()
            self._listener = None

    def _accept(self, listener: socket.socket) -> None:
        try:
            caller, _ = listener.accept()
        except OSError:
            return
        if peer(caller)[1] not in (os.getuid(), 0):
            caller.close()
            return
        task = asyncio.create_task(self._serve(Channel(caller)))
        self._asking.add(task)
        task.add_done_callback(self._asking.discard)

    async def _serve(self, caller: Channel) -> None:
        try:
            asked, _ = await caller.receive()
            try:
                await self._going.start_next(str(asked.get("python", "")))
                await self._going.begun.wait()
            except UpgradeError as error:
                logger.warning("there is no upgrade: %s", error)
                await caller.send({"fault": str(error)})
                return
            process = self._going.process
            await caller.send({"fault": self._going.fault, "pid": 0 if process is None else process.pid})
        except OSError:
            logger.debug("the command that asked for an upgrade has ended", exc_info=True)
        finally:
            caller.close()

    async def answered(self) -> None:
        """Wait until the command has its answer."""
        if self._asking:
            await asyncio.wait(self._asking, timeout=1.0)


def ask(config: Path, python: str) -> int:
    """Ask the gateway of these settings for an upgrade, and wait. Return the next gateway's process.

    Raises UpgradeError.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
        try:
            sock.connect(address(os.path.abspath(config), ""))
        except OSError:
            user = "this user" if os.getuid() else "root"
            raise UpgradeError(f"no gateway of {user} serves {config} on this machine") from None
        return asyncio.run(_ask(sock, python))


async def _ask(sock: socket.socket, python: str) -> int:
    channel = Channel(sock)
    try:
        await channel.send({"python": python})
        async with asyncio.timeout(WAIT_S):
            answer, _ = await channel.receive()
    except (OSError, TimeoutError) as error:
        raise UpgradeError(f"the gateway has not answered: {error or type(error).__name__}") from None
    if answer.get("fault"):
        raise UpgradeError(str(answer["fault"]))
    return int(str(answer["pid"]))
