"""Promises that a machine keeps too that others use: nobody is refused, or late, because of them."""

from dataclasses import replace
from typing import TypeVar

from loadtests.scheduling.two_slos import Party
from loadtests.selection.variants_subjects import Terms

PATIENT_MS = 20_000
Promise = TypeVar("Promise", Party, Terms)


def patient(promise: Promise) -> Promise:
    """The same, but with an SLO of PATIENT_MS."""
    return replace(promise, slo_ms=PATIENT_MS)
