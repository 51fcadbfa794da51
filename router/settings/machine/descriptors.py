"""File descriptors: each connection takes one, and so do workers, files and gRPC's own connections."""

import resource
from typing import Final

EDGES: Final = 2
"""REST and gRPC may have so many connections each."""
BESIDES: Final = 1024
"""What is needed besides these: metrics, the admin door, workers' pipes and memory, Redis, files."""


def raise_limit(connection_count: int) -> str:
    """Raise this process's soft limit to what the connections may take; returns what is wrong, or ""."""
    needed = EDGES * connection_count + BESIDES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return ""
    allowed = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    if allowed >= needed:
        return ""
    return (
        f"this process may open {hard} files, and {connection_count} connections "
        f"over REST and over gRPC (limits.connection_count) need {needed}: "
        "raise the limit (ulimit -n), or lower connection_count"
    )
