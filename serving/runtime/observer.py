"""Who counts what happens at the cache."""

from typing import Protocol

from serving.runtime import gateway


class CacheObserver(gateway.Observer, Protocol):
    """Who counts what happens; of the calls that the gateway never sees too."""

    def cache_asked(self, model: str, result: str, took_us: int) -> None:
        """The cache was asked ("hit", "join" or "miss"), which took so long, digest and all."""
        ...

    def cache_looked(self, model: str, result: str, took_us: int) -> None:
        """Other gateways' answers were looked at: "hit", "miss", "taken" (one computes it) or "timeout"; or
        were not ("skipped"), as they are out of reach."""
        ...
