"""When the sidecar says ready and alive: the rules alone."""

from dataclasses import replace
from typing import Any

import pytest

from csi.status.destinations import DestinationState
from csi.status.facts import SourcePlan, SystemFacts
from csi.status.source_problems import is_on_time
from csi.status.worker import WorkerStatus
from csi.store.destinations import DestinationRow
from csi.store.heartbeats import LastHeartbeat
from csi.store.watches import WatchTimes
from csi.web.health import liveness, readiness, unknown

NOW = 1_771_761_600.0
WATCH = WatchTimes("youtube_playlist", 30.0, NOW + 20, NOW - 10, NOW - 10, 0)
OPEN_401 = "open: authentication failed (401): check the secret, the bearer token and the clock"
RSS = WatchTimes("youtube_channel_rss", 300.0, NOW + 100, NOW - 200, NOW - 200, 0)


def worker(age: float, started: float = NOW) -> WorkerStatus:
    return WorkerStatus(NOW, LastHeartbeat(NOW - age, started))


def default(state: Any = "accepting", **changes: Any) -> tuple[DestinationState, ...]:
    return (DestinationState("default", state, DestinationRow("default", **changes)),)


GOOD = SystemFacts(
    now=NOW,
    worker=worker(4, NOW - 1000),
    sources=(SourcePlan("youtube_playlist", 1, 300.0), SourcePlan("youtube_channel_rss", 1, 0.0)),
    watches=(WATCH, RSS),
    destinations=default(last_success_at=NOW - 60),
)


def with_watch(**changes: Any) -> SystemFacts:
    return replace(GOOD, watches=(replace(WATCH, **changes), RSS))


def test_ready_has_the_prds_body() -> None:
    report = readiness(GOOD)
    assert report.is_good
    assert report.body["status"] == "ready"
    assert report.body["reasons"] == []
    playlist = report.body["adapters"]["youtube_playlist"]
    assert (playlist["polling"], playlist["last_poll"]) == (True, "2026-02-22T11:59:50Z")
    assert report.body["adapters"]["youtube_channel_rss"]["last_poll"] == "2026-02-22T11:56:40Z"
    assert report.body["delivery"] == {
        "ua_reachable": True,
        "last_success": "2026-02-22T11:59:00Z",
        "last_failure": None,
        "note": None,
        "enabled": True,
        "state": "accepting",
        "breaker": "closed",
        "paused_until": None,
        "canonical_json": "ascii",
        "held": [],
    }


def test_every_destination_is_judged_not_only_the_first() -> None:
    words = "http 401: bad signature of https://ua.example"
    row = DestinationRow("backup", circuit="open", reason=words, last_success_at=NOW - 900, last_failure_at=NOW - 5)
    others = (
        DestinationState("archive", "untested", DestinationRow("archive")),
        DestinationState("backup", "half_open", row),
    )
    report = readiness(replace(GOOD, destinations=(*GOOD.destinations, *others)))
    assert not report.is_good
    assert report.body["reasons"] == [f"the circuit breaker of destination backup is {OPEN_401}"]
    assert report.body["delivery"]["ua_reachable"] is True
    assert report.body["delivery"]["destinations"] == {
        "archive": {"reachable": None, "last_success": None, "state": "untested", "breaker": "closed"},
        "backup": {"reachable": False, "last_success": "2026-02-22T11:45:00Z", "state": "half_open", "breaker": "open"},
    }


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        (replace(GOOD, worker=WorkerStatus(NOW, None)), "no worker has ever run on this database"),
        (replace(GOOD, worker=worker(31)), "the worker's last heartbeat was 31 s ago"),
        (
            replace(GOOD, worker=worker(-3600)),
            "the worker's last heartbeat is 3600 s in the future: the clock was set back",
        ),
        (replace(GOOD, watches=(RSS,)), "youtube_playlist: not polled yet"),
        (with_watch(last_success_at=None), "youtube_playlist: not polled yet"),
        (
            with_watch(last_success_at=None, errors=2),
            "youtube_playlist: no watch could be polled, 1 failed",
        ),
        (
            with_watch(last_success_at=NOW - 121, errors=3),
            "youtube_playlist: its watch was not polled in time",
        ),
        (
            replace(GOOD, destinations=default("half_open", circuit="open")),
            "the circuit breaker of destination default is open",
        ),
        (
            replace(GOOD, destinations=default("circuit_open", circuit="open", reason="http 401: bad signature")),
            f"the circuit breaker of destination default is {OPEN_401}",
        ),
    ],
)
def test_not_ready_says_why(facts: SystemFacts, reason: str) -> None:
    report = readiness(facts)
    assert (report.is_good, report.body["status"], report.body["reasons"]) == (False, "not_ready", [reason])


