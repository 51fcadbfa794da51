"""`${NAME}` in values of a YAML file: variables of the environment, as compose files and shells have them."""

import re
from collections.abc import Mapping
from typing import Final

_REFERENCE: Final = re.compile(r"\$(\$?)\{([^{}]*)(\}?)")
_CONTENT: Final = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)(:-(.*))?\Z", re.DOTALL)
_FORMS: Final = "expected ${NAME} or ${NAME:-default}; $${ stands for ${ itself"


class VariableError(ValueError):
    """A reference that names no variable, or one that the environment does not have; the text says it."""


def is_variable(text: str) -> bool:
    """Return whether the text is one reference and nothing else."""
    found = _REFERENCE.fullmatch(text)
    return found is not None and not found[1]


def expanded(text: str, environ: Mapping[str, str]) -> str:
    """Return the text with the values of its variables; a default stands for one that is unset or empty.

    `$${` stays as `${`. The form is that of the Compose specification ("Interpolation"). What a variable
    holds is not searched again. VariableError where a reference is unclear or has no value.
    """

    def value(found: re.Match[str]) -> str:
        escaped, content, closed = found.groups()
        if escaped:
            return found[0][1:]
        parts = _CONTENT.match(content) if closed else None
        if parts is None:
            raise VariableError(f"{found[0][:60]!r} names no variable; {_FORMS}")
        name, default = parts[1], parts[3]
        held = environ.get(name, "")
        if held or (default is None and name in environ):
            return held
        if default is None:
            raise VariableError(f"the environment has no {name}; set it, or write ${{{name}:-default}}")
        return default

    return _REFERENCE.sub(value, text)
