"""Networks that write down speech, with their processors. A sound is a WAV file."""

import io
import wave
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from serving.values.specs import ParameterValue
from serving.worker.backends.contract import BadInputError
from serving.worker.backends.hf.folder import AUDIO, Folder
from serving.worker.frames.arrays import Array, Arrays

SECONDS_MAX: Final = 30
"""Of a sound: what Whisper hears at once (https://arxiv.org/abs/2212.04356, section 2.2)."""
RATE: Final = 16_000
"""Samples a second of all usual networks; a folder may state another."""
BOUNDS: Final = tuple(2 * RATE * seconds for seconds in (5, 10, 20, SECONDS_MAX))
"""Of size buckets, in bytes of 16 bits a sample."""
_HEADER: Final = 44
_TYPES: Final[Mapping[int, np.dtype[Any]]] = {1: np.dtype("u1"), 2: np.dtype("<i2"), 4: np.dtype("<i4")}


class SpeechModel:
    """A network with its extractor and its tokenizer. One with `generate` writes words, another says for each
    frame which letter it hears (https://www.cs.toronto.edu/~graves/icml_2006.pdf, CTC)."""

    def __init__(self, folder: Folder, extractor: Any, tokenizer: Any, network: Any) -> None:
        self._folder = folder
        self._extractor = extractor
        self._tokenizer = tokenizer
        self._network = network
        self._rate = int(getattr(extractor, "sampling_rate", RATE))

    def predict(self, inputs: Arrays, parameters: dict[str, ParameterValue]) -> Mapping[str, object]:  # noqa: ARG002  such models take none
        """Return the words of each sound. Raises BadInputError for what is no sound that the network
        takes."""
        contents: list[Any] = list(inputs[AUDIO].ravel())
        sounds = [self._opened(each) for each in contents]
        rows = np.empty((len(sounds), 1), object)
        rows[:, 0] = [each.strip().encode() for each in self._heard(sounds)]
        return {self._folder.output: rows}

    def _heard(self, sounds: list[Array]) -> list[str]:
        generates = self._folder.generates
        given = self._extractor(
            sounds, sampling_rate=self._rate, return_tensors="pt", **({} if generates else {"padding": True})
        )
        network = self._network
        given = {name: each.to(network.device) for name, each in given.items()}
        first = next(iter(given))
        given[first] = given[first].to(network.dtype)
        if generates:
            found = network.generate(**given)
            words: list[str] = self._tokenizer.batch_decode(found, skip_special_tokens=True)
            return words
        letters = network(**given).logits.argmax(-1).cpu()
        # Frames behind a sound's end are of what fills it up.
        frames = [int(network._get_feat_extract_output_lengths(len(each))) for each in sounds]  # noqa: SLF001  as transformers' own losses do
        return [self._tokenizer.decode(row[:count]) for row, count in zip(letters, frames, strict=True)]

    def _opened(self, content: bytes) -> Array:
        try:
            with wave.open(io.BytesIO(content)) as sound:
                rate, channels, width = sound.getframerate(), sound.getnchannels(), sound.getsampwidth()
                data = sound.readframes((SECONDS_MAX + 1) * max(rate, 1))
        except (wave.Error, EOFError) as error:
            raise BadInputError(f"input {AUDIO!r} holds no sound: {error}; expected a WAV file") from error
        if rate != self._rate or width not in _TYPES:
            got = f"{rate} samples a second of {8 * width} bits"
            cure = f"`ffmpeg -i FILE -ar {self._rate} -sample_fmt s16 FILE.wav` makes one"
            raise BadInputError(f"input {AUDIO!r} has {got}; expected {self._rate} of 16 bits: {cure}")
        samples = np.frombuffer(data[: len(data) // (width * channels) * width * channels], _TYPES[width])
        if not len(samples) or len(samples) > SECONDS_MAX * rate * channels:
            seconds = len(samples) / rate / channels
            raise BadInputError(
                f"input {AUDIO!r} lasts {seconds:.1f} s; expected more than 0 and at most {SECONDS_MAX} s"
            )
        unsigned = 1.0 if width == 1 else 0.0
        whole = samples.astype(np.float32) / 2.0 ** (8 * width - 1) - unsigned
        mono: Array = whole.reshape(-1, channels).mean(1)
        return mono

    def sample(self, rows: int, size: int) -> Arrays:
        """Return a sound for each row, of `size` bytes."""
        written = io.BytesIO()
        count = max((size - _HEADER) // 2, self._rate // 10)
        noise = np.random.default_rng(1).integers(-3000, 3000, count).astype("<i2")
        with wave.open(written, "wb") as sound:
            sound.setnchannels(1)
            sound.setsampwidth(2)
            sound.setframerate(self._rate)
            sound.writeframes(noise.tobytes())
        return {AUDIO: np.full((rows, 1), written.getvalue(), object)}
