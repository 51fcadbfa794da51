"""File descriptors: each connection takes one, and so do workers, files and gRPC's own connections."""

import resource
from typing import Final

BESIDES: Final = 1024
"""What is needed besides REST's connections: gRPC's, workers' pipes and memory, Redis, files."""


def raise_limit(connection_count: int) -> str:
    """Raise this process's soft limit to what the connections may take; returns what is wrong, or ""."""
    needed = connection_count + BESIDES
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= needed:
        return ""
    allowed = needed if hard == resource.RLIM_INFINITY else min(needed, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    if allowed >= needed:
        return ""
    return (
        f"this process may open {hard} files, and {connection_count} connections "
        f"(limits.connection_count) want {needed}: raise the limit (ulimit -n), or lower connection_count"
    )
