"""`penstock node --ray`: agents on the nodes of a Ray cluster, placed and started again by Ray.

Each node of the cluster has an agent; or with --as-needed there are as many agents as the gateway needs, and
Ray's autoscaler brings their nodes. Ray sees no request, and no batch. It keeps one actor an agent, and the
actor keeps the agent's process. The actors are detached: they go on if this process is killed, and are found
again by its successor.
"""

import logging
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from router.commandline.node_options import NodeOptions
from router.logs.logs import logging_to_output, say
from router.settings.door.logs import LogSettings
from router.startup.needed_nodes import NeededNodes
from router.startup.node import NodeError, read_gateways, read_token
from serving.values.nodes import TOKEN_ENV

logger = logging.getLogger(__name__)

NAMESPACE: Final = "penstock"
LOOK_S: Final = 1.0
"""Between two looks at the cluster's nodes."""
REST_S: Final = 5.0
"""What an actor waits before Ray starts it again, if its agent has ended: it may not be admitted."""

Json = dict[str, Any]


class Agent:
    """An actor of Ray that keeps the agent's process; if that ends, so does the actor, and Ray starts it
    again."""

    def __init__(self, command: list[str], token: str) -> None:
        # The agent ends with the thread that starts it, and Ray runs this in the actor's main thread.
        given = {**os.environ, TOKEN_ENV: token}
        self._process = subprocess.Popen([sys.executable, "-P", *command], env=given)  # noqa: S603
        threading.Thread(target=self._follow, daemon=True).start()

    def pid(self) -> int:
        """Return the process id of the agent."""
        return self._process.pid

    def _follow(self) -> None:
        self._process.wait()
        time.sleep(REST_S)
        os._exit(1)


@dataclass(frozen=True, slots=True)
class Place:
    """Where an agent is to be: `name` is the node's, for slices; `strategy` is Ray's, for its actor."""

    name: str
    strategy: Any


class RayAgents:
    """The agents of one cluster, by what tells them apart: the id of their Ray node, or their name."""

    def __init__(self, asked: NodeOptions, token: str) -> None:
        self._asked = asked
        self._token = token
        self._agents: dict[str, Any] = {}
        self._calls: dict[str, Any] = {}  # one to each, which is answered once it runs
        self._names: dict[str, str] = {}
        self._running: set[str] = set()
        self._idle_since: dict[str, float] = {}

    def adopt(self, names: Iterable[str]) -> None:
        """Take over the agents with these names that a predecessor has left."""
        for name in names:
            with suppress(ValueError):  # it has none of that name
                self._agents[name] = ray.get_actor(actor_name(self._asked, name), NAMESPACE)

    def look(self, places: Mapping[str, Place], idle_s: float = 0.0) -> None:
        """Place an agent where there is none, and end those that have had no place for so long."""
        self._listen()
        now = time.monotonic()
        idle = self._agents.keys() - places.keys()
        self._idle_since = {key: self._idle_since.get(key, now) for key in idle}
        for key, since in self._idle_since.items():
            if now - since >= idle_s:
                logger.info("the agent on %s ends: it is not needed", self._names.get(key, key))
                self._end(key)
        for key in places.keys() - self._agents.keys():
            self._names[key] = places[key].name
            logger.info("Ray is asked for an agent on %s", places[key].name)
            self._agents[key] = self._place(key, places[key])

    def end(self) -> None:
        """End all agents."""
        for key in [*self._agents]:
            self._end(key)

    def _listen(self) -> None:
        """Forget the agents that are gone for good, so that others take their places."""
        for key, agent in [*self._agents.items()]:
            name = self._names.get(key, key)
            if key not in self._calls:
                self._calls[key] = agent.pid.remote()
            if not ray.wait([self._calls[key]], timeout=0)[0]:
                continue
            try:
                pid = ray.get(self._calls.pop(key))
            except ray.exceptions.RayError as error:
                logger.warning("the agent on %s is lost: %s", name, str(error).partition("\n")[0])
                self._forget(key)
                continue
            if key not in self._running:
                self._running.add(key)
                logger.info("the agent on %s runs as process %d", name, pid)

    def _end(self, key: str) -> None:
        with suppress(ray.exceptions.RayError):
            ray.kill(self._agents[key])
        self._forget(key)

    def _forget(self, key: str) -> None:
        del self._agents[key]
        self._calls.pop(key, None)
        self._running.discard(key)

    def _place(self, key: str, place: Place) -> Any:
        asked = self._asked
        options = {
            "name": actor_name(asked, key),
            "namespace": NAMESPACE,
            "get_if_exists": True,
            "lifetime": "detached",
            "max_restarts": -1,
            "num_cpus": asked.ray_cpus,
            "num_gpus": asked.ray_gpus,
            "scheduling_strategy": place.strategy,
        }
        return ray.remote(Agent).options(**options).remote(agent_command(asked, place.name), self._token)


