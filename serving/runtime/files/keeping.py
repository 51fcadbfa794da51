"""Profiles that were measured here, kept for the next start."""

import asyncio
import logging
from pathlib import Path

from serving.profile.curve import Profile
from serving.profile.files.store import ProfileStore

logger = logging.getLogger(__name__)


def keep(store: ProfileStore, profile: Profile) -> None:
    """Store a profile in a thread: a slow disk must not hold up the event loop."""
    writing = asyncio.get_running_loop().run_in_executor(None, store.write_local, profile)
    writing.add_done_callback(_report_unkept)


def _report_unkept(writing: asyncio.Future[Path]) -> None:
    """Warn that a profile could not be stored. This costs a measurement at the next start, and nothing
    now."""
    error = None if writing.cancelled() else writing.exception()
    if error is not None:
        logger.warning("a measured profile could not be stored: %s", error)
