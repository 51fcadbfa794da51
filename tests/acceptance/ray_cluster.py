"""A Ray cluster of several nodes on this machine, for a test. It says its address, and obeys standard input:
`kill NAME` kills the raylet of a node, `quit` ends all."""

import json
import sys
from typing import Any

FAST = {
    "health_check_initial_delay_ms": 500,
    "health_check_period_ms": 500,
    "health_check_timeout_ms": 500,
    "health_check_failure_threshold": 3,
}
"""By default Ray takes 12 s to notice that a node is lost."""


def main(names: list[str]) -> None:
    from ray.cluster_utils import Cluster

    head = {"num_cpus": 0, "node_name": "head", "include_dashboard": False, "_system_config": FAST}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    nodes: dict[str, Any] = {name: cluster.add_node(num_cpus=1, node_name=name) for name in names}
    cluster.wait_for_nodes()
    sys.stdout.write(json.dumps({"address": cluster.address}) + "\n")
    sys.stdout.flush()
    for line in sys.stdin:
        verb, _, name = line.strip().partition(" ")
        if verb == "kill":
            cluster.remove_node(nodes.pop(name), allow_graceful=False)
            sys.stdout.write("killed\n")
            sys.stdout.flush()
        else:
            break
    cluster.shutdown()


if __name__ == "__main__":
    main(sys.argv[1:])
