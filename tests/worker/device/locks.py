"""Page locks without a device."""


class Noted:
    """`Locks` that note what is locked, and can refuse."""

    def __init__(self, refusal: str = "") -> None:
        self.locked: dict[int, int] = {}
        self.ready = True
        self._refusal = refusal

    def lock(self, address: int, byte_count: int) -> str:
        if not self._refusal:
            self.locked[address] = byte_count
        return self._refusal

    def unlock(self, address: int) -> str:
        del self.locked[address]
        return ""
