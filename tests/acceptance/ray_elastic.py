"""A Ray cluster on this machine whose nodes Ray's autoscaler starts as actors ask for them, for a test.

Ray's own provider for laptops makes the nodes.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from loadtests.harness.gateway import free_ports

START_S = 60.0


@contextlib.contextmanager
def elastic_cluster(folder: Path, most: int) -> Iterator[str]:
    """Yield the address of a head without CPUs, which may get `most` nodes of one CPU."""
    port, client_port = free_ports(2)
    address = f"127.0.0.1:{port}"
    file = folder / "cluster.json"
    file.write_text(json.dumps(_configuration(address, most)))
    ray = Path(sys.executable).with_name("ray")
    command = [str(ray), "start", "--head", "--block", "--num-cpus", "0", "--include-dashboard", "false"]
    command += ["--node-ip-address", "127.0.0.1", "--port", str(port)]
    command += ["--ray-client-server-port", str(client_port), "--autoscaling-config", str(file)]
    given = {**os.environ, "RAY_FAKE_CLUSTER": "1", "AUTOSCALER_UPDATE_INTERVAL_S": "1"}
    given |= {"RAY_USAGE_STATS_ENABLED": "0"}
    with (folder / "head.log").open("w+") as log:
        head = subprocess.Popen(command, stdout=log, stderr=log, env=given, start_new_session=True)
        try:
            _await(head, folder / "head.log")
            yield address
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(head.pid, signal.SIGKILL)
            head.wait()


def await_nodes(address: str, count: int) -> None:
    """Until so many nodes of the cluster are alive, with its head."""
    subprocess.run([sys.executable, "-c", _COUNTING, address, str(count)], check=True, timeout=START_S)


_COUNTING = """
import sys, time, ray
ray.init(address=sys.argv[1], log_to_driver=False)
while sum(each["Alive"] for each in ray.nodes()) != int(sys.argv[2]):
    time.sleep(0.2)
"""


def _await(head: "subprocess.Popen[bytes]", log: Path) -> None:
    end = time.monotonic() + START_S
    while "will now block" not in log.read_text():
        if head.poll() is not None or time.monotonic() > end:
            raise AssertionError(log.read_text())
        time.sleep(0.2)


def _configuration(address: str, most: int) -> dict[str, object]:
    lists = ["cluster_synced_files", "rsync_exclude", "rsync_filter", "initialization_commands"]
    lists += ["setup_commands", "head_setup_commands", "worker_setup_commands"]
    lists += ["head_start_ray_commands", "worker_start_ray_commands"]
    maps = ["auth", "file_mounts", "docker", "head_node", "worker_nodes"]
    return {
        "cluster_name": "elastic",
        "max_workers": most,
        "upscaling_speed": 1.0,
        "idle_timeout_minutes": 0.1,
        "provider": {
            "type": "fake_multinode",
            "gcs_address": address,
            "use_node_id_as_ip": True,  # the nodes share one address
            "disable_node_updaters": True,
            "disable_launch_config_check": True,
        },
        "available_node_types": {
            "ray.head.default": {"resources": {"CPU": 0}, "node_config": {}, "max_workers": 0},
            "box": {"resources": {"CPU": 1}, "node_config": {}, "max_workers": most},
        },
        "head_node_type": "ray.head.default",
        "file_mounts_sync_continuously": False,
        **{each: [] for each in lists},
        **{each: {} for each in maps},
    }
