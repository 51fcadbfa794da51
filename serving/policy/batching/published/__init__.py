"""Batching policies of papers and systems, each in its own file."""
