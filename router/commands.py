"""Verbs with many options: a frozen dataclass, one field an option, becomes a function that typer reads."""

import inspect
from collections.abc import Callable
from dataclasses import MISSING, fields
from typing import Any, TypeVar, get_type_hints

import typer

_Options = TypeVar("_Options")


def command(options: type[_Options], run: Callable[[_Options], int]) -> Callable[..., None]:
    """A function of all the fields of `options`, whose texts are what --help says; exits with what `run`
    returns."""

    def verb(**given: Any) -> None:  # typer has made them what the fields say
        raise typer.Exit(run(options(**given)))

    hints = get_type_hints(options, include_extras=True)
    parameters = [
        inspect.Parameter(
            each.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=each.default if each.default_factory is MISSING else each.default_factory(),
            annotation=hints[each.name],
        )
        for each in fields(options)  # type: ignore[arg-type]
    ]
    verb.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    verb.__annotations__ = hints
    verb.__doc__ = run.__doc__
    return verb
