"""What a live gateway notices of a profile, over a real worker whose batches take longer than measured."""

from pathlib import Path

import pytest

from serving.control.state.replicas import ReplicaRecord
from serving.policy.estimates.freshness import BATCHES, Freshness
from serving.values.vocabulary import COMPLETED
from tests.runtime.house import House, house, undeclared

pytestmark = [pytest.mark.live, pytest.mark.slow]


def replica(here: House) -> ReplicaRecord:
    return next(iter(here.fleet.control.slices["s"].replicas.values()))


async def serve(here: House, delay_ms: int) -> None:
    """Batches one after the other, that take so much longer than the model's own sample."""
    for _ in range(BATCHES):
        assert (await here.submit(here.delay(delay_ms))[1]).outcome is COMPLETED


async def test_a_profile_that_has_drifted_is_flagged_said_and_measured_anew_when_idle(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    models = (undeclared(tmp_path / "identity"),)
    async with house(tmp_path, models=models, slo_us=20_000_000) as here:
        await serve(here, 5)
        assert replica(here).freshness is Freshness.STALE
        (judgement,) = here.gateway.judgements()
        assert judgement.freshness is Freshness.STALE
        assert judgement.ratio > 2
        assert "the profile of identity default on slice s is stale" in caplog.text
        await here.until(lambda: replica(here).sweep.renewing)
