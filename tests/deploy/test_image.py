"""The Dockerfile and .dockerignore agree with the tree, the Makefile and docker-compose.yml."""

import re
import subprocess
import tomllib
from pathlib import PurePosixPath

import pytest

from router.management.operations.applied import path_of
from router.settings import ServerSettings, load_settings
from tests.deploy.files import ROOT, SERVICES, Step, is_sent, read_stages

IGNORE = (ROOT / ".dockerignore").read_text("utf-8")
HEAD, BUILD, FINAL = read_stages((ROOT / "Dockerfile").read_text("utf-8"))

SAMPLE = """
# FROM nothing
ARG A=1
FROM a AS b
RUN --mount=type=cache,target=/c x --y \\
    && z
COPY --from=b /d \\
    /e
"""


def steps(stage: list[Step], instruction: str) -> list[Step]:
    return [step for step in stage if step.instruction == instruction]


def only(stage: list[Step], instruction: str) -> tuple[str, ...]:
    (step,) = steps(stage, instruction)
    return step.words


def make_targets() -> list[str]:
    """What the build stage asks `make` for."""
    commands = [" ".join(step.words) for step in steps(BUILD, "RUN")]
    return [target for command in commands for target in re.findall(r"(?:^|&& )make (\S+)", command)]


def shown_steps(target: str) -> "subprocess.CompletedProcess[str]":
    """`make` with nothing done."""
    command = ["make", "--dry-run", target]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)


def test_a_dockerfile_is_read_as_docker_does() -> None:
    head, stage = read_stages(SAMPLE)
    assert head == [Step("ARG", {}, ("A=1",))]
    assert [(step.instruction, step.flags, step.words[-2:]) for step in stage] == [
        ("FROM", {}, ("AS", "b")),
        ("RUN", {}, ("&&", "z")),
        ("COPY", {"from": "b"}, ("/d", "/e")),
    ]


@pytest.mark.parametrize(
    ("ignore", "path", "sent"),
    [
        ("*", "a", False),
        ("*", "a/b", False),
        ("*\n!a", "a/b", True),
        ("*\n!a\na/*/c", "a/b/c/d", False),
        ("*\n!a\na/*/c", "a/b/d/c", True),
        ("**/c", "c", False),
        ("**/c", "a/b/c/d", False),
        ("**/c", "a/bc", True),
        ("# *", "a", True),
    ],
)  # fmt: skip
def test_a_dockerignore_is_read_as_docker_does(ignore: str, path: str, sent: bool) -> None:
    assert is_sent(path, ignore) is sent


def test_every_source_that_runs_is_sent_to_the_build() -> None:
    folders = [ROOT / name for name in ("models", "router", "serving")]
    sources = [path.relative_to(ROOT) for folder in folders for path in folder.rglob("*.py")]
    sources += [path.relative_to(ROOT) for path in (ROOT / "models").glob("*/model.yaml")]
    needed = [*map(str, sources), "Makefile", "penstock.yaml", "pyproject.toml", "profiles/cpu-x-1t/m.v.json"]
    assert len(needed) > 100
    assert not [path for path in needed if "/build/" not in path and not is_sent(path, IGNORE)]


@pytest.mark.parametrize(
    "path",
    [
        ".env",
        ".git/config",
        ".venv/bin/python",
        "docker-compose.yml",
        "models/digits/__pycache__/model.pyc",
        "models/digits/build/cnn.safetensors",
        "profiles/local/cpu-x-1t/m.v.json",
        "recordings/a",
        "router/__pycache__/app.pyc",
        "tests/conftest.py",
    ],
)  # fmt: skip
def test_nothing_private_or_made_on_this_machine_is_sent_to_the_build(path: str) -> None:
    assert not is_sent(path, IGNORE)


def test_what_is_copied_exists_and_is_sent() -> None:
    copies = [step for step in steps(BUILD, "COPY") if step.words[0] != "."]
    sources = [source for step in copies for source in step.words[:-1]]
    assert sources
    for source in sources:
        assert (ROOT / source).exists(), source
        assert is_sent(source, IGNORE), source


def test_the_build_ends_with_the_whole_tree_set_up() -> None:
    copy, run = BUILD[-2:]
    assert (copy.instruction, copy.words) == ("COPY", (".", "."))
    assert " ".join(run.words).startswith("make setup ")


def test_the_build_makes_targets_that_the_makefile_has() -> None:
    assert "setup" in make_targets()
    for target in make_targets():
        done = shown_steps(target)
        assert done.returncode == 0, done.stderr
    assert "No rule to make target" in shown_steps("set-up").stderr


def test_the_tree_is_where_it_was_built_as_a_venv_cannot_be_moved() -> None:
    place = only(BUILD, "WORKDIR")
    (copy,) = steps(FINAL, "COPY")
    assert copy.flags == {"from": "build"}
    assert copy.words == place * 2
    assert only(FINAL, "WORKDIR") == place


def test_both_stages_are_of_the_python_that_the_project_is_checked_with() -> None:
    assert [only(stage, "FROM")[0] for stage in (BUILD, FINAL)] == ["${PYTHON_IMAGE}"] * 2
    ((image,),) = [step.words for step in steps(HEAD, "ARG")]
    version = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["mypy"]["python_version"]
    assert image.startswith(f"PYTHON_IMAGE=python:{version}-slim-")


def test_what_compiles_stays_in_the_build_stage() -> None:
    assert any("gcc" in step.words for step in BUILD)
    assert not [step for step in FINAL if {"apt-get", "gcc", "make", "pip"} & set(step.words)]


def test_the_gateway_runs_as_a_user_of_its_own_who_may_write_what_it_keeps() -> None:
    (user,) = only(FINAL, "USER")
    commands = [" ".join(step.words) for step in steps(FINAL, "RUN")]
    assert user != "root"
    assert any(command.startswith("useradd ") and command.endswith(f" {user}") for command in commands)
    assert f"mkdir -p profiles/local .penstock && chown {user} profiles/local .penstock" in commands


def test_what_a_build_wrote_for_its_owner_only_is_opened_to_the_images_user() -> None:
    """The owner is root: safetensors files have mode 600."""
    assert " ".join(BUILD[-1].words).endswith(" && chmod -R a+rX models")


def test_the_image_serves_what_compose_mounts() -> None:
    home = PurePosixPath(only(FINAL, "WORKDIR")[0])
    gateway = SERVICES["gateway"]
    profiles = load_settings(ROOT / "penstock.yaml").profiles.relative_to(ROOT)
    assert gateway["build"] == "."
    assert only(FINAL, "ENTRYPOINT") == ('["penstock"]',)
    assert only(FINAL, "CMD") == ('["serve"]',)  # of penstock.yaml in the working directory
    assert gateway["configs"] == [{"source": "penstock", "target": str(home / "penstock.yaml")}]
    kept = path_of(ROOT / "penstock.yaml").parent.relative_to(ROOT)
    assert gateway["volumes"] == [f"profiles:{home / profiles / 'local'}", f"placements:{home / kept}"]
    assert only(FINAL, "ENV") == (f"PATH={home}/.venv/bin:$PATH",)


def test_the_image_exposes_the_default_ports() -> None:
    server = ServerSettings()
    ports = (server.rest_port, server.grpc_port, server.metrics_port)
    assert only(FINAL, "EXPOSE") == tuple(map(str, ports))


def test_no_volume_hides_the_models_that_an_image_was_built_with() -> None:
    """A named volume is filled once: a newer image's models would not be seen."""
    assert not [volume for volume in SERVICES["gateway"]["volumes"] if "/models" in volume]
