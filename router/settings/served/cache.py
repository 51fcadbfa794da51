"""`cache:` as a CacheSpec: whether and how answers are kept, and of which models."""

from router.settings.served.redis import read_redis
from router.settings.values.document import Document
from router.settings.values.findings import Findings
from router.settings.values.problems import Loc, one_of, shown
from router.settings.values.schema import CacheSection, ServedSection
from serving.cache.spec import CacheSpec
from serving.values.specs import ModelSpec

_LOC = ("cache",)


def asks_for_cache(document: Document) -> bool:
    """Return whether the file asks for the cache: a key `cache` with anything but false, nothing included."""
    top = document.value
    return isinstance(top, dict) and "cache" in top and top["cache"] is not False


def read_cache(findings: Findings) -> CacheSpec | None:
    """Return the section; None where there is none and no model says `cache: true`, and for `cache:
    false`."""
    value = findings.document.at(_LOC)
    if value is False or not (asks_for_cache(findings.document) or _a_model_asks(findings.document)):
        return None
    section = findings.parse(CacheSection, _LOC) if isinstance(value, dict) else None
    spec = CacheSpec()
    if section is None:
        return spec
    return CacheSpec(
        spec.memory_bytes if section.memory_mb is None else round(section.memory_mb * (1 << 20)),
        spec.ttl_us if section.ttl_s is None else round(section.ttl_s * 1_000_000),
        section.shared,
        read_redis(findings),
    )


def _a_model_asks(document: Document) -> bool:
    entries = document.at(("models",))
    models = entries if isinstance(entries, list) else []
    return any(isinstance(entry, dict) and entry.get("cache") is True for entry in models)


def read_model_cache(findings: Findings, loc: Loc, section: ServedSection, spec: ModelSpec) -> bool:
    """Return whether a model's answers are kept: as it says, else where the file asks for the cache and any
    of its served variants is deterministic.

    `cache: true` asks for something that cannot be where none is, or where the file says `cache: false`.
    """
    served = section.variants or [variant.name for variant in spec.variants]
    repeatable = any(variant.deterministic for variant in spec.variants if variant.name in served)
    if section.cache and spec.sequence is not None:
        what = f"each answer of {shown(spec.name)} follows from its sequence, and is of no use to others"
        findings.add((*loc, "cache"), f"{what}; expected no cache: true here")
    elif section.cache and not repeatable:
        what = f"model.yaml does not say that {shown(spec.name)} answers equal questions equally"
        expected = f"deterministic: true there ({one_of(served)}), or no cache: true here"
        findings.add((*loc, "cache"), f"{what}; expected {expected}")
    elif section.cache and findings.document.at(_LOC) is False:
        findings.add((*loc, "cache"), "the file says `cache: false`; expected `cache:` there, or false here")
    if section.cache is None:
        return repeatable and asks_for_cache(findings.document)
    return section.cache
