"""Verbs with many options: a frozen dataclass, one field an option, becomes a function that typer reads."""

import inspect
from collections.abc import Callable, Sequence
from dataclasses import MISSING, Field, fields
from typing import Any, TypeVar, get_type_hints

import typer
from typer.core import TyperCommand, TyperGroup

_Options = TypeVar("_Options")


class Verb(TyperCommand):
    """A verb. Its --help shows options that take no value without the `<bool>` that typer writes beside
    them."""

    def get_params(self, ctx: Any) -> Any:  # typer's own kinds, which it does not publish
        """Return the parameters, as click's method does."""
        return _flagged(super().get_params(ctx))


class Verbs(TyperGroup):
    """The command itself; its --help shows options as a `Verb` does."""

    def get_params(self, ctx: Any) -> Any:
        """Return the parameters, as click's method does."""
        return _flagged(super().get_params(ctx))


def _flagged(options: Sequence[Any]) -> list[Any]:
    for each in options:
        if getattr(each, "is_flag", False):
            each.metavar = ""
    return list(options)


def _default(option: Field[Any]) -> Any:
    """Return what an option is that the command line leaves out; empty where it must be there."""
    if option.default_factory is not MISSING:
        return option.default_factory()
    return inspect.Parameter.empty if option.default is MISSING else option.default


def command(options: type[_Options], run: Callable[[_Options], int]) -> Callable[..., None]:
    """Return a function that takes all fields of `options`, with their texts as its --help; it exits with
    what `run` returns."""

    def verb(**given: Any) -> None:  # typer has made them what the fields say
        raise typer.Exit(run(options(**given)))

    hints = get_type_hints(options, include_extras=True)
    parameters = [
        inspect.Parameter(
            each.name,
            inspect.Parameter.KEYWORD_ONLY,
            default=_default(each),
            annotation=hints[each.name],
        )
        for each in fields(options)  # type: ignore[arg-type]
    ]
    verb.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    verb.__annotations__ = hints
    verb.__doc__ = run.__doc__
    return verb
