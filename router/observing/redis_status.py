"""The tier through which gateways share answers: put together, and what metrics show of it."""

from router.observing.telemetry import RedisPresent
from serving.cache.spec import CacheSpec
from serving.runtime.caching.caching import CachedServing
from serving.runtime.caching.redis_tier import RedisTier


def share(cache: CachedServing, spec: CacheSpec, epoch_us: int) -> RedisTier | None:
    """Return the tier through which the cache shares answers with other gateways; None where there is
    none."""
    if spec.redis is None:
        return None
    tier = RedisTier(spec.redis, spec.ttl_us, cache.models, epoch_us)
    cache.share(tier)
    return tier


def describe_redis(tier: RedisTier | None) -> RedisPresent | None:
    """Return what metrics show of the tier; None where there is none."""
    if tier is None:
        return None
    counts = tier.counts
    written = counts.written, counts.dropped
    return RedisPresent(tier.usable, counts.trips, *written, counts.invalidations, counts.refused)
