"""What is known of a model's members: who is to be asked, what votes weigh, what feedback has taught."""

from collections.abc import Callable, Collection, Sequence

import numpy as np

from serving.policy.variants.exp3 import Exp3
from serving.policy.variants.exp4 import Exp4
from serving.policy.variants.pressure import Pressure
from serving.policy.variants.voting import Classes, Panel, Subset, Weights, convene
from serving.selection.ballots import Ballot
from serving.selection.feedback import Feedback, FeedbackError, Queries
from serving.values.specs import ServedModel, Validation

_ROUNDING = 1e-9
_FLOORS_MAX = 64  # clients choose floors


class Chooser:
    """Of one model with a `selection`. `before`: of the same model until now: what it learnt of the same
    members by the same policy goes on. `name_answer`: as of `Queries`. `panel` is an ensemble's, `exp3` and
    `exp4` are those policies', None with the others. ValueError where the selection does not fit the model.
    """

    __slots__ = (
        "_asked", "ballot", "exp3", "exp4", "members", "model", "panel", "policy", "pressure", "queries",
        "taken",
    )  # fmt: skip

    def __init__(
        self, model: ServedModel, name_answer: Callable[[], str], before: "Chooser | None" = None
    ) -> None:
        selection = model.selection
        if selection is None:
            raise ValueError(f"{model.name} has no selection")
        self.model = model
        self.policy, self.members = selection.policy, selection.members
        self.ballot = Ballot(model, selection.output)
        count = len(self.members)
        self.panel: Panel | None = None
        self.exp3: Exp3 | None = None
        self.exp4: Exp4 | None = None
        if self.policy == "ensemble":
            if model.spec.validation is None:
                raise ValueError(f"{model.name}: an ensemble needs validation data in its model.yaml")
            self.panel = self._convene(model.spec.validation, before)
        elif self.policy == "exp3":
            self.exp3 = Exp3(count)
        else:
            self.exp4 = Exp4(count)
        self.pressure = Pressure(count)
        self._asked: dict[float, Subset] = {}
        self.queries = Queries(selection.keep_us, name_answer)
        self.taken = 0
        if before is not None and (before.policy, before.members) == (self.policy, self.members):
            self.exp3, self.exp4, self.taken = before.exp3, before.exp4, before.taken
            self.pressure = before.pressure
            if before.ballot.classes == self.ballot.classes:
                self.queries = before.queries
                self.queries.keep_us = selection.keep_us

    def _convene(self, validation: Validation, before: "Chooser | None") -> Panel:
        """Return the panel; as it was where it follows from the same, for measuring one takes
        milliseconds."""
        if before is not None and before.panel is not None and before.members == self.members:
            known = before.model.spec.validation
            if known == validation and before.ballot.classes == self.ballot.classes:
                return before.panel
        return convene(validation, self.members, self.ballot.classes)

    # who is asked

    def allowed(self, floor: float, barred: Collection[int] = ()) -> list[bool]:
        """Return which members may answer alone."""
        return [
            place not in barred and (not floor or (self.model.accuracy(name) or 0.0) >= floor - _ROUNDING)
            for place, name in enumerate(self.members)
        ]

    def ask(self, floor: float) -> Subset:
        """Return the members to ask together. For an ensemble: under pressure the cheapest subset that keeps
        the floor, else the best subset. Otherwise: all members that keep the floor; () if none do. The choice
        holds until `look`."""
        asked = self._asked.get(floor)
        if asked is None:
            if len(self._asked) >= _FLOORS_MAX:
                self._asked.clear()
            asked = self._asked[floor] = self._choose(floor)
        return asked

    def look(self, slices: float, now_us: int) -> None:
        """See whether something presses; `slices` as of `Pressure.look`."""
        self.pressure.look(slices, self.whole, now_us)
        self._asked.clear()

    def _choose(self, floor: float) -> Subset:
        if self.panel is None:
            return tuple(place for place, may in enumerate(self.allowed(floor)) if may)
        if not self.pressure.overloaded:
            return self.panel.best(floor)
        return self.panel.cheapest(floor, self.pressure.costs)

    @property
    def whole(self) -> Subset:
        """Return the members to ask together when there is no pressure."""
        return self.panel.whole if self.panel is not None else tuple(range(len(self.members)))

    # what answers are worth

    def quorum(self, voted: Subset, floor: float) -> Subset:
        """Return the voters that count: all of them, or, if together they do not keep the floor, their most
        accurate subset that does; () if none does."""
        if self.panel is None or not voted:
            return voted
        return self.panel.within(voted, floor)

    def weights(self, voted: Subset, named: Classes) -> Weights:
        """Return the weights of votes, `[members, rows]` as `named`."""
        if self.panel is not None:
            return np.take_along_axis(self.panel.weights[[*voted]], named, 1)
        return np.repeat(self._learnt()[[*voted]][:, None], named.shape[1], 1)

    def absent(self, missing: Subset) -> float:
        """Return the weight that missing votes would have had."""
        worth = self.panel.weights.mean(1) if self.panel is not None else self._learnt()
        return float(worth[[*missing]].sum()) if missing else 0.0

    def accuracy(self, voted: Subset) -> float | None:
        """Return the measured accuracy of these members together; None if it was not measured."""
        return self.panel.accuracy[voted] if self.panel is not None else None

    def _learnt(self) -> Weights:
        return np.array(self.exp4.weights() if self.exp4 is not None else [1.0] * len(self.members))

    # what is learnt

    @property
    def learns(self) -> bool:
        """Whether feedback is taken on answers."""
        return self.panel is None

    def learn(self, given: Sequence[Feedback], now_us: int, tenant: str) -> None:
        """Take a tenant's feedback on its answers: all, or none with FeedbackError where any cannot be."""
        if self.panel is not None:
            message = f"{self.model.name} learns nothing from feedback: its weights are those of validation"
            raise FeedbackError(message, conflict=True)
        seen: set[str] = set()
        found = []
        for said in given:
            answered = self.queries.find(said.query, now_us, tenant)
            if said.query in seen:
                raise FeedbackError(f"query '{said.query}' occurs twice", conflict=True)
            seen.add(said.query)
            found.append((answered, answered.losses(said, self.ballot.classes)))
        for said, (answered, losses) in zip(given, found, strict=True):
            self.queries.take(said.query)
            if self.exp3 is not None:
                self.exp3.learn(answered.members[0], losses[0], answered.probability, answered.allowed)
            elif self.exp4 is not None:
                self.exp4.learn(dict(zip(answered.members, losses, strict=True)))
        self.taken += len(given)

    def describe(self) -> dict[str, object]:
        """Return the policy, the members and the state of each, as JSON values."""
        told: dict[str, object] = {"model": self.model.name, "policy": self.policy}
        members: list[dict[str, object]] = [{"name": name} for name in self.members]
        if self.panel is not None:
            for member, weights in zip(members, self.panel.weights, strict=True):
                member["weights"] = [round(each, 4) for each in weights.tolist()]
            told |= self._describe_subsets(self.panel)
        elif self.exp3 is not None:
            for member, share, plays in zip(members, self.exp3.probabilities(), self.exp3.plays, strict=True):
                member |= {"probability": share, "plays": plays}
        elif self.exp4 is not None:
            for member, weight in zip(members, self.exp4.weights(), strict=True):
                member["weight"] = weight
        if self.panel is None:
            told |= {"feedback": self.taken, "queries": len(self.queries)}
        return told | {"members": members}

    def _describe_subsets(self, panel: Panel) -> dict[str, object]:
        costs = self.pressure.costs

        def named(subset: Subset) -> list[str]:
            return [self.members[place] for place in subset]

        ranked = sorted(panel.accuracy.items(), key=lambda found: -found[1])
        return {
            "overloaded": self.pressure.overloaded,
            "asked": named(self.ask(self.model.own.accuracy_min)),
            "standard_error": panel.error,
            "subsets": [
                {
                    "members": named(subset),
                    "accuracy": accuracy,
                    "row_us": sum(known) if all(known := [costs[place] for place in subset]) else None,
                }
                for subset, accuracy in ranked
            ],
        }
