"""The core: the code that decides, the code that serves, and the simulator of both."""

from serving.compiled import is_compiled

__all__ = ["is_compiled"]
