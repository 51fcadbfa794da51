"""What a gateway imports as it starts: each of these takes a quarter of a second or more."""

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