def each_node() -> dict[str, Place]:
    """Return a place on each node of the cluster, by Ray's id of it."""
    return {
        each["NodeID"]: Place(name_of(each), NodeAffinitySchedulingStrategy(each["NodeID"], soft=False))
        for each in ray.nodes()
        if each["Alive"]
    }


def some_nodes(names: Iterable[str], pool: str | None) -> dict[str, Place]:
    """Return a place for each of these names that is of the pool: it or NAME-1, NAME-2; of all without one.
    Ray chooses the nodes; actors that none has room for are what its autoscaler follows."""
    found = re.compile(r".*" if pool is None else rf"{re.escape(pool)}(-\d+)?", re.DOTALL)
    return {name: Place(name, "SPREAD") for name in sorted(names) if found.fullmatch(name)}


def name_of(node: Json) -> str:
    """Return the name that slices use: that of `ray start --node-name`, else the machine's."""
    stated = str(node.get("NodeName") or "")
    return stated if stated not in ("", node["NodeManagerAddress"]) else str(node["NodeManagerHostname"])


def actor_name(asked: NodeOptions, key: str) -> str:
    """Return the name of an agent's actor: a cluster may have agents of several gateways."""
    return f"{asked.join} {key}"


def agent_command(asked: NodeOptions, name: str) -> list[str]:
    """Return the arguments of Python for one agent."""
    command = ["-m", "router.cli", "node", "--join", asked.join, "--name", name, "--follow"]
    command += ["--cache-gb", str(asked.cache_gb), "--leave-s", str(asked.leave_s)]
    command += ["--tls"] if asked.tls else []
    for option, value in (("--ca", asked.ca), ("--cert", asked.cert), ("--cache", asked.cache)):
        command += [option, str(value)] if value else []
    return command


def serve_on_ray(asked: NodeOptions) -> int:
    """Keep agents on the cluster until a signal; returns the exit code."""
    with logging_to_output(LogSettings()):
        try:
            token = read_token(asked)
            needed = read_needed(asked, token)
            ray.init(address=asked.ray, namespace=NAMESPACE, log_to_driver=False)
        except NodeError as error:
            logger.error("%s", error)
            return 1
        except (ConnectionError, ValueError) as error:
            logger.error("--ray %s: %s", asked.ray, error)
            return 1
        ended, by = threading.Event(), list[int]()

        def end(number: int, _: object) -> None:
            by.append(number)
            ended.set()

        for each in (signal.SIGTERM, signal.SIGINT):
            signal.signal(each, end)
        where = "each node" if needed is None else "as many nodes as it needs"
        say(f"agents call {asked.join} from {where} of the Ray cluster at {asked.ray}")
        agents = RayAgents(asked, token)
        if needed is not None:
            agents.adopt(some_nodes(left_names(asked), asked.name))
            needed.begin()
        while not ended.wait(LOOK_S):
            if needed is not None and needed.refused:
                logger.error("%s", needed.refused)
                return 1
            try:
                _look(agents, asked, needed)
            except ray.exceptions.RayError as error:
                logger.warning("Ray does not answer: %s", error)
            except ConnectionError as error:  # of Ray's client, which does not call again
                logger.error("--ray %s: %s; the agents go on", asked.ray, error)
                return 1
        stay = asked.stay and by[0] == signal.SIGTERM
        if needed is not None:
            needed.end()
        if not stay:
            agents.end()
        ray.shutdown()
        logger.info("the agents %s", "go on" if stay else "have ended")
        return 0


def _look(agents: RayAgents, asked: NodeOptions, needed: NeededNodes | None) -> None:
    if needed is None:
        agents.look(each_node())
    elif needed.names is not None:
        agents.look(some_nodes(needed.names, asked.name), asked.idle_s)


def left_names(asked: NodeOptions) -> list[str]:
    """Return the names of agents of this gateway that the cluster has already."""
    known: list[str] = ray.util.list_named_actors()
    prefix = actor_name(asked, "")
    return [name.removeprefix(prefix) for name in known if name.startswith(prefix)]


def read_needed(asked: NodeOptions, token: str) -> NeededNodes | None:
    """Return what says which nodes are needed, None for all. Raises NodeError for options that cannot be."""
    if not asked.as_needed:
        return None
    if not asked.ray_cpus and not asked.ray_gpus:
        expected = "--ray-cpus or --ray-gpus beside it, as much as a node has"
        raise NodeError(f"--as-needed: Ray brings a node for what an agent takes; expected {expected}")
    return NeededNodes(read_gateways(asked), f"ray {asked.name or ''}".strip(), token)
