"""`penstock rollout status`, `start`, `promote` and `abort`."""

from urllib.parse import quote

from router.commandline.key_env import KEY_ENV
from router.commandline.showing import show_answer
from router.observing.rollout_status import MeasureStatus, RolloutsBody, RolloutStatus, rollout_sentence
from serving.values.rollouts import ACCURACY

PATH = "/v2/rollouts"
WORDS = {
    "attainment": "in time",
    "errors": "without an error",
    "latency": "as quick",
    "agreement": "agreeing",
    ACCURACY: "right",
}


def show_rollouts(url: str, as_json: bool = False, key_env: str = KEY_ENV) -> int:
    """Print all rollouts; return the exit code."""
    return show_answer(url, PATH, _all_lines, key_env, as_json)


def act(model: str, verb: str, url: str, key_env: str = KEY_ENV) -> int:
    """Start, promote or abort a rollout, and print it; return the exit code."""
    return show_answer(url, f"{PATH}/{quote(model, safe='')}/{verb}", rollout_lines, key_env, body=b"")


def _all_lines(found: RolloutsBody) -> list[str]:
    none = "no model has a candidate: state `rollout: {of: MODEL}` at another model"
    none += ", or `rollout:` at a model with versions"
    return [line for each in found["rollouts"] for line in rollout_lines(each)] or [none]


def rollout_lines(now: RolloutStatus) -> list[str]:
    """Return the lines on a rollout."""
    steps = ", ".join(f"{each * 100:g}" for each in now["steps"])
    held = f"; step {now['step']} of {steps} %, for {now['held_s']:.0f} s" if now["state"] == "canary" else ""
    return [f"{rollout_sentence(now)}{held}", *(_measure(each) for each in now["measures"])]


def _measure(each: MeasureStatus) -> str:
    if each["measure"] == ACCURACY and not each["requests"]:
        return "  right: labels on answers of both models are missing"
    both = (
        f"{each['candidate']:.2%} of {each['requests']:,}, and {each['present']:.2%} of the present model's"
    )
    told = f"{each['fine']:.0%} of the evidence for a step, {each['worse']:.0%} of that for a rollback"
    return f"  {WORDS.get(each['measure'], each['measure'])}: {both}; {told}"
