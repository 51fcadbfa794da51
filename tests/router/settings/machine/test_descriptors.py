"""In a process of its own: a lowered hard limit cannot be raised again."""

import subprocess
import sys

import pytest

CODE = """
import resource, sys
from router.settings.machine.descriptors import raise_limit
soft, hard, connections = map(int, sys.argv[1:])
resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
print(raise_limit(connections))
print(*resource.getrlimit(resource.RLIMIT_NOFILE))
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("soft", "hard", "connections", "raised"),
    [(256, 4096, 512, 2048), (3000, 4096, 512, 3000), (256, 2048, 512, 2048), (256, 1000, 512, 1000)],
)
def test_the_soft_limit_follows_the_connections(soft: int, hard: int, connections: int, raised: int) -> None:
    command = [sys.executable, "-c", CODE, str(soft), str(hard), str(connections)]
    said, limits = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    assert limits == f"{raised} {hard}"
    lacking = hard < 2 * connections + 1024
    assert said == (
        "this process may open 1000 files, and 512 connections over REST and over gRPC "
        "(limits.connection_count) need 2048: "
        "raise the limit (ulimit -n), or lower connection_count"
        if lacking
        else ""
    )
