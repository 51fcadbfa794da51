"""What an engine hears at a gateway's door: which nodes are needed, by a door with real connections."""

from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from router.startup.needed_nodes import NeededNodes
from serving.runtime.nodes.dialing import Gateway
from tests.runtime.nodes.estate import HOST, TOKEN, Estate, estate, until
from tests.runtime.recorder import Recorder

pytestmark = pytest.mark.live


@pytest.fixture
async def place(tmp_path: Path) -> AsyncIterator[Estate]:
    async with estate(Recorder(), tmp_path) as made:
        yield made


@contextmanager
def listening(gateways: list[Gateway], token: str = TOKEN) -> Iterator[NeededNodes]:
    needed = NeededNodes(gateways, "ray", token)
    needed.begin()
    try:
        yield needed
    finally:
        needed.end()


async def test_an_engine_hears_what_is_needed_and_each_change(place: Estate) -> None:
    with listening([place.gateway]) as needed:
        await until(lambda: needed.names == frozenset())
        place.door.needed = lambda: {"a", "b"}
        await until(lambda: needed.names == frozenset({"a", "b"}))


async def test_the_last_word_holds_while_the_gateway_is_away(place: Estate) -> None:
    place.door.needed = lambda: {"a"}
    with listening([place.gateway]) as needed:
        await until(lambda: needed.names == frozenset({"a"}))
        place.door.needed = tuple
        await place.door.close()
        assert (needed.names, needed.refused) == (frozenset({"a"}), "")


async def test_an_engine_with_another_token_hears_why(place: Estate) -> None:
    with listening([place.gateway], "another secret") as needed:
        await until(lambda: bool(needed.refused))
        assert needed.names is None
        assert needed.refused == f"{place.gateway}: the gateway has another token"


async def test_of_several_gateways_the_first_that_answers_counts(place: Estate) -> None:
    place.door.needed = lambda: {"a"}
    with listening([Gateway(HOST, 1), place.gateway]) as needed:
        await until(lambda: needed.names == frozenset({"a"}))
