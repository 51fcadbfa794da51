"""The trace of the batch that a thread computes, for models that ask other servers."""

import threading
from typing import Final

from serving.values.traces import NO_TRACE


class _BatchTrace(threading.local):
    """NO_TRACE on threads that compute no client's batch, such as those that load and warm up."""

    context = NO_TRACE


BATCH_TRACE: Final = _BatchTrace()
