"""The files that a variant's artifact consists of."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

_BESIDE: Final = ("{stem}.bin", "{name}.data", "{name}_data")
"""Files with the weights of an artifact: OpenVINO's, and ONNX's external data as exporters name it."""


def files_of_artifact(artifact: Path) -> Iterator[tuple[str, Path]]:
    """Yield the artifact with the weights that some formats keep in a file beside it, or all files of a
    folder."""
    if not artifact.is_dir():
        yield artifact.name, artifact
        for name in (each.format(name=artifact.name, stem=artifact.stem) for each in _BESIDE):
            if (path := artifact.with_name(name)) != artifact and path.is_file():
                yield name, path
        return
    for root, folders, names in os.walk(artifact):
        folders.sort()
        for name in sorted(names):
            path = Path(root, name)
            yield str(path.relative_to(artifact)), path
