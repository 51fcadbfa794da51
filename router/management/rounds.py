"""Looks that come again and again, of what nothing announces."""

import asyncio
import logging
from collections.abc import Awaitable, Callable


async def rounds(
    look: Callable[[], Awaitable[object]], period_s: float, logger: logging.Logger, failed: str
) -> None:
    """Look each `period_s`, until cancelled. A look that raises is logged as `failed`, and the next one
    comes."""
    while True:
        await asyncio.sleep(period_s)
        try:
            await look()
        except Exception:
            logger.exception("%s", failed)
