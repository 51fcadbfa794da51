"""The one error of a target that cannot be served."""


class TargetError(Exception):
    """The text says what is wrong, and what would help."""
