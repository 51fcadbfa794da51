"""The composition root: settings become a running gateway, and signals end it in order.

Start: bind every port (a taken one is an error before anything else runs), then start the workers; the
servers answer from the first moment, ready turns true when every model has a replica.
End (SIGTERM, SIGINT): ready turns false; after a grace for load balancers to notice, the listeners close;
accepted requests are answered; workers end; exit 0. A second signal ends at once, with 1.
"""

import asyncio
import gc
import logging
import os
import signal
import socket
from collections.abc import Coroutine, Mapping, Sequence
from contextlib import suppress
from types import FrameType
from typing import Final

import uvloop

from router.commandline.key_env import CA_ENV, KEY_ENV
from router.http.example import example_curl
from router.logs.logs import logging_to_output, say
from router.logs.output import Output
from router.management.cells import joined
from router.management.operations.applied import settings_in_force
from router.observing.scaled_status import ScaleNews
from router.settings import Settings
from router.settings.builds import identified
from router.settings.keys import KeySpec
from router.settings.machine.descriptors import raise_limit
from router.startup import systemd
from router.startup.deployment import GatewayServer
from router.startup.upgrade.asking import UpgradeDoor
from router.startup.upgrade.coming import Coming, await_replicas, coming
from router.startup.upgrade.going import Going, let_go
from router.verbs.gpu_plan import gpu_lines
from router.verbs.plan import cache_lines, key_lines, rehearsal_lines, slice_lines
from serving.compiled import is_compiled

Held = Mapping[str, socket.socket]

logger = logging.getLogger(__name__)

LAST_LINE_S: Final = 0.2
"""What a second signal waits for whoever reads the log."""
GENERATIONS: Final = (700, 10, 50)
"""When Python's collector looks: at all that is not frozen, once 350,000 more objects were made than went. It
takes 0.2 us an object. 4,096 connections are some 100,000, and they go without it."""
PORTS: Final = "; try another port: --rest-port, --grpc-port, --metrics-port, --admin-port; 0 is any free one"
INTERPRETED = (
    "warning: decisions are interpreted, at twice the cost: `python -m serving.compiled` compiles them"
)


def serve_settings(filed: Settings, keys: Sequence[KeySpec] = (), reload: bool = False) -> int:
    """Serve what the file says, and what was applied to it, until a signal; returns the exit code. `keys`:
    those that its keys file lists. `reload`: models are loaded again when their files change."""
    held = systemd.held_sockets()
    with logging_to_output(filed.logging) as output:
        settings, said = settings_in_force(filed)
        if said:
            logger.info("%s", said)
        settings = identified(settings)
        if lacking := raise_limit(settings.limits.connection_count):
            logger.warning("%s", lacking)
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            try:
                code, going = runner.run(_serve(settings, filed, output, keys, (reload, held)))
            except Exception:  # the interpreter would print it to a reader that may have stalled
                logger.exception("penstock has ended by an error of its own")
                return 1
    if going is not None:
        going.leave()
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    return code


