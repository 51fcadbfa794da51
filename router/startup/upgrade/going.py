"""A gateway that makes way for the next one.

The next one starts beside it, and says when it could serve. Then this one stops listening, gives away the
connections that wait for a request, answers what it has accepted, and lets its workers go. The next one takes
them over and begins. Until it has begun, a fault leaves a gateway that serves: this one goes on, or begins
again in the same process.
"""

import asyncio
import logging
import os
import socket
import subprocess
import sys
from collections.abc import Collection
from typing import TYPE_CHECKING, Final

import orjson

from router.startup.upgrade.channel import CONNECTIONS, DESCRIPTORS_MAX, FREE, HELD, LISTENER, Channel
from router.startup.upgrade.place import Place
from serving.runtime.job import LEAST_URGENT
from serving.runtime.workers.link import LET_GO
from serving.values.specs import Limits

if TYPE_CHECKING:  # the command that asks for an upgrade needs none of it
    from router.startup.deployment import GatewayServer

logger = logging.getLogger(__name__)

CHANNEL_ENV: Final = "PENSTOCK_UPGRADE_FD"
"""The variable by which the next gateway finds the channel."""
START_S: Final = 120.0
"""For the next gateway to be ready to take over; it reads its settings and loads nothing."""
BEGIN_S: Final = 60.0
"""For it to serve, once it has the workers."""
LOOK_S: Final = 0.002
"""Between two looks whether requests are answered and slices are free."""
CALM_S: Final = 2.0
"""At most, for requests other than streams to be answered; the longest SLO, where that is less. Meanwhile
new requests wait."""


class UpgradeError(Exception):
    """The next gateway cannot take over; the text says why."""


