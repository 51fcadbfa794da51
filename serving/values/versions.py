"""Versions of a model: the names under which they are served beside each other.

Requests for a model without a version go to the version of the model's own name, `digits`. Each other version
is served under a name of its own, `digits@1`.
"""

from typing import Final

MARK: Final = "@"
"""Between a model's name and a version: names of models in model.yaml cannot contain it."""
ONLY: Final = "1"
"""The version that answers state of a model without versions."""


def version_name(model: str, version: int | str) -> str:
    """Return the name under which a version is served that is not the one of the model's own name."""
    return f"{model}{MARK}{version}"


def model_of(name: str) -> str:
    """Return the model's name, as requests have it, of a name under which a version is served."""
    return name.partition(MARK)[0]
