"""The forms of errors, by the dialect that has each."""

from typing import Final

OPENAI: Final = "openai"
COHERE: Final = "cohere"
TEI: Final = "tei"
KSERVE: Final = "kserve"
