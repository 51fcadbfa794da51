"""Floors: how high a folder is, as its rooms stand on each other.

A room stands on the rooms of its folder from which it imports. To know a room, a reader must know all rooms
below it.
"""

import ast
from collections.abc import Iterable, Iterator, Mapping

from tests.architecture.source_rules import Source

FLOORS_MAX = 6


def floors(sources: Iterable[Source]) -> dict[str, int]:
    """Return the longest chain of imports between the rooms of each folder; a circle counts a room once."""
    modules = {_module(source.path): source for source in sources}
    below: dict[str, dict[str, set[str]]] = {}
    for module, source in modules.items():
        for other in _imported(source, modules):
            folder, room, under = _siblings(module, other)
            if folder and under != room:
                below.setdefault(folder, {}).setdefault(room, set()).add(under)
    return {folder.replace(".", "/"): _highest(on) for folder, on in below.items()}


def _module(path: str) -> str:
    return path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def _imported(source: Source, modules: Mapping[str, Source]) -> Iterator[str]:
    for node in ast.walk(source.tree):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names if each.name in modules)
        elif isinstance(node, ast.ImportFrom) and node.module:
            named = [f"{node.module}.{each.name}" for each in node.names]
            yield from (name if name in modules else node.module for name in named)


def _siblings(module: str, other: str) -> tuple[str, str, str]:
    """Return the folder in which the ways to both modules part ("": they do not), and the room of each."""
    here, there = module.split("."), other.split(".")
    same = next((at for at, (a, b) in enumerate(zip(here, there, strict=False)) if a != b), 0)
    return ".".join(here[:same]), here[same], there[same]


def _highest(on: Mapping[str, set[str]]) -> int:
    heights: dict[str, int] = {}

    def height(room: str) -> int:
        if room not in heights:
            heights[room] = 0  # what a circle finds of its first room
            heights[room] = 1 + max(map(height, on.get(room, ())), default=0)
        return heights[room]

    return max(map(height, on))
