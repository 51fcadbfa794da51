"""After how many bins a history repeats itself."""

import numpy as np

from serving.policy.forecasting.quantiles import Array

CORRELATION_MIN = 0.3
"""Of the history with itself, one period later. In Poisson noise of the same variance as the season it is
0.5."""
DIP = 0.25  # that it has to fall below its peak before: what only changes slowly has no period
SIGMAS = 4.0  # of chance, that a peak has to stand out by: of some hundred lags one reaches 3 by chance
ALIKE = 0.92  # of the best peak: two periods fit as well as one, and the shortest is meant
NEAR = 1.1  # times the first such peak: noise makes several of one, and the highest is meant
SURE = 0.9  # is evidence, however short the history
SHORTEST = 3


def find_period(levels: Array) -> int:
    """Return the period in bins, 0 where there is no evidence of one; two periods have to have been seen.

    It is where the autocorrelation peaks (Box and Jenkins, Time Series Analysis, 1970). Each lag is normed by
    what overlaps, so that a history of exactly two periods correlates fully. On a slope that is steeper than
    the season none is found: taking the slope away would make saw-teeth of steps.
    """
    number = len(levels)
    lags = number // 2
    if lags < SHORTEST:
        return 0
    centred = levels - levels.mean()
    centred[np.abs(centred) < 1e-9 * np.abs(levels).max()] = 0.0  # rounding
    found = _autocorrelation(centred, lags)
    dips = np.minimum.accumulate(found)
    chance = np.minimum(SIGMAS / np.sqrt(number - np.arange(lags + 1)), SURE)
    rises = np.append(False, found[1:] >= found[:-1])
    falls = np.append(found[:-1] > found[1:], True)
    peaks = np.flatnonzero(
        rises & falls & (found >= np.maximum(CORRELATION_MIN, chance)) & (found - dips >= DIP)
    )
    peaks = peaks[peaks >= SHORTEST]
    if not peaks.size:
        return 0
    first = int(peaks[found[peaks] >= ALIKE * found[peaks].max()][0])
    near = peaks[peaks <= NEAR * first]
    return int(near[np.argmax(found[near])])


def _autocorrelation(values: Array, lags: int) -> Array:
    """Return Pearson's correlation of the overlap, by lag from 0 to `lags`; products by the Fourier transform
    (Wiener and Khinchin). It is 0 if one of the parts does not vary."""
    number = len(values)
    spectrum = np.fft.rfft(values, _round(2 * number))
    products = np.fft.irfft(spectrum * np.conj(spectrum), _round(2 * number))[: lags + 1]
    sums = np.concatenate(([0.0], np.cumsum(values)))
    squares = np.concatenate(([0.0], np.cumsum(values * values)))
    shift = np.arange(lags + 1)
    overlap = number - shift
    early, late = sums[overlap], sums[number] - sums[shift]
    vary = (squares[overlap] - early * early / overlap) * (
        squares[number] - squares[shift] - late * late / overlap
    )
    some = vary > (1e-9 * squares[number]) ** 2
    scale = np.sqrt(np.where(some, vary, 1.0))
    return np.where(some, (products - early * late / overlap) / scale, 0.0)


def _round(number: int) -> int:
    """Return the least power of two that is at least `number`: transforms of such lengths are quick."""
    return 1 << (number - 1).bit_length()
