"""Placements of a running gateway: read, advised, applied."""
