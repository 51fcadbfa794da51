"""Texts of chosen lengths: as many tokens as they say, spread as they should be."""

import numpy as np
import pytest

from loadtests.harness import texts
from loadtests.harness.texts import LONGEST, SHORTEST, Text

DRAWN = texts.draw(2000, seed=7)


def test_lengths_are_log_uniform_from_the_shortest_to_the_longest() -> None:
    lengths = np.asarray([text.tokens for text in DRAWN])
    assert (lengths.min(), lengths.max()) == (SHORTEST, LONGEST)
    logs = np.log(lengths)
    middle = (np.log(SHORTEST) + np.log(LONGEST)) / 2
    assert np.mean(logs < middle) == pytest.approx(0.5, abs=0.05)
    assert np.mean(logs < np.log(SHORTEST) / 2 + middle / 2) == pytest.approx(0.25, abs=0.05)


def test_the_same_seed_draws_the_same_texts() -> None:
    assert texts.draw(20, seed=3) == texts.draw(20, seed=3) != texts.draw(20, seed=4)


def test_a_punctuation_mark_counts_for_five_bytes_and_a_letter_for_one() -> None:
    text = Text("naïve_name (x)".encode(), 9)
    assert text.size("bytes") == len(text.raw) == 15
    assert text.size("text") == 15 + 3 * 4  # _, ( and )


def test_marks_tell_the_tokens_better_than_bytes() -> None:
    tokens = np.asarray([text.tokens for text in DRAWN], float)
    spreads = []
    for hint in texts.HINTS:
        ratios = tokens / np.asarray([text.size(hint) for text in DRAWN])
        spreads.append(np.percentile(ratios, 95) / np.percentile(ratios, 5))
    assert spreads[1] < spreads[0] / 1.2
