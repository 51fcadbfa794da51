"""What `penstock status` shows of gateways that do well and of gateways that do not."""

from router.observing.scaled_status import ScaledStatus, scaled_status
from router.observing.status import Status
from serving.control.scaling.scaling_status import ScalingStatus
from serving.values.vocabulary import BAD_INPUT, CLIENT_GONE, DEADLINE_QUEUED, QUEUE_FULL
from tests.goldens.conftest import Golden
from tests.router.happenings import run
from tests.router.observing.test_status import answer, ask, busy, cached, new, replica, status, text


def between_two_readings() -> str:
    """Requests that end in each way."""
    telemetry = new()
    ask(telemetry, 1000, latency_us=900_000, rows=9)
    run(telemetry, "digits", "cnn", 99)
    before = status(telemetry, 100.0)
    ask(telemetry, 30, rows=2)
    ask(telemetry, 5, latency_us=60_000, rows=2)
    for count, outcome in ((3, QUEUE_FULL), (2, DEADLINE_QUEUED), (2, BAD_INPUT), (1, CLIENT_GONE)):
        ask(telemetry, count, outcome)
    run(telemetry, "digits", "cnn", 4)
    run(telemetry, "digits", "linear", 7)
    return text(before, status(telemetry, 102.0, queue_rows=12), 2.0)


def several_variants() -> str:
    """Variants of which some were not the best."""
    telemetry = new()
    answer(telemetry, 500, "linear", 0.5)
    before = status(telemetry, 100.0)
    answer(telemetry, 60, "cnn", 0.98, rows=2)
    answer(telemetry, 25, "mlp", 0.95, rows=8, why="load")
    answer(telemetry, 15, "linear", 0.9, why="backlog")
    return text(before, status(telemetry, 101.0), 1.0, width=170)


def scaled(desired: int, ready: int, standing: int = 0, why: str = "", held: str = "") -> ScaledStatus:
    coming = 2 - ready
    return scaled_status(
        ScalingStatus("m", desired, 2, ready, coming, standing, 1, 4, ("a", "b"), 0.75, why, held=held)
    )


def unwell() -> Status:
    """A gateway with something to say of everything."""
    now = status(new(), 3725.0)
    digits, minilm = now["models"]
    digits["replicas"] = [
        replica("digits", "cnn", "cpu0", "ready", ("interfered", 1.312)),
        replica("digits", "cnn", "cpu1", "failed"),
        replica("digits", "linear", "cpu0", "ready", ("stale", 0.5)),
    ]
    digits["cache"] = cached(1030, 5, 16, differs={"cnn": "output 'Y' was 1"})
    minilm["cache"] = cached(0, 0, 0, pays=False)
    digits["scaling"] = scaled(2, ready=1, standing=1, why="420 rows/s come")
    minilm["scaling"] = scaled(4, ready=2, held="the ceiling of 3 an hour")
    now["slices"][0]["notice"] = "will be lost in 12 s: rebalance [a]"
    now["slices"][-1]["rehearsed"] = True
    refused = {"requests": 1200, "rows": 3, "concurrent": 0}
    now["rates"] = [
        {"tenant": "shop", "requests_per_s": 20.0, "rows_per_s": 0.5, "burst_s": 1.0, "concurrent": 8,
         "open": 2, "refused": refused}
    ]  # fmt: skip
    now["tls"] = {
        "until": "2027-01-31 00:00 UTC", "renewals": 1, "fault": "/etc/tls/server.key: no such file",
        "handshakes": 42, "failed": {"too_slow": 3, "failed": 0},
    }  # fmt: skip
    now["edges"] = [
        {"name": "rest", "listening": True, "restarts": 0},
        {"name": "grpc", "listening": True, "restarts": 3},
        {"name": "metrics", "listening": False, "restarts": 0},
    ]
    now["move"] = {
        "state": "moving",
        "step": 1,
        "steps": 2,
        "reasons": ["cpu1 does not start"],
        "waiting": [f"m{number} is loaded" for number in range(6)],
        "refused": ["penstock.yaml:3:1: models: unknown key"],
    }
    return now


def replanned(state: str) -> Status:
    """A gateway that has lost a slice."""
    now = status(new(), 3725.0)
    now["proposal"] = {
        "reason": "spot cpu1 is lost: reclaimed",
        "state": state,
        "sentence": "as it is today, digits is predicted to answer 0 % in time",
        "slices": {"cpu0": ["digits", "minilm"]} if state == "proposed" else {},
        "attainment": {"digits": 1.0},
        "refused": [],
        "command": "penstock place penstock.yaml --rates digits=5 --without cpu1 --apply --url http://127.0.0.1:8003",
    }
    return now


def unplanned() -> Status:
    """A gateway for which there is no better plan."""
    now = replanned("none")
    now["proposal"] |= {
        "sentence": "the best plan breaks a promise",
        "refused": ["digits is predicted to answer 70 % in time"],
        "command": "",
    }
    return now


def test_status(golden: Golden) -> None:
    golden(
        "status",
        {
            "idle": text(None, status(new(), 10.0), 0.0),
            "between two readings": between_two_readings(),
            "several variants": several_variants(),
            "a narrow terminal": text(None, busy(), 0.0, width=80),
            "unwell": text(None, unwell(), 0.0),
            "another plan is made": text(None, replanned("planning"), 0.0),
            "another plan": text(None, replanned("proposed"), 0.0, width=80),
            "another plan was applied": text(None, replanned("applied"), 0.0),
            "no better plan": text(None, unplanned(), 0.0),
        },
    )
