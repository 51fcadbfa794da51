"""The tokens of texts: counted by the model's own tokenizer, and cut to what the model reads.

A model without a tokenizer has its tokens estimated, as its batches are (`serving.values.tensor.text_size`).
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from router.protocol.dialects.question import Question
from router.tensors.parts.errors import bad_input
from router.tensors.parts.recent import Recent
from serving.values.applications import RERANK, Application
from serving.values.tensor import MARK_BYTES, text_size

CONTEXT: Final = "maximum context length"
"""In the sentence on a text that is too long: OpenAI's own words, for which applications look."""

_LOADED: Final[Recent[tuple[str, int], Any]] = Recent(16)
"""By path and time of change; each holds some megabytes."""


def measure(question: Question, application: Application) -> tuple[Sequence[str], int]:
    """Return the question's texts, those that are too long cut or refused, and how many tokens they have."""
    if application.tokenizer is None:
        return question.texts, _estimate(question, application)
    counter = tokenizer_of(application.tokenizer)
    texts = list(question.texts)
    if question.ids:
        texts = [_text_of(counter, ids, place) for place, ids in enumerate(question.ids)]
    most = application.tokens_max
    if question.tokens_most:
        most = min(most or question.tokens_most, question.tokens_most)
    if question.pairs and application.task == RERANK:
        return _measure_pairs(counter, question, texts, most)
    total = 0
    for place, text in enumerate(texts):
        found = counter.encode(text)
        count = len(found.ids)
        if most and count > most:
            texts[place], count = _cut(counter, question, (place, text, count), most)
        total += count
    return texts, total


def is_loaded(path: Path) -> bool:
    """Return whether the tokenizer in a file is there: to load it takes some 30 ms."""
    try:
        return _LOADED.get((str(path), path.stat().st_mtime_ns)) is not None
    except OSError:
        return False


def tokenizer_of(path: Path) -> Any:  # the library has no types
    """Return the tokenizer in a file, loaded once for as long as the file does not change."""
    from tokenizers import Tokenizer  # only where a model has one

    try:
        key = (str(path), path.stat().st_mtime_ns)
        found = _LOADED.get(key)
        if found is None:
            found = Tokenizer.from_file(key[0])
            found.no_truncation()
            found.no_padding()
            _LOADED.put(key, found)
    except Exception as error:  # the library raises Exception itself
        raise bad_input(f"the model's tokenizer cannot be read: {error}") from error
    return found


def _estimate(question: Question, application: Application) -> int:
    """Return how many tokens the texts have, about. Raises RequestError for what needs a tokenizer."""
    for what, asked in (("token ids", question.ids), ("a length in tokens", question.tokens_most)):
        if asked:
            where = (
                f"one of {', '.join(application.tokenizers)}" if application.tokenizers else "its model.yaml"
            )
            raise bad_input(
                f"the request states {what}, but the model has no tokenizer in {where}: send texts"
            )
    texts = question.texts
    if question.pairs and application.task == RERANK:
        texts = [question.texts[place] for pair in question.pairs for place in pair]
    return sum(-(-text_size(text.encode()) // MARK_BYTES) for text in texts)


def _measure_pairs(
    counter: Any, question: Question, texts: list[str], most: int
) -> tuple[Sequence[str], int]:
    """Return the same for pairs that a model reads together: the second text of a pair is cut."""
    total = 0
    for left, right in question.pairs:
        count = len(counter.encode(texts[left], texts[right]).ids)
        if most and count > most:
            room = most - (count - len(counter.encode(texts[right], add_special_tokens=False).ids))
            if room < 1 or not question.truncate:
                raise _too_long(right, count, most, room < 1)
            texts[right] = _prefix(counter, texts[right], room)
            count = len(counter.encode(texts[left], texts[right]).ids)
        total += count
    return texts, total


def _cut(counter: Any, question: Question, text: tuple[int, str, int], most: int) -> tuple[str, int]:
    """Return the beginning of a text that fits, and its tokens. `text`: its place, itself, its tokens."""
    place, content, count = text
    room = most - counter.num_special_tokens_to_add(False)
    if room < 1 or not question.truncate:
        raise _too_long(place, count, most, room < 1)
    kept = _prefix(counter, content, room)
    return kept, len(counter.encode(kept).ids)


def _prefix(counter: Any, text: str, tokens: int) -> str:
    """Return so many tokens of a text from its beginning."""
    offsets = counter.encode(text, add_special_tokens=False).offsets
    return text if len(offsets) <= tokens else text[: offsets[tokens - 1][1]]


def _text_of(counter: Any, ids: Sequence[int], place: int) -> str:
    """Return the text whose tokens these ids are. Ids of another tokenizer are refused: their text would be
    another than the client means."""
    try:
        text: str = counter.decode(list(ids), skip_special_tokens=True)
    except (OverflowError, TypeError) as error:
        raise bad_input(f"input[{place}] holds ids that are no tokens of this model: {error}") from None
    plain = [each for each in ids if each not in _special(counter)]
    if counter.encode(text, add_special_tokens=False).ids != plain:
        raise bad_input(
            f"input[{place}] holds token ids that do not read back as themselves with this model's "
            "tokenizer; expected ids of that tokenizer, or texts"
        )
    return text


def _special(counter: Any) -> frozenset[int]:
    added = counter.get_added_tokens_decoder()
    return frozenset(number for number, token in added.items() if token.special)


def _too_long(place: int, count: int, most: int, never: bool) -> Exception:
    cure = "send a shorter query" if never else "send a shorter text, or ask for truncation"
    return bad_input(
        f"text {place} of the request has {count} tokens; the {CONTEXT} is {most} tokens: {cure}"
    )