def test_a_silent_worker_means_that_nothing_polls() -> None:
    adapters = readiness(replace(GOOD, worker=worker(31))).body["adapters"]
    assert [adapter["polling"] for adapter in adapters.values()] == [False, False]


@pytest.mark.parametrize(
    ("seconds_ago", "errors", "expected"),
    [
        (10, 0, True),
        (120, 5, True),
        (121, 3, False),
        (121, 2, True),  # resting at the idle interval, and stumbling once is not failing
        (359, 0, True),
        (361, 0, False),
        (-3600, 0, False),  # the clock was set back: that success proves nothing
    ],
)
def test_a_resting_watch_is_on_time_and_a_failing_one_is_not(seconds_ago: float, errors: int, expected: bool) -> None:
    watch = replace(WATCH, last_success_at=NOW - seconds_ago, errors=errors)
    assert is_on_time(watch, 300.0, NOW) is expected


def test_a_watch_whose_interval_is_stretched_by_push_is_on_time() -> None:
    watch = replace(RSS, last_success_at=NOW - 1200, planned_interval=1200.0)
    assert is_on_time(watch, 0.0, NOW)
    assert not is_on_time(replace(watch, last_success_at=NOW - 1261), 0.0, NOW)
    assert not is_on_time(replace(watch, planned_interval=300.0), 0.0, NOW), "after a miss the interval is the old one"


def test_one_good_watch_is_enough_and_a_source_without_watches_does_not_matter() -> None:
    dead = replace(WATCH, last_success_at=None, errors=99, health="backing_off", health_since=NOW - 3600)
    stumbled = replace(WATCH, errors=1, health="backing_off", health_since=NOW - 5)
    facts = replace(GOOD, watches=(dead, stumbled, WATCH, RSS), sources=(*GOOD.sources, SourcePlan("empty", 0, 0.0)))
    report = readiness(facts)
    assert report.is_good
    assert report.body["adapters"]["youtube_playlist"]["failing"] == 1
    assert report.body["adapters"]["youtube_playlist"]["last_poll_failed"] == 2
    assert report.body["adapters"]["empty"] == {
        "polling": False, "last_poll": None, "last_success": None, "watches": 0, "on_time": 0, "failing": 0,
        "last_poll_failed": 0,
    }  # fmt: skip


def test_what_is_switched_off_is_not_missed() -> None:
    facts = replace(
        GOOD, polling=False, watches=(), delivery_is_on=False, destinations=default("half_open", circuit="open")
    )
    assert readiness(facts).is_good
    assert liveness(replace(with_watch(next_poll_at=NOW - 9999), polling=False)).is_good


@pytest.mark.parametrize(
    "destinations",
    [
        default(last_success_at=NOW),
        default(answered_at=NOW, last_failure_at=NOW, last_error="http 503"),
        default("half_open", circuit="open", last_success_at=NOW),
        default("circuit_open", circuit="open", last_success_at=NOW - 9, last_failure_at=NOW, last_error="http 401"),
    ],
)
def test_a_receiver_is_reachable_exactly_when_it_is_no_reason(destinations: tuple[DestinationState, ...]) -> None:
    report = readiness(replace(GOOD, destinations=destinations))
    assert report.body["delivery"]["ua_reachable"] is report.is_good is (report.body["reasons"] == [])


