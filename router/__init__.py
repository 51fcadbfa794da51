"""The edge: protocols, settings, metrics, and the command line."""

from router.logs.verbosity import VARIABLE  # before grpc is imported
from serving import is_compiled  # which finds what is compiled: before anything of it is imported

__all__ = ["VARIABLE", "is_compiled"]
