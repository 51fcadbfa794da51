# ruff: noqa: ARG001, ARG002  (the signatures are those of every model)
"""Repeats its input number by number: a request has as many answers as IN has numbers, perhaps none."""

import time
from collections.abc import Generator, Mapping
from pathlib import Path

import numpy as np

Scalar = bool | int | float | str
Outputs = dict[str, np.ndarray]
SAMPLE_COLUMNS = 4
PAUSE_MS_MAX = 1000
"""A single DELAY or WAIT: a client must not hold the slice with one of them."""


class Model:
    """OUT is a number of IN, and IDX its place. DELAY (milliseconds) comes before each, WAIT after all."""

    def stream(
        self, inputs: dict[str, np.ndarray], parameters: dict[str, Scalar]
    ) -> Generator[tuple[int, Outputs | None], frozenset[int], None]:
        """Yield the numbers of all rows in turns; what is left out is of rows that nobody waits for."""
        numbers, delays_ms, waits_ms = inputs["IN"], inputs["DELAY"], inputs["WAIT"]
        rows, count = numbers.shape
        gone: frozenset[int] = frozenset()
        for place in range(count):
            for row in range(rows):
                if row in gone:
                    continue
                if place < delays_ms.shape[1]:
                    _pause(int(delays_ms[row, place]))
                answer = {
                    "OUT": numbers[row : row + 1, place : place + 1],
                    "IDX": np.full((1, 1), place, np.uint32),
                }
                gone = yield row, answer
        for row in range(rows):
            if row not in gone:
                _pause(int(waits_ms[row, 0]))
                gone = yield row, None

    def sample(self, rows: int, size: int) -> dict[str, np.ndarray]:
        """Return inputs to measure with, without pauses; `size` is not used."""
        numbers = np.arange(rows * SAMPLE_COLUMNS, dtype=np.int32).reshape(rows, SAMPLE_COLUMNS)
        return {
            "IN": numbers,
            "DELAY": np.zeros(numbers.shape, np.uint32),
            "WAIT": np.zeros((rows, 1), np.uint32),
        }


def _pause(delay_ms: int) -> None:
    if delay_ms > 0:
        time.sleep(min(delay_ms, PAUSE_MS_MAX) / 1000)


def load(artifact: Path | None, options: Mapping[str, Scalar]) -> Model:
    """Return the model; it needs neither artifact nor options."""
    return Model()
