"""Rules that several batching policies share."""
