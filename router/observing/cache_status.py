"""What `GET /v2/status`, `penstock status` and `penstock explain` say of kept answers."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Final, TypedDict

if TYPE_CHECKING:  # a reader of JSON needs none of it
    from serving.cache.benefit import CacheBenefit
    from serving.runtime.calls.nondeterminism import Doubts
    from serving.values.specs import ServedModel

HEADING: Final = " kept answers, % of the requests that asked the cache:"


class CacheStatus(TypedDict):
    """Of a model's answers. `kept`: the cache is on for it; `pays`: all questions ask it, else one in 32.
    Since the start that many requests had a kept answer (`hits`), waited for an equal one (`joins`), or were
    computed (`misses`). `differs`: of variants that say that they are deterministic, how their answers to one
    sample differed; none of theirs is kept."""

    kept: bool
    pays: bool
    hits: int
    joins: int
    misses: int
    differs: dict[str, str]


def cache_status(
    model: "ServedModel", worth: "Mapping[str, CacheBenefit]", asked: Mapping[str, int], doubts: "Doubts"
) -> CacheStatus | None:
    """Return the cache status of a model, or None if there is nothing to say. `worth`: by model, for models
    with kept answers; `asked`: requests by what the cache did."""
    differs = doubts.of(model)
    kept = worth.get(model.name)
    if kept is None and not differs:
        return None
    return {
        "kept": kept is not None,
        "pays": kept is not None and kept.enabled,
        "hits": asked.get("hit", 0),
        "joins": asked.get("join", 0),
        "misses": asked.get("miss", 0),
        "differs": differs,
    }


def cache_lines(now: Mapping[str, CacheStatus], before: Mapping[str, CacheStatus]) -> list[str]:
    """Return a line for each model on what happened since `before`, and a line for each variant with
    differing answers."""
    width = max(map(len, now), default=0)
    lines = [
        f" {name:{width}}   {said}"
        for name, each in now.items()
        for said in cache_sentences(each, before.get(name))
    ]
    return [HEADING, *lines, ""] if lines else []


def cache_sentences(now: CacheStatus, before: CacheStatus | None = None) -> Iterator[str]:
    """Yield sentences on a model since `before`: how many requests had a kept answer, and which variants have
    none kept, and why."""
    if now["kept"]:
        hits, joins, misses = (
            now[key] - (before[key] if before else 0) for key in ("hits", "joins", "misses")
        )
        asked = hits + joins + misses
        told = "the cache is on, no request asked it"
        if asked:
            told = f"{_percent(hits, asked)} had a kept answer"
            told += f", {_percent(joins, asked)} waited for an equal one" if joins else ""
            told += f", of {asked:,}"
        yield told + ("" if now["pays"] else "; it does not pay here: only one question in 32 asks")
    for variant, how in now["differs"].items():
        yield f"none of {variant} is kept: it says that it is deterministic, but its {how}"


def _percent(part: int, whole: int) -> str:
    return f"{part * 1000 // whole / 10:.1f} %"
