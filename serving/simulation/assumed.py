"""What a simulation assumes of devices where nothing is said; the command line reads it, so it is light."""

from typing import Final

NOISE: Final = 0.05
"""Coefficient of variation of a batch's latency."""
OVERHEAD_US: Final = 700
"""From the scheduler to the worker and back, without the compute."""
