"""A witness beside the scheduler: it performs each event and holds what is said in return to the rules."""

import pytest

from serving.policy.isolation import FAILURES_MAX
from serving.scheduler.commands import Answer, Miss, ReplaceWorker, Suspect
from serving.scheduler.endings import RETRIES
from serving.scheduler.slices.replicas import Replica
from serving.scheduler.waiting.requests import Request
from serving.values.specs import ServedModel
from serving.values.vocabulary import (
    CLIENT_GONE,
    COMPLETED,
    DEADLINE_UNREACHABLE,
    DRAINING,
    MODEL_ERROR,
    NEVER_US,
    NO_REPLICA,
    OVERLOAD,
    QUOTA,
    TOO_LARGE,
    WORKER_LOST,
)
from tests.scheduler.rules import COMPUTED, LOST, Away, Case, Site
from tests.scheduler.values import only
from tests.scheduler.verdicts import COME_BACK, Verdicts

HELD_OFF = (OVERLOAD, QUOTA, DEADLINE_UNREACHABLE)


class Witness(Verdicts):
    """One method per event, each with its promises."""

    # events of requests

    def arrive(self, request: Request, now_us: int) -> None:
        expected, before_us, due_us = (
            self.refusal(request, now_us),
            self.scheduler.wake_us,
            request.deadline_us,
        )
        cuts = self.cuts(request) if expected is None else []
        later_us = self.later_us(request)
        asks = expected not in (DRAINING, NO_REPLICA) and self.asks_us(request, now_us) <= now_us
        self.book.came(request, now_us)
        commands = self.scheduler.arrive(request, now_us)
        misses = only(commands, Miss)
        assert len(misses) == asks, "what is wanted is asked for, once in a while"
        self._miss(misses, request, now_us)
        if expected is not None or len(commands) > len(misses):
            (answer,) = only(commands, Answer)
            assert len(commands) == 1 + len(misses)
            held_off = self.policy(request.model) == "slo" and answer.outcome in HELD_OFF
            held_off |= answer.outcome is TOO_LARGE and self.too_dear(request)
            assert answer.outcome is expected or (expected is None and held_off)
            assert answer.retry_us > 0 or answer.outcome not in COME_BACK or self.vain(request)
            self.outcomes[request.id] = answer.outcome
            self.book.ended(request, answer.outcome, request.deadline_us, now_us)
        else:
            assert [(piece.first_row, piece.deadline_us) for piece in request.pieces] == cuts
            assert sum(piece.rows for piece in request.pieces) == request.rows
            assert request.deadline_us == due_us, "what was promised stays, whatever its rows"
            assert request.latest_us == request.pieces[-1].deadline_us + request.declared_us
            case = self.open[request.id] = Case(request)
            case.unsettled = None if self.allowed(request) or request.rows == 1 else later_us
            self._woken(request, due_us - request.declared_us, before_us, now_us)
        self.check(now_us)

    def _woken(self, request: Request, due_us: int, before_us: int, now_us: int) -> None:
        """A plan is asked for where a slice can take a batch, else for what it brings nearer."""
        mine = [site for site in self.sites.values() if site.serves(request.model)]
        opens_us = min((site.opens_us() for site in mine), default=NEVER_US)
        if opens_us > now_us:
            nearer_us = min(request.expires_us, opens_us)
            if not self.allowed(request):
                hopeless_us = self.hopeless_us(request.pieces[0], now_us)
                nearer_us = min(nearer_us, hopeless_us, self.asks_us(request, now_us))
            if any(site.suspect for site in mine):
                nearer_us = min(nearer_us, due_us)
            wake_us = min(before_us, max(nearer_us, now_us))
            changes = not mine and self.choices(request) > 1
            if self.scheduler._admission.is_due:  # reviews come first, at once
                wake_us = now_us
            assert self.scheduler.wake_us == wake_us or changes, "a plan for nothing"

    def cancel(self, request_id: int, now_us: int) -> None:
        known = request_id in self.open
        self._conclude(self.scheduler.cancel(request_id), now_us, {CLIENT_GONE: lambda c: known})
        assert request_id not in self.open
        self.check(now_us)

    def tighten(self, request_id: int, deadline_us: int, now_us: int) -> None:
        case, before_us = self.open.get(request_id), self.scheduler.wake_us
        was_us = case.pieces_due_us if case is not None else []
        assert not self.scheduler.tighten(request_id, deadline_us, now_us)
        if case is not None:
            deadline_us -= case.request.declared_us
            case.tight_us = [min(due_us, deadline_us) for due_us in was_us]
            assert case.pieces_due_us == case.tight_us
        if case is not None and self._looks(case.request.model) and case.waits and case.tight_us != was_us:
            assert self.scheduler.wake_us <= now_us
        elif case is not None and case.waits and case.tight_us != was_us:
            self._woken(case.request, deadline_us, before_us, now_us)
        else:
            assert self.scheduler.wake_us == before_us, "a plan for nothing"
        self.check(now_us)

    def pass_on(self, request_id: int, successor: Request, now_us: int) -> None:
        """From now on its pieces are due as if the heir had asked."""
        case, before_us = self.open[request_id], self.scheduler.wake_us
        later_us = successor.deadline_us - case.request.deadline_us
        own, declared_us = successor.expires_us != NEVER_US, case.request.declared_us
        successor_us = successor.deadline_us - declared_us
        case.unsettled = 0 if own and case.unsettled is not None else case.unsettled
        case.due_us = [successor_us if own else due_us + later_us for due_us in case.due_us]
        self.scheduler.pass_on(case.request, successor, now_us)
        case.tight_us = case.due_us
        assert case.pieces_due_us == case.due_us
        assert case.request.deadline_us == successor.deadline_us
        assert case.request.latest_us == case.due_us[-1] + declared_us
        assert (case.request.tenant, case.request.arrived_us) == (successor.tenant, successor.arrived_us)
        if case.waits and self._looks(case.request.model):
            assert self.scheduler.wake_us <= now_us
        elif case.waits:
            self._woken(case.request, successor_us, before_us, now_us)
        else:
            assert self.scheduler.wake_us == before_us, "a plan for nothing"
        self.check(now_us)

    def expire(self, request_id: int, expires_us: int, now_us: int) -> None:
        self.scheduler.expire(request_id, expires_us, now_us)
        assert self.open[request_id].request.expires_us == expires_us
        self.check(now_us)

    def wake(self, now_us: int) -> None:
        commands = self.scheduler.wake(now_us)
        doubted, stalled = [], []
        for name, site in self.sites.items():
            if not site.suspect and site.suspect_us() <= now_us:
                site.suspect = True
                doubted.append(name)
            if site.stall_us(self.limits.stall_us) <= now_us:
                site.warned_us = now_us
                stalled.append(name)
        assert [command.slice for command in only(commands, Suspect)] == doubted
        assert [command.slice for command in only(commands, ReplaceWorker)] == stalled
        self._conclude(commands, now_us, {})
        self._settled(now_us)
        assert self.scheduler.wake_us > now_us, "a driver would spin"

    def drain(self) -> None:
        self.scheduler.drain()
        self.draining = True

    # events of batches and slices

    def batch_done(self, batch_id: int, compute_us: int, now_us: int) -> None:
        site, batch = self._finish(batch_id, COMPUTED, now_us)
        if self._is_of(site, batch):
            site.failures[batch.model, batch.variant] = 0
        told_us, expected_us = batch.told_us(compute_us), batch.typical_us - batch.declared_us
        if 2 * told_us > expected_us:  # else it shows that the estimate is far too high
            self.heard_us[batch.model] = now_us
        self.book.ran(batch.model, batch.started_us, compute_us)
        commands = self.scheduler.batch_done(batch_id, compute_us, now_us)
        self._conclude(commands, now_us, {COMPLETED: lambda case: set(case.rows) == {COMPUTED}})
        assert all(answer.batch is batch for answer in only(commands, Answer) if answer.outcome is COMPLETED)
        assert all(set(case.rows) != {COMPUTED} for case in self.open.values())
        self._settled(now_us)

    def batch_failed(self, batch_id: int, now_us: int) -> None:
        site, batch = self._finish(batch_id, LOST, now_us)
        replica = (batch.model, batch.variant)
        failures = 0
        if self._is_of(site, batch):
            failures = site.failures[replica] = site.failures.get(replica, 0) + 1
        left = [p for p in batch.pieces if p.request.id in self.open and p.request.expires_us > now_us]
        again = len(batch.pieces) > 1 and failures <= FAILURES_MAX
        broken = {p.request.id for p in left if not again or not self.in_time(p.request, now_us)}
        for place, piece in enumerate(left):
            self.parts[piece] = (batch.id, int(place >= (len(left) + 1) // 2))
        commands = self.scheduler.batch_failed(batch_id, "why", now_us)
        self._conclude(commands, now_us, {MODEL_ERROR: lambda case: case.request.id in broken})
        assert not broken & set(self.open)
        assert all(a.detail == "why" for a in only(commands, Answer) if a.outcome is MODEL_ERROR)
        self._settled(now_us)

    def unknown_batch(self, batch_id: int, now_us: int) -> None:
        """A report of a batch that is not in flight (any more)."""
        before = self.scheduler.wake_us
        assert not self.scheduler.batch_done(batch_id, 1, now_us)
        assert not self.scheduler.batch_failed(batch_id, "why", now_us)
        assert self.scheduler.wake_us == before
        self.check(now_us)

    def replica_up(self, slice_name: str, model: str, replica: Replica, now_us: int) -> None:
        site, variant = self.sites.setdefault(slice_name, Site()), (model, replica.variant)
        if variant in site.replicas and site.replicas[variant].id != replica.id:
            site.failures.pop(variant, None)
        site.replicas[variant] = replica
        self.away.pop(variant, None)
        commands = self.scheduler.replica_up(slice_name, model, replica, now_us)
        for case in self.open.values():
            self._settle(case)
        self._conclude(commands, now_us, {})
        self._settled(now_us)

    def slice_down(self, slice_name: str, now_us: int, blamed: bool) -> None:
        known = slice_name in self.sites
        site = self.sites.pop(slice_name, Site())
        self.latest.update(site.replicas)
        late = set()
        for batch in site.running.values():
            self._mark(batch, LOST)
            for request in {piece.request for piece in batch.pieces if piece.request.id in self.open}:
                self.open[request.id].lost += (RETRIES + 1 if blamed else 1) * (batch is site.runs)
                if not self.in_time(request, now_us):
                    late.add(request.id)
        commands = self.scheduler.slice_down(slice_name, "why", now_us, blamed)
        self._conclude(
            commands, now_us, {WORKER_LOST: lambda case: case.request.id in late or self.doomed(case)}
        )
        assert not late & set(self.open)
        assert not any(self.doomed(case) for case in self.open.values())
        self._settled(now_us) if known else self.check(now_us)

    def replica_down(self, slice_name: str, model: str, variant: str, now_us: int) -> None:
        site = self.sites.get(slice_name, Site())
        replica = site.replicas.pop((model, variant), None)
        known = replica is not None
        if replica is not None:
            self.latest[model, variant] = replica
        site.failures.pop((model, variant), None)
        commands = self.scheduler.replica_down(slice_name, model, variant, "why", now_us)
        self._conclude(commands, now_us, {WORKER_LOST: self.doomed})
        assert not any(self.doomed(case) for case in self.open.values())
        self._settled(now_us) if known else self.check(now_us)

    # events of models

    def serve(self, model: ServedModel, now_us: int) -> None:
        """Its batches may be as large as before until its replicas have heard of it."""
        before = self.models.get(model.name, model)
        self.models[model.name] = model
        self.retired.discard(model.name)
        self.book.serve(model.name, now_us)
        if (before.batching, before.slo_us) != (model.batching, model.slo_us):
            self.heard_us.pop(model.name, None)
        self.largest[model.name] = max(before.spec.batch_max, model.spec.batch_max)
        self._conclude(self.scheduler.serve(model, now_us), now_us, {})
        self._settled(now_us)

    def retire(self, model: str, now_us: int) -> None:
        self.scheduler.retire(model)
        self.retired.add(model)
        self.check(now_us)

    def forget(self, model: str) -> bool:
        """Whether it could be."""
        if self.open_of(model) or any(site.serves(model) for site in self.sites.values()):
            with pytest.raises(ValueError, match="cannot be forgotten"):
                self.scheduler.forget(model)
            return False
        self.scheduler.forget(model)
        del self.models[model]
        self.book.forget(model)
        self.heard_us.pop(model, None)
        self.away = {key: away for key, away in self.away.items() if key[0] != model}
        self.latest = {key: replica for key, replica in self.latest.items() if key[0] != model}
        return True

    def cold(self, model: str, variant: str, load_us: int, now_us: int) -> None:
        away = self.away.get((model, variant))
        if load_us == NEVER_US:
            self.away.pop((model, variant), None)
        elif away is not None and away.ready_us is None:
            away.load_us = load_us
        else:
            self.away[model, variant] = Away(load_us)
        commands = self.scheduler.cold(model, variant, load_us, now_us)
        self._conclude(commands, now_us, {WORKER_LOST: self.doomed})
        assert not any(self.doomed(case) for case in self.open.values())
        self._settled(now_us)

    def expect(self, model: str, variant: str, ready_us: int, now_us: int) -> None:
        self.away.setdefault((model, variant), Away(0)).ready_us = ready_us
        self._conclude(self.scheduler.expect(model, variant, ready_us, now_us), now_us, {})
        self._settled(now_us)

    def hold(self, slice_name: str, now_us: int) -> None:
        self.scheduler.hold(slice_name)
        if slice_name in self.sites:
            self.sites[slice_name].holds += 1
        self.check(now_us)

    def release(self, slice_name: str, now_us: int) -> None:
        site = self.sites.get(slice_name)
        free = site is None or site.holds == 0
        if site is not None and not free:
            site.holds -= 1
        self._conclude(self.scheduler.release(slice_name, now_us), now_us, {})
        self.check(now_us) if free else self._settled(now_us)
