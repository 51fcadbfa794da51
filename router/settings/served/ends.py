"""How rollouts ended, as it is kept in `.penstock/` beside penstock.yaml."""

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from router.settings.values.kept_json import KeptJson, kept_path
from serving.policy.rollouts.course import CourseState

logger = logging.getLogger("penstock.rollouts")

_KEYS: Final = ("of", "revision", "state", "why")

Ends = dict[str, dict[str, str]]
"""By candidate: `of`, the model whose place it is to take; `revision`, of its files; `state`, of CourseState,
and `why`. It has candidates whose rollout goes on, too."""


def ends_file(settings: Path) -> KeptJson:
    """Return the file in which the ends of rollouts are kept for these settings."""
    return KeptJson(kept_path(settings, "rollouts"), "how rollouts ended", logger)


def read_ends(settings: Path) -> Ends:
    """Return what is kept for these settings; {} if nothing is."""
    return ends_file(settings).read(_ends, {})


def _ends(kept: Mapping[str, Mapping[str, object]]) -> Ends:
    return {
        str(name): {key: str(each[key]) for key in _KEYS}
        for name, each in kept.items()
        if each["state"] in [*CourseState]
    }
