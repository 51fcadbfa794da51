"""`penstock node` as a process: it joins a gateway, and stays until a signal."""

import asyncio
import logging
import os
import platform
import signal
import ssl
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path

import uvloop

from router.commandline.key_env import CA_ENV
from router.commandline.node_options import NodeOptions
from router.logs.logs import logging_to_output, say
from router.settings.door.logs import LogSettings
from router.settings.machine.memory import usable_memory_bytes
from router.settings.machine.slices import usable_cores
from serving.profile.device import device_kind, gpu_kind
from serving.runtime.nodes.dialing import Gateway
from serving.runtime.nodes.greeting import NotAdmittedError
from serving.runtime.nodes.node import Node, NodeSettings
from serving.runtime.nodes.notes import Join
from serving.runtime.slicing.choice import visible_devices
from serving.runtime.slicing.inventory import take_inventory
from serving.runtime.slicing.opening import DeviceShares
from serving.values.slice_specs import SliceSpec
from serving.worker.process.confined import follow

logger = logging.getLogger(__name__)

_GB = 1 << 30


class NodeError(Exception):
    """The node cannot begin; the text says what is wrong, and what would be right."""


def serve_node(asked: NodeOptions) -> int:
    """Join the gateway, and run workers for it until a signal; returns the exit code."""
    if asked.follow:
        follow(os.getppid(), signal.SIGTERM)
    with logging_to_output(LogSettings()), asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        try:
            return runner.run(_serve(asked))
        except (NodeError, NotAdmittedError) as error:
            logger.error("%s", error)
            return 1


async def _serve(asked: NodeOptions) -> int:
    gateways = read_gateways(asked)
    settings = read_settings(asked)
    try:
        node = Node(gateways, settings, DeviceShares)
    except OSError as error:
        raise NodeError(f"--cache {settings.cache}: {error.strerror or error}") from None
    for line in about(settings, gateways):
        say(line)
    loop, stopping = asyncio.get_running_loop(), set[asyncio.Task[None]]()

    def end() -> None:
        if stopping:
            node.end_now()  # a second signal
            os._exit(1)
        stopping.add(asyncio.create_task(node.stop()))

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, end)
    await node.run()
    logger.info("the node has ended")
    return 0


def about(settings: NodeSettings, gateways: Sequence[Gateway]) -> list[str]:
    """Return what the node says of itself at its start: what an entry of `slices:` has to name."""
    join = settings.join
    gpus = [f"  {name}: {kind}" for name, kind in join.gpus.items()]
    return [
        f"node {settings.name} calls {' or '.join(map(str, gateways))}",
        f"  cpu: {join.kind}, cores 0 to {join.cores - 1}",
        *gpus,
        f"  model files in {settings.cache}",
    ]


def read_gateways(asked: NodeOptions) -> list[Gateway]:
    """Return where to call. Raises NodeError if that is not said in the right form."""
    context, found = _context(asked), []
    for each in dict.fromkeys(part.strip() for part in asked.join.split(",")):
        host, _, port = each.rpartition(":")
        if not host or not port.isdecimal() or not 0 < int(port) < 65536:
            raise NodeError(f"--join: expected HOST:PORT such as gateway.example:8005, got {each!r}")
        found.append(Gateway(host.strip("[]"), int(port), context))
    return found


def _context(asked: NodeOptions) -> ssl.SSLContext | None:
    ca = asked.ca or os.environ.get(CA_ENV, "")
    if not (asked.tls or ca or asked.cert):
        return None
    try:
        context = ssl.create_default_context(cafile=ca or None)
        if asked.cert is not None:
            context.load_cert_chain(asked.cert)
    except (OSError, ssl.SSLError) as error:
        raise NodeError(f"--ca, --cert: {error}") from None
    return context


def read_token(asked: NodeOptions) -> str:
    """Return the token. Raises NodeError if there is none."""
    token = os.environ.get(asked.token_env, "")
    if not token:
        raise NodeError(f"{asked.token_env} is not set; expected the token of the gateway's `nodes:` in it")
    return token


def read_settings(asked: NodeOptions) -> NodeSettings:
    """Return what the node is and has. Raises NodeError if there is no token."""
    token = read_token(asked)
    cores, inventory = usable_cores(), take_inventory()
    gpus = {each.name: gpu_kind(each.gpu.name) for each in visible_devices(inventory, os.environ)}
    join = Join(device_kind(SliceSpec("", ())), len(cores), usable_memory_bytes(), gpus, version("penstock"))
    home = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser() / "penstock"
    return NodeSettings(
        name=asked.name or platform.node().partition(".")[0],
        token=token,
        join=join,
        cores=cores,
        cache=asked.cache or home,
        cache_bytes=int(asked.cache_gb * _GB),
        leave_s=asked.leave_s,
    )
