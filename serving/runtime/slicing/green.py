"""Green contexts: multiprocessors that a process sets apart for one of its own models.

There is nothing to open before the process starts: a worker makes them itself (torch.cuda.green_contexts), so
that a share changes at once. Workers do not do that yet; this says what it would be worth.
"""

from typing import Final

from serving.runtime.slicing.contract import FaultDomain, Guarantee, Resize
from serving.specs import Share

SMS_STEP: Final = 8
"""Smallest size and alignment since compute capability 9.0; 4 and 2 on 8.x (CUDA Driver API)."""


def guarantee(sms: int) -> Guarantee:
    """Of a GPU with so many multiprocessors. No reservation: other contexts compute on the same ones."""
    shares = tuple(Share("green", float(count)) for count in range(SMS_STEP, sms + 1, SMS_STEP))
    return Guarantee(False, shares, Resize.AT_ONCE, FaultDomain.PROCESS, len(shares))