class Going:
    """What `penstock upgrade` asks of a gateway."""

    def __init__(
        self, deployment: "GatewayServer", limits: Limits, stop: asyncio.Event, prints_to: tuple[int, int]
    ) -> None:
        """`stop`: to be set once the next gateway is ready. `prints_to`: descriptors for what that prints."""
        self._prints_to = prints_to
        self.deployment = deployment
        self._limits = limits
        self.stop = stop
        self._channel: Channel | None = None
        self.process: subprocess.Popen[bytes] | None = None
        self._place = Place()
        self._listeners: dict[str, socket.socket] = {}
        self.begun = asyncio.Event()
        self.fault = ""

    @property
    def ready(self) -> bool:
        """Whether the next gateway is ready to take over."""
        return self._channel is not None

    @property
    def outcome(self) -> str:
        """Which gateway serves after `hand_over`."""
        process = self.process
        if self.fault or process is None:
            return f"{self.fault}; this process begins again"
        return f"penstock has made way for the next gateway, process {process.pid}"

    async def start_next(self, python: str) -> None:
        """Start the next gateway by this one's command, in that Python ("": this one's), and wait until it is
        ready. Raises UpgradeError."""
        if self.process is not None and self.process.poll() is None:
            raise UpgradeError("an upgrade is under way already")
        if self.stop.is_set():
            raise UpgradeError("the gateway is about to end")
        channel = self._spawn(python or sys.executable)
        try:
            async with asyncio.timeout(START_S):
                await channel.receive()
        except (TimeoutError, OSError) as error:
            channel.close()
            raise UpgradeError(await self._why_not(error)) from None
        self._channel = channel
        self.stop.set()

    def _spawn(self, python: str) -> Channel:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with theirs:
            environment = {**os.environ, CHANNEL_ENV: str(theirs.fileno())}
            kept = [theirs.fileno(), *self._place.lend(environment)]
            command = [python, *sys.orig_argv[1:]]
            try:
                self.process = subprocess.Popen(  # noqa: S603  # this user asks for it
                    command,
                    env=environment,
                    pass_fds=kept,
                    stdout=self._prints_to[0],
                    stderr=self._prints_to[1],
                )
            except OSError as error:
                ours.close()
                raise UpgradeError(f"{python} cannot be started: {error.strerror}") from None
        return Channel(ours)

    async def _why_not(self, error: Exception) -> str:
        process = self.process
        if process is None:
            return str(error)
        if isinstance(error, TimeoutError):
            process.kill()
            await asyncio.to_thread(process.wait)
            return f"the next gateway was not ready within {START_S:g} s"
        code = await asyncio.to_thread(process.wait)
        return f"the next gateway has ended with {code}; its output says why"

    async def hand_over(self) -> int:
        """Hand all over. Return how many requests have no answer; `outcome` says what follows."""
        deployment, channel = self.deployment, self._channel
        if channel is None:
            raise UpgradeError("no other gateway is ready")
        try:
            await self._give_listeners(channel)
            rpc = asyncio.create_task(deployment.rpc.stop(self._limits.drain_s))
            await self._become_calm(channel)
            await self._free_slices(channel)
            await rpc
            async with asyncio.timeout(BEGIN_S):
                await channel.receive()
            if self.process is not None:
                self._place.name_next(self.process.pid)
            os.nice(LEAST_URGENT)  # the next gateway goes first, as its clients have waited
        except (TimeoutError, OSError) as error:
            self.fault = f"the next gateway did not begin: {error or type(error).__name__}"
        return deployment.serving.open_requests

    async def _give_listeners(self, channel: Channel) -> None:
        deployment = self.deployment
        slices = [*deployment.fleet.specs]
        await channel.send({"what": HELD, "slices": slices})
        for name, tcp in deployment.edges.sockets.items():
            found = tcp.duplicate()
            if found is not None:
                self._listeners[name] = found
                await channel.send({"what": LISTENER, "edge": name}, [found.fileno()])
        deployment.stop_listening()

    async def _become_calm(self, channel: Channel) -> None:
        """Give connections away as they come to rest, until all requests are answered that will be soon."""
        deployment, loop = self.deployment, asyncio.get_running_loop()
        longest_us = max((model.slo_us for model in deployment.gateway.models.values()), default=0)
        end_s = loop.time() + min(longest_us / 1e6, CALM_S)
        while True:
            await self._give_connections(channel)
            calm = not (deployment.serving.open_requests or deployment.rest.connection_count)
            if calm or loop.time() >= end_s:
                return
            await asyncio.sleep(LOOK_S)

    async def _give_connections(self, channel: Channel) -> None:
        given = self.deployment.rest.give_away()
        try:
            for first in range(0, len(given), DESCRIPTORS_MAX):
                some = [each.fileno() for each in given[first : first + DESCRIPTORS_MAX]]
                await channel.send({"what": CONNECTIONS}, some)
        finally:
            for each in given:
                each.close()

    async def _free_slices(self, channel: Channel) -> None:
        """Let go the workers as they are done; those that stream have as long as a drain gives them."""
        deployment, loop = self.deployment, asyncio.get_running_loop()
        end_s = loop.time() + self._limits.drain_s
        held = {*deployment.fleet.specs}
        await deployment.nodes.close()
        if deployment.cells is not None:
            await deployment.cells.close(stays=True)
        while held:
            late = loop.time() >= end_s
            done = {name for name in held if late or not deployment.gateway.computing(name)}
            if done:
                await let_go(deployment, done)
                await self._say_free(channel, done)
                held -= done
            await self._give_connections(channel)
            if held:
                await asyncio.sleep(LOOK_S)
        await self._say_free(channel, held)

    @staticmethod
    async def _say_free(channel: Channel, slices: Collection[str]) -> None:
        await channel.send({"what": FREE, "slices": [*slices]})

    def pass_on(self, number: int) -> None:
        """Pass a signal on to the next gateway: it is what its sender means."""
        if self.process is not None and not self.fault:
            self.process.send_signal(number)

    def leave(self) -> None:
        """Leave this process's place to the next gateway, or become a new gateway in this very process if
        the next one has failed: the workers wait."""
        process = self.process
        if process is not None and not self.fault:
            self._place.leave(process.pid)
            return
        if process is not None:
            process.kill()
        self._give_self()
        os.execv(sys.executable, [sys.executable, *sys.orig_argv[1:]])  # noqa: S606  # as it was started

    def _give_self(self) -> None:
        """Leave the listeners to this very process."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        for name, sock in self._listeners.items():
            note = orjson.dumps({"what": LISTENER, "edge": name})
            socket.send_fds(ours, [note], [sock.fileno()])
        ours.send(orjson.dumps({"what": FREE, "slices": []}))
        theirs.set_inheritable(True)
        os.environ[CHANNEL_ENV] = str(theirs.detach())

    def end(self) -> None:
        """Note that this gateway has done its part. A next one that is not ready yet ends."""
        if not self.ready and self.process is not None and self.process.poll() is None:
            self.process.kill()
        self.begun.set()


async def let_go(deployment: "GatewayServer", slices: Collection[str]) -> None:
    """Leave the workers of these slices to the next gateway. After the first call no worker starts here."""
    deployment.fleet.control.stop()
    for name in slices:
        deployment.gateway.slice_down(name, LET_GO)
    await deployment.fleet.workers.let_go(slices)
