"""Of models whose members answer together, or as is learnt of them: who they are, and where more is said."""

from collections.abc import Iterator

from router.verbs.explain.body import Explanation, Promise
from router.verbs.explain.happened import happened
from router.verbs.explain.numbers import joined, named, rate
from router.verbs.explain.promised import promised

_HOW = {
    "ensemble": "by a weighted majority; the fewest are asked whose joint accuracy is enough",
    "exp3": "one of them at a time, by what feedback says of each",
    "exp4": "together, weighed by what feedback says of each",
}


def selection_sentences(now: Explanation, promise: Promise, before: Explanation | None) -> Iterator[str]:
    """Yield sentences on a model with a `selection`, as `words.sentences` does for others."""
    members = [named(each) for each in now["variants"] if each["name"] in now["members"]]
    yield promised(now, promise)
    yield from ("", "may answer", f"  {joined(members)}: {_HOW[now['selection']]}")
    others = [each for each in now["variants"] if each["name"] not in now["members"] and each["served"]]
    if others:
        yield "do not answer"
        yield from (f"  {named(each)} answers only where a request pins it" for each in others)
    where = f"GET /v2/models/{now['model']}/selection says who is asked, and what they weigh"
    yield from ("", "now", f"  {rate(now['rate'])} rows/s come to the members; {where}")
    yield from (f"  {each}" for each in happened(now, promise, before))
