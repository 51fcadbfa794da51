"""`cache:` as a CacheSpec: how answers are kept, and of which models."""

from router.settings.findings import Findings
from router.settings.problems import Loc, one_of, shown
from router.settings.redis import read_redis
from router.settings.schema import CacheSection, ServedSection
from serving.specs import CacheSpec, ModelSpec

_LOC = ("cache",)


def read_cache(findings: Findings) -> CacheSpec | None:
    """The section; the defaults where there is none, None for `cache: false`."""
    value = findings.document.at(_LOC)
    if value is False:
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


def read_model_cache(findings: Findings, loc: Loc, section: ServedSection, spec: ModelSpec) -> bool:
    """Whether a model's answers are kept: as it says, else where any of its served variants is deterministic.

    `cache: true` asks for something that cannot be where none is.
    """
    served = section.variants or [variant.name for variant in spec.variants]
    repeatable = any(variant.deterministic for variant in spec.variants if variant.name in served)
    if section.cache and not repeatable:
        whose = f"the model {shown(spec.name)} answers the same question differently"
        names = one_of(served)
        findings.add((*loc, "cache"), f"{whose} each time ({names}: deterministic: false); expected false")
    return repeatable if section.cache is None else section.cache