def freeze() -> None:
    """Keep what start-up made out of all later collections, as it lives as long as the process. This walks
    over nothing that was frozen before. From then on there are collections."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(*GENERATIONS)
    gc.enable()


async def _serve(
    settings: Settings, filed: Settings, output: Output, keys: Sequence[KeySpec], more: tuple[bool, Held]
) -> tuple[int, Going | None]:
    """Return the exit code, and how to leave this process to the next gateway if there is one. `more`:
    whether models are reloaded, and sockets that a service manager holds."""
    reload, held = more
    settings, cells = await joined(settings)
    deployment = GatewayServer(settings, filed, _say, keys, cells)
    _use_held(deployment, held)
    freeze()  # while there is no client that would wait for it
    stop, loop = asyncio.Event(), asyncio.get_running_loop()
    going = Going(deployment, settings.limits, stop, output.places)
    _hear_signals(going, output, loop)
    await deployment.prepare()
    follows = coming()
    if follows is not None:
        await follows.await_turn()
        deployment.fleet.workers.wait_to_start = follows.wait_to_start
    elif not held and not await _bind(deployment):
        await deployment.close()
        return 1, None
    door = UpgradeDoor(settings.workers.owner, going)
    async with asyncio.TaskGroup() as tasks:
        fleet = tasks.create_task(deployment.fleet.run())
        if not await _begin(deployment, settings, follows):
            stop.set()
        else:
            _announce(deployment, settings, keys)
            door.open()
            systemd.tell("READY=1")
        watches = [tasks.create_task(watch) for watch in _watches(deployment, stop, reload)]
        await stop.wait()
        for watch in watches:
            watch.cancel()
        door.close()
        unanswered = await (going.hand_over() if going.ready else _drain(deployment, settings))
        going.end()
        deployment.fleet.stop()
        await fleet
        await deployment.close()
        await door.answered()
        if follows is not None:
            await follows.close()
    outcome = going.outcome if going.ready else "penstock has ended"
    logger.info("%s%s", outcome, f"; {unanswered} requests were left unanswered" if unanswered else "")
    if going.ready:
        return 0, going
    return 1 if deployment.edges.why_dead or not deployment.rest_url else 0, None


def _watches(
    deployment: GatewayServer, stop: asyncio.Event, reload: bool
) -> list[Coroutine[None, None, None]]:
    watches = [
        _announce_changes(deployment),
        deployment.operations.run(),
        deployment.rollouts.run(),
        deployment.shifts.run(),
        _watch_edges(deployment, stop),
    ]
    if deployment.key_watch is not None:
        watches.append(deployment.key_watch.run())
    if deployment.tls is not None:
        watches.append(deployment.tls.watch.run())
    if reload:
        watches.append(deployment.operations.reloads.run())
    return watches


def _use_held(deployment: GatewayServer, held: Held) -> None:
    """Let edges listen on the sockets that a service manager holds."""
    edges = deployment.edges.sockets
    for name, sock in held.items():
        if name in edges:
            edges[name].inherited = sock
        else:
            logger.warning("no edge is named %s (FileDescriptorName=), expected %s", name, ", ".join(edges))
            sock.close()


async def _bind(deployment: GatewayServer) -> bool:
    """Open all ports, and return whether that succeeded; the log says what is wrong."""
    try:
        await deployment.bind()
    except OSError as error:
        logger.error("penstock cannot listen: %s%s", error, PORTS if "in use" in str(error) else "")
        return False
    return True


async def _begin(deployment: GatewayServer, settings: Settings, follows: Coming | None) -> bool:
    """Open the ports that are not open yet, and return whether all are. Clients wait meanwhile: the gateway
    first takes over the workers of the one before."""
    if deployment.rest_url:
        return True
    if follows is None:
        await await_replicas(deployment)
        return await _bind(deployment)
    await follows.await_replicas(deployment)
    server, admin = settings.server, settings.admin
    wanted = {
        "rest": (server.host, server.rest_port),
        "grpc": (server.host, server.grpc_port),
        "metrics": (server.host, server.metrics_port),
        "admin": (admin.host, admin.port),
    }
    follows.lend_listeners(deployment, wanted)
    if not await _bind(deployment):
        await let_go(deployment, [*deployment.fleet.specs])
        return False
    await follows.begin(deployment)
    return True


async def _watch_edges(deployment: GatewayServer, stop: asyncio.Event) -> None:
    """End the gateway where an edge has ended and cannot be started again."""
    await deployment.edges.run()
    deployment.gateway.stop_ready()
    stop.set()


def _hear_signals(going: Going, output: Output, loop: asyncio.AbstractEventLoop) -> None:
    """Hear signals until this process ends or is the next gateway's waiter. The loop's own handlers would
    lose one that comes in its last round, and `penstock upgrade` has said by then which process serves."""

    def hear(number: int, _frame: FrameType | None) -> None:
        if going.ready:
            going.pass_on(number)
        else:
            with suppress(RuntimeError):  # the loop has ended, and so does this process
                loop.call_soon_threadsafe(_on_signal, number, going, output)

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, hear)


def _on_signal(number: int, going: Going, output: Output) -> None:
    if going.ready:
        going.pass_on(number)
    elif going.stop.is_set():
        logger.warning("penstock ends at once")
        going.deployment.fleet.workers.end_all("was ended: the gateway ends at once")
        output.flush(LAST_LINE_S)
        os._exit(1)  # an exception would unwind every task, with tracebacks
    else:
        going.stop.set()


async def _drain(deployment: GatewayServer, settings: Settings) -> int:
    """Answer what was accepted, within the limits; returns how many requests were not."""
    limits = settings.limits
    logger.info("penstock is draining: %d open requests", deployment.serving.open_requests)
    if deployment.cells is not None:
        await deployment.cells.leave()
    deployment.gateway.stop_ready()
    await asyncio.sleep(limits.drain_grace_s)
    return await deployment.drain(limits.drain_s)


async def _announce_changes(deployment: GatewayServer) -> None:
    """Say, as it happens, which models became ready and what befalls workers and replicas."""
    gateway = deployment.gateway
    since = dict.fromkeys(gateway.models, gateway.now_us())  # models that are not ready yet
    seen = set(since)
    said: dict[str, str] = {}
    settled = False
    scale_news = ScaleNews()
    changed = asyncio.Event()
    deployment.fleet.on_change = changed.set
    while True:
        there = set(gateway.models)
        since |= dict.fromkeys(there - seen, gateway.now_us())
        for name in sorted(seen - there):
            since.pop(name, None)
            logger.info("%s is not served any more", name)
        seen = there
        scale_news.look(deployment.fleet.control.scaling.standings())
        for name in sorted(name for name in since if gateway.model_ready(name)):
            logger.info("%s is ready (%.1f s)", name, (gateway.now_us() - since.pop(name)) / 1e6)
        troubles = deployment.troubles()
        for where, trouble in troubles.items():
            if said.get(where) != trouble:
                logger.warning("%s", trouble)
        # A replica that fails again and again is said once; what is over is forgotten: it would be news.
        said = troubles if deployment.settled else said | troubles
        if deployment.settled and not settled:
            settled = True
            freeze()
            missing = sorted(name for name in since if not gateway.model_ready(name))
            without = f", without {', '.join(missing)}" if missing else ""
            logger.info("penstock is ready%s; Ctrl-C ends it", without)
        await changed.wait()
        changed.clear()


def _announce(deployment: GatewayServer, settings: Settings, keys: Sequence[KeySpec]) -> None:
    recording = [f"  arrivals recorded in {settings.recording.folder}"] if settings.recording else []
    told = (
        *rehearsal_lines(settings),
        *slice_lines(settings),
        *gpu_lines(settings),
        *cache_lines(settings),
        *key_lines(settings, keys),
    )
    defaults = [f"  {line}" for line in told]
    options = "" if settings.auth is None else f' -H "x-api-key: ${KEY_ENV}"'
    if settings.server.tls is not None:
        options += f" --cacert ${CA_ENV}"
    specs = (model.spec for model in deployment.serving.models.values())
    for line in (
        f"penstock serves {', '.join(deployment.gateway.models) or 'no model of its own yet'}",
        f"  REST     {deployment.rest_url}   (page at /, docs at /docs)",
        f"  gRPC     {deployment.grpc_address}",
        f"  admin    {deployment.admin_url}   (what changes something)",
        f"  metrics  {deployment.metrics_url}/metrics",
        *([f"  nodes    {deployment.nodes_address}"] if deployment.nodes_address else []),
        *([f"  cells    {deployment.cells_address}"] if deployment.cells_address else []),
        *recording,
        *defaults,
        "try it:",
        "  " + example_curl(deployment.rest_url, specs, options),
        *([] if is_compiled() else [INTERPRETED]),
        *(f"warning: profile {problem}" for problem in deployment.profile_problems),
        "starting workers, loading models, measuring what is not measured yet:",
    ):
        say(line)


def _say(line: str) -> None:
    logger.info("%s", line)
