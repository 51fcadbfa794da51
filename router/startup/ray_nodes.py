"""`penstock node --ray`: an agent on each node of a Ray cluster, placed and started again by Ray.

Ray sees no request, and no batch. It keeps one actor on each of its nodes, and the actor keeps the agent's
process. The actors are detached: they go on if this process is killed, and are found again by its successor.
"""

import logging
import os
import signal
import subprocess
import sys
import threading
import time
from typing import Any, Final

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from router.commandline.node_options import NodeOptions
from router.logs.logs import logging_to_output, say
from router.settings.door.logs import LogSettings
from router.startup.node import NodeError, read_token
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


class RayNodes:
    """The agents of one cluster, by Ray's id of their node."""

    def __init__(self, asked: NodeOptions, token: str) -> None:
        self._asked = asked
        self._token = token
        self._agents: dict[str, Any] = {}

    def look(self) -> None:
        """Place an agent on each node that has none, and forget those of nodes that are gone."""
        alive = {each["NodeID"]: each for each in ray.nodes() if each["Alive"]}
        for gone in self._agents.keys() - alive.keys():
            del self._agents[gone]
        for node_id in alive.keys() - self._agents.keys():
            name = name_of(alive[node_id])
            self._agents[node_id] = self._place(node_id, name)
            logger.info("an agent is placed on %s", name)

    def end(self) -> None:
        """End all agents."""
        for agent in self._agents.values():
            ray.kill(agent)
        self._agents.clear()

    def _place(self, node_id: str, name: str) -> Any:
        asked = self._asked
        options = {
            "name": f"agent-{node_id}",
            "namespace": NAMESPACE,
            "get_if_exists": True,
            "lifetime": "detached",
            "max_restarts": -1,
            "num_cpus": asked.ray_cpus,
            "num_gpus": asked.ray_gpus,
            "scheduling_strategy": NodeAffinitySchedulingStrategy(node_id, soft=False),
        }
        return ray.remote(Agent).options(**options).remote(agent_command(asked, name), self._token)


def name_of(node: Json) -> str:
    """Return the name that slices use: that of `ray start --node-name`, else the machine's."""
    stated = str(node.get("NodeName") or "")
    return stated if stated not in ("", node["NodeManagerAddress"]) else str(node["NodeManagerHostname"])


def agent_command(asked: NodeOptions, name: str) -> list[str]:
    """Return the arguments of Python for one agent."""
    command = ["-m", "router.cli", "node", "--join", asked.join, "--name", name, "--follow"]
    command += ["--cache-gb", str(asked.cache_gb), "--leave-s", str(asked.leave_s)]
    command += ["--tls"] if asked.tls else []
    for option, value in (("--ca", asked.ca), ("--cert", asked.cert), ("--cache", asked.cache)):
        command += [option, str(value)] if value else []
    return command


def serve_on_ray(asked: NodeOptions) -> int:
    """Keep an agent on each node of the cluster until a signal; returns the exit code."""
    with logging_to_output(LogSettings()):
        try:
            token = read_token(asked)
            ray.init(address=asked.ray, namespace=NAMESPACE, log_to_driver=False)
        except NodeError as error:
            logger.error("%s", error)
            return 1
        except (ConnectionError, ValueError) as error:
            logger.error("--ray %s: %s", asked.ray, error)
            return 1
        ended = threading.Event()
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: ended.set())
        say(f"agents call {asked.join} from each node of the Ray cluster at {asked.ray}")
        nodes = RayNodes(asked, token)
        while True:
            try:
                nodes.look()
            except ray.exceptions.RayError as error:
                logger.warning("Ray does not answer: %s", error)
            if ended.wait(LOOK_S):
                break
        nodes.end()
        ray.shutdown()
        logger.info("the agents have ended")
        return 0
