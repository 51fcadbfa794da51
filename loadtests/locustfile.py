"""Locust: users of the sample models as scenarios, or the same open loop as openloop.py, without a picture.

Scenario users ask, wait for the answer, think, ask again, so they are a closed loop; for latencies under a
rate use the open loop. Run as a module, from the root of the repository:

  python -m locust -f loadtests/locustfile.py -H http://127.0.0.1:8000 --headless -u 50 -r 10 -t 30s
  python -m locust -f loadtests/locustfile.py -H http://127.0.0.1:8000 --headless DigitsUser -u 20 -t 30s
  python -m locust -f loadtests/locustfile.py -H http://127.0.0.1:8000 --headless \\
      --open-loop digits=300,minilm=10 --open-seconds 20

A refusal because too much is asked (overload, a full queue, a deadline that cannot be met) is the gateway's
normal answer and no failure: it has a row of its own, "NAME refused (reason)", and the latencies of NAME are
those of answers. The user then waits for as long as the gateway says. All else is a failure.

Add --only-summary, --csv PREFIX or --html FILE as you like. Without --headless the same comes with a web page
on port 8089. In the open loop one user walks the arrivals, each gets a greenlet when it is due, response
times count from that instant, and the exit code is 1 where the dispatcher was late. It reaches some 1,500
requests a second; openloop.py reaches 5,000 in a quarter of a core.
"""

import itertools
import sys
import time
from collections.abc import Iterator, Sequence
from typing import Any, cast

import gevent  # type: ignore[import-untyped]
import numpy as np
from gevent.pool import Pool  # type: ignore[import-untyped]
from locust import FastHttpUser, LoadTestShape, User, between, constant, events, task

from loadtests.harness.payloads import (
    Contents,
    Question,
    Target,
    fetch_metadata,
    make_questions,
    stated_slo_ms,
)
from loadtests.harness.report import percentiles
from loadtests.openloop import read_loads
from serving.simulation.traffic.patterns import due_times
from serving.values.vocabulary import (
    DEADLINE_QUEUED,
    DEADLINE_RUNNING,
    DEADLINE_UNMET,
    DEADLINE_UNREACHABLE,
    MEMORY_FULL,
    OVERLOAD,
    QUEUE_FULL,
    QUOTA,
)

REFUSALS = frozenset(
    each.reason
    for each in (
        OVERLOAD, QUOTA, QUEUE_FULL, MEMORY_FULL, DEADLINE_QUEUED, DEADLINE_RUNNING, DEADLINE_UNMET,
        DEADLINE_UNREACHABLE,
    )
)  # fmt: skip
"""Reasons of answers that say that too much is asked at the moment."""
RETRY_MS = 100.0  # to wait after a refusal that does not say for how long
IN_FLIGHT_MAX = 1024  # of the open loop: FastHttpUser's 10 connections would close it without a word
LATE_SHARE_MAX = 0.05  # p99 of the dispatcher's lateness, as a share of the tightest SLO


def add_options(parser: Any) -> None:  # locust's own kind of argument parser
    """Add the options of the open loop; without the first of them, scenario users run."""
    parser.add_argument("--open-loop", default="", help="loads as in openloop.py; instead of scenario users")
    parser.add_argument("--open-seconds", type=float, default=10.0, help="how long arrivals come")
    parser.add_argument("--open-cv", type=float, default=1.0, help="of the gaps; 1 is Poisson")
    parser.add_argument("--open-seed", type=int, default=0, help="of arrivals and contents")


events.init_command_line_parser.add_listener(add_options)  # type: ignore[no-untyped-call]


def refusal(headers: Any) -> str:  # one of two libraries' mappings, None where nothing answered
    """Return why the gateway turned a request away that it could take at another time, "" where it did
    not."""
    reason = (headers or {}).get("x-penstock-reason", "")
    return reason if reason in REFUSALS else ""


def refused(name: str, reason: str) -> str:
    """Return the row of the statistics that such requests are counted in."""
    return f"{name} refused ({reason})"


class SampleUser(FastHttpUser):
    """A user of one model, with contents made from its metadata."""

    abstract = True
    concurrency = 1
    model = ""
    name = ""  # in the statistics; "" is the model's
    contents = Contents(distinct=64)

    def on_start(self) -> None:
        metadata = fetch_metadata(self.host or "", self.model)
        questions = make_questions(Target(self.model), metadata, self.contents)
        self._questions = itertools.cycle(questions)

    @task
    def ask(self) -> None:
        question = next(self._questions)
        headers = dict(question.headers)
        body: Any = question.body  # locust takes bytes, though its annotation leaves them out
        name = self.name or self.model
        post = self.client.post
        with post(question.path, data=body, headers=headers, name=name, catch_response=True) as answer:
            reason = refusal(answer.headers)
            if reason:
                answer.request_meta["name"] = refused(name, reason)
                answer.success()
        if reason:
            gevent.sleep(float(answer.headers.get("x-retry-after-ms", RETRY_MS)) / 1000)


