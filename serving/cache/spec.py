"""How the gateway keeps answers, as its settings say."""

from dataclasses import dataclass, field
from urllib.parse import unquote, urlsplit


@dataclass(frozen=True, slots=True)
class RedisSpec:
    """The Redis server through which gateways of one `namespace` share answers. `url` (redis://, rediss:// or
    unix://) and `password` may hold a password: neither is ever shown, nor is `key`. A look delays a call by
    at most `budget_us`."""

    url: str = field(repr=False)
    password: str = field(default="", repr=False)
    namespace: str = "penstock"
    budget_us: int = 2_000
    key: str = field(default="", repr=False)

    @property
    def secret(self) -> str:
        """The secret that signs answers: `key`, else the password; "" if there is neither."""
        return self.key or self.password or unquote(urlsplit(self.url).password or "")

    @property
    def place(self) -> str:
        """The URL without its password, for display."""
        url = urlsplit(self.url)
        return f"{url.scheme}://{url.netloc.rpartition('@')[2]}{url.path}"


@dataclass(frozen=True, slots=True)
class CacheSpec:
    """How the gateway keeps answers: at most `memory_bytes` of them, each for `ttl_us`. `shared`: tenants
    share answers; a tenant can then tell by the latency what others asked. `redis`: where answers are kept
    for other gateways too."""

    memory_bytes: int = 64 << 20
    ttl_us: int = 300_000_000
    shared: bool = False
    redis: RedisSpec | None = None
