"""Edges here are those on libnghttp2."""

from collections.abc import Iterator

import pytest

from tests.router.rpc_edge import GRPCIO, NGH2, Chosen


@pytest.fixture(autouse=True)
def ngh2_server() -> Iterator[None]:
    Chosen.server = NGH2
    yield
    Chosen.server = GRPCIO
