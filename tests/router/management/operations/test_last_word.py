"""Whoever spoke last of a model has its way: clients and edits of the file, in any order."""

import asyncio
import tempfile
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.router.management.operations.worlds import World
from tests.seeds import drawn

NAMES = ("x", "y", "z")
File = dict[str, int]
"""The models of penstock.yaml and their SLOs in milliseconds."""

OWN_MS = 70
files = st.dictionaries(st.sampled_from(NAMES), st.sampled_from([10, 20]), min_size=1)
words = st.one_of(
    st.tuples(st.sampled_from(["load", "unload", "refused load"]), st.sampled_from(NAMES)),
    st.tuples(st.sampled_from(["edit", "refused edit"]), files),
    st.tuples(st.just("edit"), st.just({"x": 10})),
    st.tuples(st.just("refused edit"), st.just({"x": 10})),
)


class Oracle:
    """What is served, model by model: the file's word, or the last that a client spoke after it."""

    def __init__(self, file: File) -> None:
        self.file = file
        self.client: dict[str, str] = {}

    @property
    def served(self) -> File:
        found = {}
        for name in NAMES:
            word = self.client.get(name, "")
            if name in self.file and word != "unload":
                found[name] = self.file[name]
            elif name not in self.file and word == "load":
                found[name] = OWN_MS
        return found

    def edit(self, file: File) -> None:
        for name in NAMES:
            if file.get(name) != self.file.get(name):
                self.client.pop(name, None)
        self.file = file


def written(file: File) -> str:
    entries = "".join(f"  - {{path: models/{name}, slo_ms: {slo}}}\n" for name, slo in file.items())
    return f"repository: {{folders: [models]}}\nmodels:\n{entries}"


async def carry_out(world: World, word: tuple[str, object]) -> None:
    kind, what = word
    world.current.refusal = ("as a test says",) if kind.startswith("refused") else ()
    if isinstance(what, dict):
        world.path.write_text(written(what))
        await world.watch.look()
    elif kind == "unload":
        await world.repository.unload(str(what))
    else:
        await asyncio.gather(world.repository.load(str(what)), return_exceptions=True)


async def play(first: File, said: list[tuple[str, object]]) -> None:
    with tempfile.TemporaryDirectory() as home:
        world = World(Path(home), "models: [{path: models/digits}]\n")
        for name in NAMES:
            world.add_folder(name)
        world = World(Path(home), written(first))
        await world.watch.look()
        oracle = Oracle(first)
        for word in said:
            before = dict(world.served)
            await carry_out(world, word)
            kind, what = word
            if kind == "edit":
                assert isinstance(what, dict)
                oracle.edit(what)
            elif kind in ("load", "unload"):
                oracle.client[str(what)] = kind
            else:
                assert world.served == before
            assert {name: model.slo_us // 1000 for name, model in world.served.items()} == oracle.served


@pytest.mark.slow
@settings(deadline=None, max_examples=drawn(40))
@given(files, st.lists(words, max_size=7))
def test_whoever_spoke_last_of_a_model_has_its_way(first: File, said: list[tuple[str, object]]) -> None:
    asyncio.run(play(first, said))
