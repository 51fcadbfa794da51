"""What tests of the edges share."""

from collections.abc import Iterator

import pytest

from router.grpc.servers import RPC_SERVERS
from tests.router.rpc_edge import GRPCIO, Chosen


@pytest.fixture(params=RPC_SERVERS)
def both_servers(request: pytest.FixtureRequest) -> Iterator[str]:
    """Run the test with each gRPC server; its edges are of that kind."""
    Chosen.server = request.param
    yield request.param
    Chosen.server = GRPCIO
