"""Keys to test with: some callers, and a guard that knows them."""

from math import inf

from router.security.auth.guard import KeyGuard
from router.security.auth.issuing import NewKey, make_key
from router.security.auth.keys import KeyFile
from router.settings.keys import KeySpec

NOW_S = 1_000_000.0


class Callers:
    """By name: `app` infers for the tenant gold; `narrow` only of simple and in the tier cheap; `eyes` reads,
    and of simple only; `boss` is an admin; `late` has expired."""

    def __init__(self) -> None:
        self._keys: dict[str, NewKey] = {}
        self.guard = KeyGuard(
            KeyFile(
                [
                    self._spec("app", "infer", tenant="gold"),
                    self._spec("narrow", "infer", models=("simple",), tiers=("cheap",)),
                    self._spec("eyes", "read", models=("simple",)),
                    self._spec("boss", "admin"),
                    self._spec("late", "infer", expires_s=NOW_S),
                ]
            ),
            lambda: NOW_S,
        )

    def _spec(
        self,
        name: str,
        role: str,
        tenant: str = "default",
        models: tuple[str, ...] | None = None,
        tiers: tuple[str, ...] | None = None,
        expires_s: float = inf,
    ) -> KeySpec:
        key = self._keys[name] = make_key()
        return KeySpec(name, key.id, key.hash, tenant, (role,), models, tiers, expires_s)

    def key(self, name: str) -> str:
        """What the caller sends; of a name that is no caller's a key that nobody has."""
        return (self._keys.get(name) or make_key()).text
