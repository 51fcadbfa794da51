"""`--few N`: measures N batches of a variant and predicts the rest from what is known of the device."""

from collections.abc import Sequence
from dataclasses import replace

from router.verbs.profiling.asked import Target
from router.verbs.profiling.measuring import Measurer, Say
from serving.profile.curve import Profile
from serving.profile.derived.fewshot import Known, Predicted, next_point, predict, predicted_profile
from serving.profile.derived.surface import Place, Surface
from serving.profile.files.store import ProfileStore
from serving.profile.sweeping.exploration import coarse_rows


async def predict_rest(
    measurer: Measurer, store: ProfileStore, targets: Sequence[Target], few: int, say: Say
) -> None:
    """Measure the `few` batches of one variant that tell most, in each size bucket, and predict the others;
    `targets` are its shares. Keep a profile, marked as predicted, of each share that is not measured
    already."""
    model = targets[0].model
    references = others(store, measurer.device_kind, targets)
    places = [(each.share.amount, rows) for each in targets for rows in coarse_rows(model.batch_max, 2)]
    shares = {each.share.amount: each for each in targets}
    predictions: dict[int, Predicted] = {}
    measured: list[Profile] = []
    for size in reversed(model.sizes):
        surfaces = _surfaces(references, targets[0].share.kind, size)
        points: list[Known] = []
        while len(points) < few:
            place = next_point(points, surfaces, _spread(points, places), model.slo_us / 2)
            if place is None:
                break
            found = await measurer.measure_one(shares[place[0]], place[1], size)
            measured.append(found)
            points.append((*place, found.points[0].p50_us))
            say(f"{shares[place[0]]}: {place[1]} rows took {found.points[0].p50_us / 1000:.3g} ms")
        predictions[size] = predict(points, surfaces, places, targets[0].share.kind)
    for target in targets:
        guessed = predicted_profile(predictions, target.share, measured[0], references)
        if measurer.known(target) is None:
            origin = replace(measured[0].origin, error=guessed.origin.error)
            store.write(replace(guessed, origin=origin))
            say(f"{target}: predicted, give or take {origin.error:.0%}")


def others(store: ProfileStore, kind: str, targets: Sequence[Target]) -> list[Profile]:
    """Return the measured profiles of everything else on that kind of device, on the targets' shares."""
    own = (targets[0].model.name, targets[0].variant)
    shares = {each.share for each in targets}
    return [
        profile
        for found in store.sets(kind)
        if (found.model, found.variant) != own
        for profile in found.profiles
        if profile.share in shares and profile.measured
    ]


def _spread(points: Sequence[Known], places: Sequence[Place]) -> Sequence[Place]:
    """Return the places to choose from: the second on another share than the first, as one share tells
    nothing of how a variant scales, and what is predicted from it is called more certain than it is."""
    first = {amount for amount, _, _ in points}
    others = [place for place in places if place[0] not in first]
    return others if len(first) == 1 and others else places


def _surfaces(profiles: Sequence[Profile], kind: str, size: int) -> list[Surface]:
    """Return a surface for each variant and size bucket among them; first those of the same bucket."""
    named: dict[tuple[str, str], list[Profile]] = {}
    for profile in profiles:
        if profile.share.kind == kind:
            named.setdefault((profile.model, profile.variant), []).append(profile)
    found = []
    for each in named.values():
        sizes = {point.size for profile in each for point in profile.points}
        found += [Surface.of(each, known) for known in sorted(sizes, key=lambda known: abs(known - size))]
    return found
