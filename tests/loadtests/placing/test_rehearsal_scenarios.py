"""ParvaGPU's scenarios become settings that rehearse exactly what is planned."""

import json
from pathlib import Path

import pytest

from loadtests.placing.fleets import scenario
from loadtests.placing.rehearsal_scenarios import A100, plan, scene
from router.settings import load_settings
from tests.policy.placement.parvagpu_data import data_folder

pytestmark = pytest.mark.slow


def test_a_planned_scenario_is_rehearsed_instance_by_instance(tmp_path: Path) -> None:
    demands = scenario(data_folder(), 1, 5)
    instances = plan(demands)
    assert len({each.gpu for each in instances}) == 2
    config = tmp_path / "penstock.yaml"
    config.write_text(json.dumps(scene(demands, instances, 4.0, tmp_path)))
    settings = load_settings(config)
    assert len(settings.slices) == sum(each.option.processes for each in instances)
    assert {each.kind for each in settings.slices} == {A100}
    assert len({each.device for each in settings.slices}) == 2
    assert {model.name: model.slo_us for model in settings.models} == {
        each.model: pytest.approx(4 * each.slo_us, abs=1) for each in demands
    }
