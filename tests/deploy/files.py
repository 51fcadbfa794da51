"""docker-compose.yml, Dockerfile and .dockerignore as values."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).parents[2]
COMPOSE_FILE = ROOT / "docker-compose.yml"
COMPOSE: dict[str, Any] = yaml.safe_load(COMPOSE_FILE.read_text("utf-8"))
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]


@dataclass(frozen=True, slots=True)
class Step:
    """An instruction of a Dockerfile: `COPY`, its flags without their dashes, and the words after them."""

    instruction: str
    flags: dict[str, str]
    words: tuple[str, ...]


def read_stages(text: str) -> list[list[Step]]:
    """The steps of each stage, from its FROM on; what precedes the first FROM is the first list."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    stages: list[list[Step]] = [[]]
    for line in "\n".join(lines).replace("\\\n", " ").splitlines():
        if not line.strip():
            continue
        instruction, *words = line.split()
        flags = dict(word[2:].partition("=")[::2] for word in words if word.startswith("--"))
        if instruction == "FROM":
            stages.append([])
        elif instruction == "RUN":
            flags = {}  # those of its command are not the instruction's
        plain = words if instruction == "RUN" else [word for word in words if not word.startswith("--")]
        stages[-1].append(Step(instruction, flags, tuple(plain)))
    return stages


def is_sent(path: str, ignore: str) -> bool:
    """Whether `path` reaches the build under a .dockerignore of text `ignore`: the last pattern that matches
    it or a folder above it decides (docs.docker.com/build/concepts/context, "Syntax")."""
    parts = path.split("/")
    places = ["/".join(parts[:length]) for length in range(1, len(parts) + 1)]
    sent = True
    for line in ignore.splitlines():
        if line and not line.startswith("#"):
            pattern = _as_regex(line.removeprefix("!"))
            if any(pattern.fullmatch(place) for place in places):
                sent = line.startswith("!")
    return sent


def _as_regex(pattern: str) -> re.Pattern[str]:
    return re.compile(re.escape(pattern).replace(r"\*\*/", "(.*/)?").replace(r"\*", "[^/]*"))
