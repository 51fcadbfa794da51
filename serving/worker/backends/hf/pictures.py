"""Networks of pictures, with their processors: they classify JPEG, PNG and what else Pillow reads."""

import io
from collections.abc import Mapping
from typing import Any, Final

import numpy as np

from serving.values.specs import ParameterValue
from serving.worker.backends.contract import BadInputError
from serving.worker.backends.hf.folder import IMAGE, Folder
from serving.worker.frames.arrays import Arrays

SIDES: Final = (640, 480)
"""Pixels of the picture to measure with: what a photo has in a page."""
PIXELS_MAX: Final = 64_000_000
"""Of a picture. A small file may unfold to more memory than a worker has."""


class PictureModel:
    """A network with its processor, which scales pictures to the network's size."""

    def __init__(self, folder: Folder, pillow: Any, processor: Any, network: Any) -> None:
        self._folder = folder
        self._pillow = pillow
        self._processor = processor
        self._network = network

    def predict(self, inputs: Arrays, parameters: dict[str, ParameterValue]) -> Mapping[str, object]:  # noqa: ARG002  such models take none
        """Return the scores of all labels, row by row. Raises BadInputError for what is no picture; the
        gateway then tries the batch in halves, so only its request fails."""
        pictures = [self._opened(each) for each in inputs[IMAGE].ravel()]
        pixels = self._processor(pictures, return_tensors="pt")["pixel_values"]
        found = self._network(pixels.to(self._network.device, self._network.dtype))
        return {self._folder.output: found.logits.float().cpu().numpy()}

    def _opened(self, content: Any) -> Any:
        try:
            picture = self._pillow.open(io.BytesIO(content))
            width, height = picture.size
            if width * height <= PIXELS_MAX:
                return picture.convert("RGB")
        except (OSError, SyntaxError, ValueError) as error:
            unknown = isinstance(error, self._pillow.UnidentifiedImageError)
            why = "its form is unknown" if unknown else str(error)
            message = f"input {IMAGE!r} holds no picture: {why}; expected a JPEG or PNG file"
            raise BadInputError(message) from error
        raise BadInputError(
            f"input {IMAGE!r} has {width} x {height} pixels; expected at most {PIXELS_MAX:,} in all"
        )

    def sample(self, rows: int, size: int) -> Arrays:  # noqa: ARG002  pictures have no size hint
        """Return a picture for each row, as a JPEG file."""
        pixels = np.random.default_rng(1).integers(0, 256, (SIDES[1] // 8, SIDES[0] // 8, 3), np.uint8)
        written = io.BytesIO()
        self._pillow.fromarray(pixels).resize(SIDES).save(written, "JPEG")
        return {IMAGE: np.full((rows, 1), written.getvalue(), object)}
