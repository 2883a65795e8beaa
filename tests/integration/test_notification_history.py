"""Generated histories of an alert: per incident one message at its start and one at its end, whatever happens between.

The clock is moved by hand. The notification target can be down, workers restart, two workers look, and one looks while
the other is sending.
"""

import re
from datetime import datetime
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from csi import notification_sending, notifications
from csi.status.problems import PASSING_SECONDS, Problem
from csi.store import alerts, db
from csi.worker import alerting
from tests.conftest import HandClock
from tests.rigs.in_process import InProcessPipeline

EVALUATION_SECONDS = 15.0
PARTS = re.compile(r"It failed for .*, from (\S+) to (\S+)\.")


class Installation:
    """Two workers on one database, targets that record what they accept, and a problem that comes and goes."""

    def __init__(self, home: Path, clock: HandClock, monkeypatch: pytest.MonkeyPatch, targets: int) -> None:
        self.home, self.clock, self.targets = home, clock, targets
        self.is_failing, self.down, self.is_interrupted = False, set[str](), False
        self.received: dict[str, list[tuple[float, str, str]]] = {}
        self.seen: list[tuple[float, bool]] = []
        self.workers = [self.worker(), self.worker()]
        self.concurrent = False
        monkeypatch.setattr(alerting, "firing", lambda rt: [self.problem()] if self.is_failing else [])
        monkeypatch.setattr(notifications, "send", self.send)

    def worker(self):
        urls = " ".join(f"json://127.0.0.1:9/{number}" for number in range(self.targets))
        quiet = {"weekly_test": False, "daily_summary": False}
        return InProcessPipeline(
            self.home, self.clock, "http://127.0.0.1:9/", secrets={"CSI_NOTIFY_URLS": urls}, sources={}, notify=quiet
        ).rt

    def problem(self) -> Problem:
        return Problem("receiver_away", "default", "degraded", "it is away", "events wait", "wait", fails=("alert",))

    def send(self, urls, title, body, kind="info") -> bool:
        (url,) = urls
        if self.concurrent:
            self.concurrent = False
            self.evaluate(1)  # the other worker, while this one holds the claim
        if self.is_interrupted:
            raise RuntimeError("the worker is killed before it sends")
        if url[-1] in self.down:
            return False
        self.received.setdefault(url, []).append((self.clock(), title.rpartition(": ")[2], body))
        return True

    def evaluate(self, worker: int) -> None:
        self.seen.append((self.clock(), self.is_failing))
        try:
            alerting.evaluate(self.workers[worker])
        except RuntimeError:
            self.workers[worker] = self.worker()

    def wait(self, seconds: float, worker: int = 0) -> None:
        end = self.clock() + seconds
        while self.clock() < end:
            self.clock.move(min(EVALUATION_SECONDS, end - self.clock()))
            self.evaluate(worker)


def stretches(seen):
    """From the first to the last look of each uninterrupted failure."""
    found, start, last = [], None, None
    for at, failing in seen:
        if failing and start is None:
            start = at
        if not failing and start is not None:
            found.append((start, last))
            start = None
        last = at
    return found


def moment(text):
    return datetime.fromisoformat(text.replace("Z", "+00:00")).timestamp()


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("fails"), st.sampled_from([10, 40, 100, 170, 200, 400, 1000])),
        st.tuples(st.just("works"), st.sampled_from([10, 20, 40, 100, 290, 400, 950, 2000])),
        st.tuples(st.sampled_from(["target down", "target up", "restart", "killed while sending"]), st.just(0)),
        st.tuples(st.sampled_from(["other worker", "both workers"]), st.sampled_from([15, 60])),
    ),
    min_size=3,
    max_size=14,
)


AFTER_THE_SECOND_START = [
    *[("fails", 200), ("target down", 0), ("works", 1000), ("fails", 170), ("fails", 10), ("target up", 0)],
    ("fails", 400),
]
"""The second start is due before the end of the first incident is tried again."""


def play(installation: Installation, steps) -> None:
    for what, seconds in steps:
        match what:
            case "fails" | "works":
                installation.is_failing = what == "fails"
                installation.wait(seconds)
            case "target down":
                installation.down = {"0"}
            case "target up":
                installation.down = set()
            case "restart":
                installation.workers[0] = installation.worker()
            case "killed while sending":
                installation.is_interrupted = True
                installation.wait(EVALUATION_SECONDS)
                installation.is_interrupted = False
            case "other worker":
                installation.wait(seconds, worker=1)
            case "both workers":
                installation.concurrent = True
                installation.wait(seconds)
    installation.is_failing, installation.down, installation.concurrent = False, set(), False
    installation.wait(2 * alerts.OVER_AFTER_RECOVERIES + 4 * notification_sending.HOLD_SECONDS)


@pytest.mark.parametrize("targets", [1, 2])
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@example(steps=AFTER_THE_SECOND_START)
@given(steps=STEPS)
def test_each_incident_is_one_message_at_its_start_and_one_at_its_end(tmp_path, monkeypatch, targets, steps):
    clock = HandClock()
    with db.connection():
        installation = Installation(tmp_path, clock, monkeypatch, targets)
        for table in ("alerts", "notifications"):
            db.run(f"DELETE FROM {table}")
        play(installation, steps)
    lasting = [one for one in stretches(installation.seen) if one[1] - one[0] >= PASSING_SECONDS + EVALUATION_SECONDS]
    for number in range(targets):
        check_messages(installation.received.get(f"json://127.0.0.1:9/{number}", []), installation.seen, lasting)


def check_messages(messages, seen, lasting) -> None:
    told, end_before = False, 0.0
    reported = []
    for at, title, body in messages:
        if title != "resolved":
            assert not told, "a start is not repeated"
            told = True
            failing = sum(
                later - now
                for (now, is_failing), (later, _) in pairwise(seen)
                if is_failing and end_before <= now and later <= at
            )
            assert failing >= PASSING_SECONDS, "no start is sent before its delay"
            continue
        assert told or "This notification is late" in body, "an end follows a start, or says that it is late"
        found = PARTS.search(body)
        reported.append((moment(found[1]), moment(found[2])))
        told, end_before = False, moment(found[2])
    assert not told, "each start has its end"
    assert reported == sorted(reported)
    assert all(first[1] <= second[0] for first, second in pairwise(reported))
    for start, end in lasting:
        assert any(since <= int(start) + 1 and end <= until + 1 for since, until in reported), "none is lost"
