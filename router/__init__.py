"""The edge: protocols, settings, metrics, and the command line."""

from serving import is_compiled  # which finds what is compiled: before anything of it is imported

__all__ = ["is_compiled"]
