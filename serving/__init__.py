"""The core: what decides, what serves, and what is simulated of it."""

from serving.compiled import is_compiled

__all__ = ["is_compiled"]
