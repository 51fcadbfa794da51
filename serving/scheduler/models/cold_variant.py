"""A variant that is on no live slice, but can be loaded."""

from serving.policy.estimates.suspicion import believed_us
from serving.values.vocabulary import NEVER_US


class ColdVariant:
    """It is loaded within `load_us` of being asked for (again, from `ask_us` on); or it is being loaded, and
    ready at `ready_us`."""

    __slots__ = ("ask_us", "load_us", "ready_us")

    def __init__(self, load_us: int, ask_us: int) -> None:
        self.load_us = load_us
        self.ready_us = NEVER_US  # no slice loads it
        self.ask_us = ask_us

    @property
    def cold(self) -> bool:
        """Whether the variant is not being loaded."""
        return self.ready_us == NEVER_US

    def loaded_us(self, now_us: int) -> int:
        """Return when it will be there, were it asked for now; one that is late, after as long again as it
        is."""
        return now_us + self.load_us if self.cold else believed_us(self.ready_us, now_us)

    def doubt_us(self, start_us: int) -> int:
        """Return the first instant at which `loaded_us` is after `start_us`, where it is not yet."""
        return start_us - self.load_us + 1 if self.cold else (self.ready_us + start_us) // 2 + 1