def test_before_its_first_answer_it_is_not_known_whether_a_receiver_is_reachable() -> None:
    never = readiness(replace(GOOD, destinations=default("untested"))).body["delivery"]
    assert (never["ua_reachable"], never["state"], never["note"]) == (None, "untested", "not contacted yet")
    answered = readiness(replace(GOOD, destinations=default(answered_at=NOW - 5))).body["delivery"]
    assert (answered["ua_reachable"], answered["note"]) == (True, None)


def test_the_clock_difference_of_the_receiver_is_a_reason() -> None:
    reason = "http 401: stale_timestamp; the receiver's clock is +600 s from ours"
    (text,) = readiness(replace(GOOD, destinations=default("half_open", circuit="open", reason=reason))).body["reasons"]
    assert "the receiver's clock is 600 s ahead of ours" in text
    assert "stale_timestamp" not in text


def test_each_problem_links_to_the_dashboard_and_to_the_runbook() -> None:
    reason = "http 401: no"
    (one,) = readiness(replace(GOOD, destinations=default("half_open", circuit="open", reason=reason))).body["problems"]
    assert (one["page"], one["runbook"]) == ("/#destinations", "/docs/runbook#the-receiver-answers-401-or-403")


def test_one_failed_attempt_is_a_note_and_the_receiver_stays_reachable() -> None:
    failed = {"last_failure_at": NOW, "last_error": "http 503: busy, titled X"}
    body = readiness(replace(GOOD, destinations=default(last_success_at=NOW - 9, **failed))).body
    assert (body["status"], body["delivery"]["ua_reachable"]) == ("ready", True)
    assert body["delivery"]["note"] == "the last attempt failed: the receiver is unavailable (503); it is retried"
    assert body["delivery"]["last_failure"] == "2026-02-22T12:00:00Z"
    over = default(last_success_at=NOW + 1, **failed)
    assert readiness(replace(GOOD, destinations=over)).body["delivery"]["note"] is None


def test_nobody_asks_a_receiver_while_delivery_is_off() -> None:
    report = readiness(replace(GOOD, delivery_is_on=False, destinations=default("half_open", circuit="open")))
    assert (report.is_good, report.body["delivery"]["ua_reachable"]) == (True, None)


def test_a_retry_after_is_shown_while_it_lasts() -> None:
    def shown(state: str) -> Any:
        rows = default(state, throttled_until=NOW + 60, json_form="utf8", last_error="http 429: slow down")
        return readiness(replace(GOOD, destinations=rows)).body["delivery"]

    assert (shown("throttled")["paused_until"], shown("accepting")["paused_until"]) == ("2026-02-22T12:01:00Z", None)
    assert shown("accepting")["canonical_json"] == "utf8"
    assert shown("throttled")["note"].startswith("the receiver asks us to wait: the receiver rate-limits us (429)")


def test_alive_while_things_happen() -> None:
    report = liveness(GOOD)
    assert (report.is_good, report.body["status"], report.body["overdue"]) == (True, "alive", {})
    assert liveness(replace(GOOD, worker=worker(30, NOW - 1000))).is_good
    assert liveness(with_watch(errors=50, last_success_at=None)).is_good


def test_stalled_when_the_worker_or_a_watch_stands_still() -> None:
    assert not liveness(replace(GOOD, worker=worker(31))).is_good
    assert not liveness(replace(GOOD, worker=WorkerStatus(NOW, None))).is_good
    assert liveness(with_watch(next_poll_at=NOW - 179)).is_good
    late = liveness(with_watch(next_poll_at=NOW - 181))
    assert (late.is_good, late.body["overdue"]) == (False, {"youtube_playlist": 1})
    assert late.body["reasons"] == ["youtube_playlist: 1 watch is long overdue"]


def test_a_worker_that_has_just_started_may_catch_up() -> None:
    facts = with_watch(next_poll_at=NOW - 86_400)
    assert liveness(replace(facts, worker=worker(0, NOW - 100))).is_good


def test_what_cannot_be_known_still_has_the_prds_shape() -> None:
    body = unknown("not_ready", "why", NOW).body
    assert body["delivery"] == {"ua_reachable": False, "last_success": None}
    assert (body["adapters"], body["database"], body["reasons"]) == ({}, {"ok": False}, ["why"])
