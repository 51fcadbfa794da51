"""What gateways that share answers know of invalidations.

Each scope ("" for all models, or a model) has an epoch, which is a part of the keys of its answers and only
grows: it is the Unix time of its last invalidation in microseconds, or one more than the epoch before. A
store that has lost an epoch, or has an older one back, is told the one that is known here. A counter from 1
would come to the same number twice then, and old answers back.
"""

from collections.abc import Iterable

EPOCH_MAX = 1 << 53  # exact as a float, which Lua has for numbers: the year 2255


class Epochs:
    """`pending`: the scopes invalidated here of which the others have not been told."""

    __slots__ = ("_known", "_names", "pending")

    def __init__(self, models: Iterable[str]) -> None:
        self._known = dict.fromkeys(("", *models), 0)
        self._names: dict[str, bytes] = {}
        self.pending: set[str] = set()

    @property
    def scopes(self) -> tuple[str, ...]:
        """All of them, "" first."""
        return tuple(self._known)

    def known(self, scope: str) -> int:
        """The latest epoch of it that is known here; 0 at first."""
        return self._known.get(scope, 0)

    def name(self, model: str) -> bytes:
        """The part of a key that no answer from before an invalidation has."""
        name = self._names.get(model)
        if name is None:
            name = self._names[model] = b"%d.%d" % (self._known[""], self._known.setdefault(model, 0))
        return name

    def learn(self, scope: str, told: int) -> bool:
        """Another's word; True where it is news: what is kept from before must go."""
        if told <= self.known(scope):
            return False
        self._known[scope] = told
        self._names.clear()
        return True

    def invalidate(self, scope: str, unix_us: int) -> None:
        """Begin an epoch here; the others are to be told. A scope that is none changes nothing."""
        if scope in self._known:
            self.learn(scope, max(unix_us, self._known[scope] + 1))
            self.pending.add(scope)


def read_epoch(told: object) -> int:
    """What a store said; 0 where that is no epoch."""
    if isinstance(told, bytes) and len(told) <= 16 and told.isdigit():
        told = int(told)
    return told if isinstance(told, int) and 0 <= told < EPOCH_MAX else 0
