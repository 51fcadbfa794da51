"""The parameters of a load: Triton's ModelConfig as JSON, which can change batch size and versions."""

from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple  # Any: parsed JSON

import orjson
from google.protobuf.json_format import ParseDict, ParseError  # type: ignore[import-untyped]

from router.management.operations.repository.refusals import BAD_INPUT, UNSUPPORTED, RepositoryError
from router.protocol.oip import PLATFORMS
from router.settings.values.versions import VersionPolicy, read_policy
from router.tensors.parts.wording import quoted, suggestion
from router.tensors.protos.files import oip

BATCH_MAX: Final = 65_536
"""As model.yaml's own bound."""

_KEYS: Final = frozenset(field.name for field in oip.ModelConfig.DESCRIPTOR.fields)
_DIGITS_MAX: Final = 9


class Asked(NamedTuple):
    """What a load asks for besides what the files say: `batch_max` by `max_batch_size`, and `policy` by
    `version_policy`; None for what it leaves open."""

    batch_max: int | None = None
    policy: VersionPolicy | None = None


def read_asked(name: str, parameters: Mapping[str, object], served: Any = None) -> Asked:
    """Return what a load of the model asks for.

    RepositoryError for what is malformed, and for what would change anything else: keys that are empty, or
    say what is so anyway, are passed over. `served`: the model's ModelConfig, None if it is not served.
    """
    for key in parameters:
        if key.startswith("file:"):
            why = "files are not taken over the network: code comes from the folders of penstock.yaml"
            raise RepositoryError(UNSUPPORTED, f"parameter {quoted(key)} is not supported: {why}")
        if key != "config":
            raise _bad(f"unknown parameter {quoted(key)}; expected 'config'")
    if "config" not in parameters:
        return Asked()
    config = _parse(parameters["config"])
    batch_max, policy = None, None
    for key, value in config.items():
        if key == "max_batch_size":
            unbatched = value in (0, "0") and _is_served(key, value, served)
            batch_max = None if unbatched else _whole(value)
        elif key == "version_policy":
            policy = None if _is_served(key, value, served) else _policy(value)
        elif key == "name" and value not in ("", name):
            raise _bad(f"config: the name is {quoted(value)}, but the load is of {quoted(name)}")
        elif key not in _KEYS:
            raise _bad(f"config: no key {quoted(key)} in Triton's ModelConfig{suggestion(key, _KEYS)}")
        elif key != "name" and not (_changes_nothing(key, value) or _is_served(key, value, served)):
            why = "a load changes max_batch_size and version_policy only; the rest stands in model.yaml"
            raise RepositoryError(UNSUPPORTED, f"config: {key} is not supported: {why}")
    return Asked(batch_max, policy)


def check_unload(parameters: Iterable[str]) -> None:
    """Raise RepositoryError for a parameter of an unload that asks for something. `unload_dependents` asks
    for nothing: no model depends on another here."""
    for key in parameters:
        if key != "unload_dependents":
            raise _bad(f"unknown parameter {quoted(key)}; expected 'unload_dependents'")


def _parse(stated: object) -> dict[str, Any]:
    if not isinstance(stated, str):
        raise _bad(f"parameter 'config' must be JSON in a string, got {quoted(stated)}")
    try:
        config = orjson.loads(stated)
    except orjson.JSONDecodeError as error:
        raise _bad(f"parameter 'config' is not valid JSON: {error}") from None
    if not isinstance(config, dict):
        raise _bad(f"parameter 'config' must be a JSON object, got {quoted(config)}")
    return config


def _whole(value: object) -> int:
    spelled = isinstance(value, str) and value.isascii() and value.isdigit() and len(value) <= _DIGITS_MAX
    number = int(value) if spelled or type(value) is int else 0  # type: ignore[call-overload]  # one of both
    if not 1 <= number <= BATCH_MAX:
        raise _bad(
            f"config: max_batch_size must be a whole number from 1 to {BATCH_MAX}, got {quoted(value)}"
        )
    return int(number)


def _policy(value: object) -> VersionPolicy | None:
    """Return the policy; None for one that states nothing, as JSON of protobuf has it."""
    if not value or value == {"latest": {}}:
        return None
    try:
        return read_policy(value)
    except ValueError as error:  # of a validator
        raise _bad(f"config: version_policy: {error}") from None


def _changes_nothing(key: str, value: object) -> bool:
    if key in ("platform", "backend"):
        return value in ("", None, *PLATFORMS, *PLATFORMS.values())
    return not value


def _is_served(key: str, value: object, served: Any) -> bool:
    """Return whether the model is served so: clients read a configuration, change one key, and load it."""
    if served is None:
        return False
    try:
        stated = ParseDict({key: value}, oip.ModelConfig())
    except ParseError:
        return False
    return bool(getattr(stated, key) == getattr(served, key))


def _bad(message: str) -> RepositoryError:
    return RepositoryError(BAD_INPUT, message)
