"""How values and names appear in the sentences for clients: short, quoted, with a suggestion."""

from collections.abc import Iterable, Sequence

from router.commandline.spelling import nearest

QUOTED_CHARS = 64
"""Of a client's string that a sentence repeats; also the longest name worth comparing with others."""


def quoted(value: object) -> str:
    """Return a value as its sender would write it in JSON, bounded in length."""
    if isinstance(value, str):
        return repr(value if len(value) <= QUOTED_CHARS else value[:QUOTED_CHARS] + "…")
    if isinstance(value, bool):
        return "true" if value else "false"
    if value is None:
        return "null"
    if isinstance(value, list):
        return "a list"
    if isinstance(value, dict):
        return "an object"
    return repr(value)


def listed(names: Iterable[str]) -> str:
    """Return the names in quotes, separated by commas."""
    return ", ".join(quoted(name) for name in names)


def written(shape: Sequence[int]) -> str:
    """Return a shape as Triton writes it: [1,64]."""
    return f"[{','.join(map(str, shape))}]"


def position(index: int, shape: Sequence[int]) -> str:
    """Return where the element with this row-major index lies in a tensor of that shape, as [row,...]."""
    places: list[int] = []
    for dim in reversed(shape):
        index, place = divmod(index, dim)
        places.append(place)
    return written(places[::-1])


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return "; did you mean '...'?" if a known name resembles the given name, else ""."""
    if len(name) > QUOTED_CHARS:
        return ""
    near = nearest(name, known)
    return f"; did you mean '{near}'?" if near else ""
