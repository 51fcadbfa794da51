"""What docs/autoscaling.md shows is so."""

import re
from pathlib import Path

from router.settings import load_settings
from router.verbs.plan import plan_lines
from tests.deploy.files import ROOT

PAGE = (ROOT / "docs" / "autoscaling.md").read_text("utf-8")


def test_the_sample_comes_to_what_the_page_says(tmp_path: Path) -> None:
    (tmp_path / "models").symlink_to(ROOT / "models")
    sample = re.search(r"```yaml\n(prices:.*?)```", PAGE, re.DOTALL)
    shown = re.search(r"```\n(digits: SLO.*?)```", PAGE, re.DOTALL)
    assert sample is not None
    assert shown is not None
    path = tmp_path / "penstock.yaml"
    path.write_text(sample[1])
    lines = [re.sub("variants .*", "variants ...", line) for line in plan_lines(load_settings(path))]
    assert [line for line in lines if not line.startswith("cache:")] == shown[1].splitlines()


def test_files_that_the_page_names_are_there() -> None:
    names = re.findall(r"\]\(([^)#]+)", PAGE)
    assert "kubernetes/hpa.yaml" in names
    assert [name for name in names if not (ROOT / "docs" / name).exists()] == []
