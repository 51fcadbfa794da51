"""REST: the fast path, and the ASGI application for the rest."""
