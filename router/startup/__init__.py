"""One gateway, put together from settings, started and ended."""