class DigitsUser(SampleUser):
    """A form reader that sends one digit after the other."""

    model, weight, wait_time = "digits", 4, constant(0)


class SearchUser(SampleUser):
    """A user that types a search of a few words, reads, and searches again."""

    model, weight, wait_time = "minilm", 2, between(0.5, 2)
    contents = Contents(distinct=64, words=(2, 12))


class IndexUser(SampleUser):
    """A job that embeds documents, two at a time, as fast as it is answered: on one core two such texts take
    a third of minilm's SLO, and eight take more than all of it."""

    model, weight, wait_time = "minilm", 1, constant(0)
    name = "minilm, 2 rows"
    contents = Contents(distinct=64, words=(20, 90), rows=2)


class SumUser(SampleUser):
    """Triton's first example, with a pause."""

    model, weight, wait_time = "simple", 2, between(0.05, 0.2)


class MlpUser(SampleUser):
    """The load-test model, asked all the time."""

    model, weight, wait_time = "mlp", 1, constant(0)


class OpenLoopUser(FastHttpUser):
    """The one dispatcher of an open loop; its task ends the run when every arrival has its answer."""

    concurrency = IN_FLIGHT_MAX
    wait_time = constant(0)

    def on_start(self) -> None:
        options = self.environment.parsed_options
        if options is None:
            raise RuntimeError("locust gave no options")
        self._arrivals: list[tuple[float, str, Question]] = []
        slos_ms = []
        for number, ask in enumerate(read_loads([options.open_loop], {})):
            rng = np.random.default_rng([options.open_seed, number])
            due_s = due_times(ask.pattern, options.open_seconds, options.open_cv, rng)
            metadata = fetch_metadata(self.host or "", ask.target.model)
            questions = make_questions(ask.target, metadata, Contents(seed=options.open_seed))
            turns: Iterator[Question] = itertools.cycle(questions)
            self._arrivals += [(float(due), ask.target.name, next(turns)) for due in due_s]
            slos_ms.append(stated_slo_ms(metadata) or 1000.0)
        self._arrivals.sort(key=lambda arrival: arrival[0])
        self._lateness_ms_max = min(slos_ms) * LATE_SHARE_MAX

    @task
    def walk(self) -> None:
        """Spawn one greenlet per arrival; over the bound of the pool an arrival waits, and is seen to be
        late."""
        pool, late_ms = Pool(IN_FLIGHT_MAX), []
        start = time.perf_counter()
        for due_s, name, question in self._arrivals:
            if (early_s := start + due_s - time.perf_counter()) > 0:
                gevent.sleep(early_s)
            due = start + due_s
            pool.spawn(self._ask, due, name, question)
            late_ms.append((time.perf_counter() - due) * 1e3)
        pool.join()
        self._tell(late_ms)
        cast("Course", self.environment.shape_class).over = True
        gevent.sleep(60)  # until the shape has ended the run; a task that returns is run again

    def _ask(self, due: float, name: str, question: Question) -> None:
        """Ask around locust's own timing, which would count from the sending."""
        error: Exception | None = None
        length = 0
        client = self.client.client
        try:
            answer = client.urlopen(
                (self.host or "") + question.path,
                method="POST",
                payload=question.body,
                headers=dict(question.headers),
            )
            length = len(answer.read())
            if reason := refusal(answer.headers):
                name = refused(name, reason)
            elif answer.status_code != 200:
                error = RuntimeError(f"status {answer.status_code}")
        except Exception as trouble:  # whatever it is, it is how this arrival ended
            error = trouble
        self.environment.events.request.fire(
            request_type="POST",
            name=name,
            response_time=(time.perf_counter() - due) * 1e3,
            response_length=length,
            exception=error,
            context={},
        )

    def _tell(self, late_ms: Sequence[float]) -> None:
        late = percentiles(np.asarray(late_ms), {"p50": 50, "p99": 99, "max": 100})
        void = not late["p99"] <= self._lateness_ms_max
        sys.stderr.write(
            f"open loop: {len(late_ms)} arrivals sent, lateness p50 {late['p50']:.2f} p99 {late['p99']:.2f} "
            f"max {late['max']:.2f} ms, at most {self._lateness_ms_max:.2f} ms (p99) is fair"
            + ("; THIS RUN IS VOID\n" if void else "\n")
        )
        if void:
            self.environment.process_exit_code = 1


class Course(LoadTestShape):
    """Scenario users as -u, -r and -t say; or one dispatcher until the open loop is over."""

    use_common_options = True
    over = False

    def tick(self) -> tuple[int, float, list[type[User]]] | None:
        runner = self.runner
        options = runner.environment.parsed_options if runner else None
        if runner is None or options is None:
            return None
        if options.open_loop:
            return None if self.over else (1, 1.0, [OpenLoopUser])
        # Locust starts its own clock for -t only after the shape has ended.
        ran_s = time.perf_counter() - self.start_time
        if options.run_time and ran_s >= options.run_time:
            return None
        scenarios = [user for user in runner.environment.user_classes if user is not OpenLoopUser]
        return (options.num_users or 1, options.spawn_rate or 1.0, scenarios)
