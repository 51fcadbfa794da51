"""`penstock explain`: why the variant that answers does, why there are so many replicas, and what would
change it; of a running gateway."""

import json
import sys
import time
from typing import Final, cast
from urllib.parse import quote

from router.commandline.key_env import KEY_ENV
from router.commandline.reading import RefusedError, UnreachableError, read_json
from router.observing.cache_status import cache_sentences
from router.observing.isolation import isolation_sentence
from router.observing.rollout_status import RolloutsBody, rollout_sentence
from router.tensors.parts.wording import listed, quoted, suggestion
from router.verbs.explain.body import Explanation, Promise
from router.verbs.explain.replicas import replica_sentences
from router.verbs.explain.words import sentences

WATCHED_S: Final = 1.0
"""The gateway is asked twice, so long apart: what it answers now is what it answered meanwhile."""


class UnexplainedError(Exception):
    """It cannot be explained; the text is one sentence for the operator."""


def explain(
    model: str,
    url: str,
    tier: str = "",
    as_json: bool = False,
    watched_s: float = WATCHED_S,
    key_env: str = KEY_ENV,
) -> int:
    """Print the explanation; return the exit code. `tier`: the tier to explain, "" for requests without a
    tier; `as_json`: all that the gateway says, of one moment. On an error, print one line on standard error
    and return 1."""
    try:
        first = read(model, url, key_env)
        promise_of(first, tier)
        if as_json:
            sys.stdout.write(json.dumps(first, indent=2) + "\n")
            return 0
        time.sleep(watched_s)
        now = read(model, url, key_env)
        lines = [*sentences(now, promise_of(now, tier), first), "", *replica_sentences(now, first)]
        lines += _process(now) + _kept(now) + _rolled(model, url, key_env)
    except (UnreachableError, UnexplainedError) as error:
        sys.stderr.write(f"{error}\n")
        return 1
    except KeyboardInterrupt:
        return 1
    if not tier and (tiers := [each["tier"] for each in now["promises"] if each["tier"]]):
        lines += ["", f"other promises, by --tier: {', '.join(tiers)}"]
    sys.stdout.write("\n".join([*lines, ""]))
    return 0


def _process(now: Explanation) -> list[str]:
    """Return the lines on the model's worker processes."""
    isolation = now.get("isolation")
    return ["", "process", f"  {isolation_sentence(isolation)}"] if isolation is not None else []


def _kept(now: Explanation) -> list[str]:
    """Return the lines on the model's kept answers since the start; nothing if there are none, and none were
    to be."""
    said = [*cache_sentences(now["cache"])] if now["cache"] is not None else []
    return ["", "kept answers", *(f"  {each}" for each in said)] if said else []


def _rolled(model: str, url: str, key_env: str) -> list[str]:
    """Return the lines on the model's guarded rollout, as the model or as the candidate; none without one, or
    of a gateway that knows none."""
    try:
        found = cast(RolloutsBody, read_json(url, "/v2/rollouts", key_env))
    except RefusedError:
        return []
    said = [
        rollout_sentence(each) for each in found["rollouts"] if model in (each["model"], each["candidate"])
    ]
    return ["", "rollout", *(f"  {each}" for each in said)] if said else []


def read(model: str, url: str, key_env: str = KEY_ENV) -> Explanation:
    """Return what the gateway at `url` says; UnreachableError where there is none, UnexplainedError where it
    does not serve the model."""
    try:
        found = read_json(url, f"/v2/models/{quote(model, safe='')}/explain", key_env)
    except RefusedError as error:
        if error.said and error.code not in (401, 403):  # of those the text says all
            raise UnexplainedError(f"{url}: {error.said}") from error
        raise
    if not isinstance(found, dict) or not Explanation.__required_keys__ <= found.keys():
        raise UnreachableError(f"No gateway at {url} (its answer explains no model).")
    return cast(Explanation, found)


def promise_of(explained: Explanation, tier: str) -> Promise:
    """Return the tier's promise. Raises UnexplainedError if there is no tier of that name."""
    by_tier = {each["tier"]: each for each in explained["promises"]}
    if tier in by_tier:
        return by_tier[tier]
    known = [each for each in by_tier if each]
    rest = suggestion(tier, known) or (f"; its tiers are {listed(known)}" if known else "; it has none")
    raise UnexplainedError(f"{explained['model']} has no tier {quoted(tier)}{rest}")
