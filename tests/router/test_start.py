"""What a gateway imports as it starts, and a command as it asks one: a part takes a quarter of a second."""

import subprocess
import sys

import pytest

HEAVY = {"matplotlib", "pandas", "scipy", "torch", "transformers"}


@pytest.mark.slow
def test_a_gateway_starts_without_what_only_planning_and_models_need() -> None:
    listed = "import sys, router.startup.serve; print(*{name.partition('.')[0] for name in sys.modules})"
    ended = subprocess.run([sys.executable, "-c", listed], capture_output=True, text=True, check=True)
    assert "numpy" in ended.stdout.split()
    assert not HEAVY.intersection(ended.stdout.split())


@pytest.mark.slow
def test_to_ask_for_an_upgrade_needs_no_gateway() -> None:
    listed = "import sys, router.startup.upgrade.asking; print(*sys.modules)"
    ended = subprocess.run([sys.executable, "-c", listed], capture_output=True, text=True, check=True)
    assert "router.startup.upgrade.going" in ended.stdout.split()
    assert "router.startup.deployment" not in ended.stdout.split()
