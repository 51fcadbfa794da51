"""The invalidations that gateways with a shared store know of.

Each scope ("" for all models, or a model) has an epoch. It is a part of the keys of the scope's answers, and
it only grows. An epoch is the Unix time of the last invalidation in microseconds, or one more than the epoch
before. If a store has lost an epoch, or has an older one back, this gateway gives it the epoch known here. A
counter from 1 would reach the same number twice then, and would bring old answers back.
"""

from collections.abc import Iterable

EPOCH_MAX = 1 << 53  # exact as a float, the type of Lua's numbers: the year 2255


class Epochs:
    """The latest known epoch of each scope.

    `pending`: the scopes that were invalidated here and not yet in the store.
    """

    __slots__ = ("_known", "_names", "pending")

    def __init__(self, models: Iterable[str]) -> None:
        self._known = dict.fromkeys(("", *models), 0)
        self._names: dict[str, bytes] = {}
        self.pending: set[str] = set()

    @property
    def scopes(self) -> tuple[str, ...]:
        """All scopes, "" first."""
        return tuple(self._known)

    def known(self, scope: str) -> int:
        """Return the latest known epoch of a scope; 0 at first."""
        return self._known.get(scope, 0)

    def name(self, model: str) -> bytes:
        """Return a part for keys that differs from its value before each invalidation of the model."""
        name = self._names.get(model)
        if name is None:
            name = self._names[model] = b"%d.%d" % (self._known[""], self._known.setdefault(model, 0))
        return name

    def learn(self, scope: str, told: int) -> bool:
        """Take an epoch from the store; return True if it is new here, so that all older answers must go."""
        if told <= self.known(scope):
            return False
        self._known[scope] = told
        self._names.clear()
        return True

    def invalidate(self, scope: str, unix_us: int) -> None:
        """Begin an epoch here, and mark it for the store. An unknown scope changes nothing."""
        if scope in self._known:
            self.learn(scope, max(unix_us, self._known[scope] + 1))
            self.pending.add(scope)


def read_epoch(told: object) -> int:
    """Return the epoch in a store's answer; 0 if the answer is no epoch."""
    if isinstance(told, bytes) and len(told) <= 16 and told.isdigit():
        told = int(told)
    return told if isinstance(told, int) and 0 <= told < EPOCH_MAX else 0
