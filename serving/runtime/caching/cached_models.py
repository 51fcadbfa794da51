"""What may be kept of each model's answers, as models come, go and change."""

from collections.abc import Mapping

from serving.cache.benefit import CacheBenefit
from serving.cache.keys import DIGEST_BYTES_MAX, variants_of
from serving.cache.suiting import accuracy_of
from serving.ports import Call
from serving.runtime.calls.builds import Builds
from serving.runtime.calls.nondeterminism import Doubts
from serving.values.specs import ServedModel


class CachePolicy:
    """The cache policy of a model as it is served now: the variants with answers that may be kept, and
    whether asking pays. `before`: the policy of the model as it was served until now; what it learnt holds
    for the same builds. `doubts`: the variants that are not deterministic, though they say so. `looked`: the
    changes of the doubts until then."""

    __slots__ = ("looked", "model", "variants", "worth")

    def __init__(self, model: ServedModel, doubts: Doubts, before: "CachePolicy | None" = None) -> None:
        self.model = model
        self.looked = doubts.changes
        names = set(model.variants if model.cache else ()) - doubts.of(model).keys()
        self.variants = frozenset(name for name in names if model.spec.variant(name).deterministic)
        same = before is not None and before.model.spec.variants == model.spec.variants
        self.worth: CacheBenefit = before.worth if before is not None and same else CacheBenefit()

    def asks(self, call: Call) -> bool:
        """Return whether the cache is asked: answers of every variant that may answer are kept, the call's
        too, it is no larger than a batch and than a digest may take, and asking pays."""
        allowed = variants_of(call)
        if not call.store or not allowed or not self.variants.issuperset(allowed):
            return False
        if call.rows > self.model.spec.batch_max or not self.worth.asks(call.inputs):
            return False
        return sum([len(tensor.data) for tensor in call.inputs]) <= DIGEST_BYTES_MAX


class CachedModels:
    """`models`: those that are served, a live mapping."""

    __slots__ = ("_builds", "_doubts", "_kept", "_models")

    def __init__(self, models: Mapping[str, ServedModel], builds: Builds, doubts: Doubts) -> None:
        self._models = models
        self._builds = builds
        self._doubts = doubts
        self._kept = {name: CachePolicy(model, doubts) for name, model in models.items()}

    def of(self, model: ServedModel) -> CachePolicy | None:
        """Return the model's cache policy, or None if replicas of another build may answer. None too for a
        model that is served differently by now: the key of the request then differs from the key of the
        answer."""
        kept, served = self._kept.get(model.name), self._models.get(model.name)
        if served is None or not served.stands_for(model):
            return None
        if kept is None or kept.model is not served or kept.looked != self._doubts.changes:
            kept = self._kept[model.name] = CachePolicy(served, self._doubts, kept)
        return None if model.name in self._builds.mixed else kept

    def may_keep(self, call: Call, variant: str, before: float) -> bool:
        """Return whether an answer of this variant is one to the key of a call that asked before: its model
        has not been changed since. `before`: how accurate the answer is that was kept then; none takes its
        place that is less so."""
        served = self._models.get(call.model.name)
        if served is None or not served.stands_for(call.model) or variant not in variants_of(call):
            return False
        return accuracy_of(call, variant) >= before

    def worth(self, name: str) -> CacheBenefit:
        """Return whether asking pays for a model that has been asked for, served still or not."""
        return self._kept[name].worth

    def worths(self) -> dict[str, CacheBenefit]:
        """Return the cache benefit of each served model with answers that are kept."""
        found = ((name, self.of(model)) for name, model in self._models.items())
        return {name: kept.worth for name, kept in found if kept is not None and kept.variants}

    def restart(self) -> None:
        """Forget what asking gained until now: it says nothing any more."""
        for kept in self._kept.values():
            kept.worth = CacheBenefit()
