"""`penstock rollout predict`: asks a gateway, or computes it here for settings that no gateway has yet."""

import json
import sys
import time
from functools import partial
from urllib.parse import quote, urlencode

from router.commandline.reading import read_json
from router.commandline.showing import show_read
from router.observing.rollout_status import RolloutPrediction
from router.settings import SettingsError, load_settings
from router.verbs.place.candidate.options import PredictOptions
from router.verbs.place.candidate.predicting import RolloutTask, as_one, candidate_of, predict
from router.verbs.place.question.rates import RunningGateway, given, watched
from router.verbs.simulate.traffic import SimulateRequestError

WAIT_S = 120.0
"""For a gateway's answer: others may be asking it for forecasts."""


def predict_rollout(options: PredictOptions) -> int:
    """Run `penstock rollout predict`; return the exit code."""
    if options.config is None:
        asked = f"?{urlencode({'rates': ','.join(options.rates)})}" if options.rates else ""
        path = f"/v2/rollouts/{quote(options.model, safe='')}/prediction{asked}"
        ask = partial(read_json, options.url, path, options.key_env, wait_s=WAIT_S)
        return show_read(options.url, ask, _lines, options.as_json)
    try:
        found = _computed(options)
    except (SettingsError, SimulateRequestError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    told = [json.dumps(found, indent=2)] if options.as_json else _lines(found)
    sys.stdout.write("\n".join([*told, ""]))
    return 0


def _lines(found: RolloutPrediction) -> list[str]:
    return found["said"]


def _computed(options: PredictOptions) -> RolloutPrediction:
    assert options.config is not None  # noqa: S101  # else the gateway is asked
    settings = load_settings(options.config)
    candidate, _ = candidate_of(settings, options.model)
    if options.rates:
        found = given(settings, options.rates, options.rows)
    else:
        found = watched(settings, RunningGateway(options.url, options.key_env), time.sleep)
    rates = as_one(found.by_model, options.model, candidate.name)
    made = next(predict(RolloutTask(settings, options.model, rates, {}, {})))
    if isinstance(made, str):
        raise SimulateRequestError(made)
    return made
