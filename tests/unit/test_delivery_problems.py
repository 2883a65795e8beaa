"""Problems of delivery: since when, with which cause, and from when on."""

from dataclasses import replace

import pytest

from csi.pipeline.receiver_test import is_wanted
from csi.status.delivery_problems import certificate_text, problems
from csi.status.destinations import DestinationState
from csi.status.facts import SystemFacts
from csi.status.problems import to_notify
from csi.status.verdict import judge
from csi.status.worker import WorkerStatus
from csi.store.backlog_samples import BacklogSample
from csi.store.destinations import DestinationRow
from csi.store.heartbeats import LastHeartbeat
from csi.store.queries.charts import RecentDeadLetters

NOW = 1_771_761_600.0
DAY = 86_400.0


def judged(state="accepting", samples=(), oldest=None, delivery=True, dead=0, off_since=None, **changes):
    row = DestinationRow("default", **{"answered_at": NOW - 9} | changes)
    worker = WorkerStatus(NOW, LastHeartbeat(NOW, NOW - DAY))
    destinations = (DestinationState("default", state, row),)
    facts = SystemFacts(
        *(NOW, worker),
        destinations=destinations,
        backlog_samples=tuple(samples),
        oldest_pending=oldest,
        delivery_is_on=delivery,
        delivery_off_since=off_since,
        redrivable={"default": dead, "other": 99},
    )
    return list(problems(facts))


def one(*given, **changes):
    (found,) = judged(*given, **changes)
    return found


def samples(due, delivered=0, step=30.0):
    return [
        BacklogSample("default", NOW - step * (len(due) - number - 1), count + 5, count, delivered)
        for number, count in enumerate(due)
    ]


def test_a_receiver_that_is_away_has_its_first_failure_its_cause_and_what_waits():
    opened = {"circuit": "open", "opened_at": NOW - 10, "failing_since": NOW - 90}
    found = one("half_open", samples([7]), reason="connect: connection refused", **opened)
    assert (found.id, found.since, found.cause, found.events) == ("receiver_away", NOW - 90, "connection refused", 12)
    assert (found.is_proven, found.fails) == (False, ("ready", "alert"))
    assert found.runbook == "the-receiver-answers-503-or-not-at-all"


def test_dead_letters_of_a_receiver_that_is_away_are_affected_events():
    opened = {"circuit": "open", "opened_at": NOW - 10, "reason": "it refuses every event: http 400"}
    assert one("half_open", samples([7]), dead=5, **opened).events == 17
    assert one("half_open", dead=5, **opened).events == 5
    assert one("half_open", **opened).events is None


def test_dead_letters_that_are_sent_again_later_are_no_problem_of_their_own():
    away = DestinationState("default", "circuit_open", DestinationRow("default", circuit="open", reason="http 503"))
    facts = SystemFacts(
        *(NOW, WorkerStatus(NOW, LastHeartbeat(NOW, NOW - DAY))),
        destinations=(away,),
        dead_letters=120,
        redrivable={"default": 119},
        recent_dead_letters=RecentDeadLetters(120, 3, {"default": 119}),
    )
    (found,) = problems(facts)
    assert (found.events, "by themselves" in found.effect) == (119, True)
    assert "dead_letters" not in [problem.id for problem in judge(facts).problems]
    by_hand = replace(facts, auto_redrive=False)
    assert "wait for a replay" in next(problems(by_hand)).effect
    assert "dead_letters" not in [problem.id for problem in judge(by_hand).problems]
    refused = replace(facts, dead_letters=128, recent_dead_letters=RecentDeadLetters(28, 3, {"default": 19}))
    (given_up,) = [problem for problem in judge(refused).problems if problem.id == "dead_letters"]
    assert given_up.what.startswith("9 dead letters are open, 9 of them from the last hour")
    back = replace(away, state="accepting", row=DestinationRow("default"))
    assert "dead_letters" in [problem.id for problem in judge(replace(by_hand, destinations=(back,))).problems]


def test_a_destination_that_is_away_or_paused_hides_nothing_of_another_one():
    row = DestinationRow("slow", certificate_expires_at=NOW + DAY)
    slow = DestinationState("slow", "accepting", row)
    for state in ({"circuit": "open", "reason": "http 503"}, {"paused_reason": "moving"}):
        other = DestinationState("default", "circuit_open", DestinationRow("default", **state))
        facts = SystemFacts(
            *(NOW, WorkerStatus(NOW, LastHeartbeat(NOW, NOW - DAY))),
            destinations=(other, slow),
            oldest_pending=NOW - DAY,
            backlog_samples=tuple(replace(one, destination="slow") for one in samples([30, 60, 90, 120, 150])),
        )
        notified = {(one.id, one.subject) for one in to_notify(judge(facts).problems)}
        assert {("certificate_expiring", "slow"), ("backlog_growing", "slow")} <= notified
        assert "backlog_old" in [one.id for one in judge(facts).consequences]
        assert "backlog_old" not in [one.id for one in judge(facts).attention]


@pytest.mark.parametrize(
    ("reason", "section"),
    [
        ("http 401: x", "the-receiver-answers-401-or-403"),
        ("http 404", "the-receiver-answers-404-a-redirect-or-a-tls-error"),
        ("tls: certificate expired on 2026-01-01", "the-receiver-answers-404-a-redirect-or-a-tls-error"),
        ("it refuses every event: http 400", "the-receiver-refuses-every-event"),
    ],
)
def test_what_one_answer_proves_is_proven_and_leads_to_its_own_section(reason, section):
    found = one("half_open", circuit="open", reason=reason)
    assert (found.is_proven, found.runbook) == (True, section)


def test_failures_for_a_minute_are_a_problem_although_the_circuit_is_closed():
    failing = {"last_error": "timeout: no answer within 10 s", "last_failure_at": NOW - 1}
    assert judged(failing_since=NOW - 59, **failing) == []
    found = one(failing_since=NOW - 60, **failing)
    assert (found.id, found.since, found.cause) == ("receiver_away", NOW - 60, "no answer within 10 s")
    assert (found.fails, found.is_proven) == (("ready", "alert"), False)


def test_a_receiver_that_only_asks_us_to_wait_is_reported_and_stays_ready():
    found = one("throttled", failing_since=NOW - 61, throttled_until=NOW + 45, last_error="http 429")
    assert (found.fails, found.cause) == (("alert",), "the receiver rate-limits us (429)")
    assert "the next request is sent at 2026-02-22T12:00:45Z" in found.remedy


def test_a_pause_is_notified_only_while_events_wait():
    assert one("paused", paused_reason="x", paused_at=NOW - 900).fails == ("ready",)
    assert one("paused", samples([0]), paused_reason="x", paused_at=NOW - 900).events == 5
    found = one("paused", samples([3]), NOW - 60, paused_reason="x", paused_at=NOW - 900)
    assert (found.fails, found.since, found.events) == (("ready", "alert"), NOW - 60, 8)


def test_delivery_that_is_off_is_a_problem_while_events_wait():
    assert judged(delivery=False) == []
    found = one(delivery=False, oldest=NOW - 500, samples=samples([84]))
    assert (found.id, found.since, found.events, found.fails) == ("delivery_off", NOW - 500, 89, ("alert",))
    # The oldest event had waited longer, for another reason.
    assert one(delivery=False, oldest=NOW - 500, off_since=NOW - 60).since == NOW - 60
    assert one(delivery=False, oldest=NOW - 500, off_since=NOW - 900).since == NOW - 500


@pytest.mark.parametrize(
    ("left", "severity"), [(14 * DAY, None), (14 * DAY - 1, "notice"), (2 * DAY, "notice"), (2 * DAY - 1, "degraded")]
)
def test_a_certificate_warns_below_14_days_and_fails_below_2(left, severity):
    found = judged(certificate_expires_at=NOW + left)
    assert [problem.severity for problem in found] == ([severity] if severity else [])
    assert all(problem.is_proven and problem.fails == ("alert",) for problem in found)
    assert [problem.revision for problem in found] == ([int(severity == "degraded")] if severity else [])


def test_the_end_of_a_certificate_in_words():
    assert certificate_text(NOW + 13.5 * DAY, NOW) == "expires in 13 days, on 2026-03-08"
    assert certificate_text(NOW + 160, NOW) == "expires in less than a day, on 2026-02-22"
    assert certificate_text(NOW - 160, NOW) == "expired on 2026-02-22"


def test_a_backlog_that_grows_for_ten_minutes_is_a_problem():
    growing = [20 + 3 * number for number in range(21)]
    found = one(samples=samples(growing, delivered=9))
    assert (found.id, found.since, found.events) == ("backlog_growing", NOW - 600, 85)
    assert "80 events are due" in found.cause
    assert judged(samples=samples(growing[1:], delivered=9)) == [], "nine and a half minutes"
    assert judged(samples=samples([0, *growing[1:]], delivered=9)) == [], "it was empty ten minutes ago"
    assert judged(samples=samples(list(reversed(growing)), delivered=9)) == [], "it shrinks"


def test_a_backlog_that_takes_more_than_half_an_hour_is_a_problem_after_two_minutes():
    assert one(samples=samples([700] * 5, delivered=10)).id == "backlog_growing"
    assert judged(samples=samples([700] * 4, delivered=10)) == []
    assert judged(samples=samples([700] * 5, delivered=12)) == [], "29 minutes"
    assert judged(samples=samples([19] * 30)) == [], "few events wait: reported by their age"


def test_a_receiver_that_is_away_is_the_only_problem_of_its_backlog():
    assert [one.id for one in judged("half_open", samples([700] * 9), circuit="open")] == ["receiver_away"]


# --- when a receiver is tested


@pytest.mark.parametrize(
    ("changes", "wanted"),
    [
        ({}, False),
        ({"test_requested_at": NOW}, True),
        ({"test_requested_at": NOW - 5, "tested_at": NOW - 4}, False),
        ({"test_requested_at": NOW - 40, "tested_at": NOW - 39}, True),
        ({"test_requested_at": NOW, "tested_at": NOW - 1}, True),
        ({"answered_at": NOW - 3599}, False),
        ({"answered_at": NOW - 3600}, True),
        ({"answered_at": NOW - 9000, "last_success_at": NOW - 60}, False),
        ({"answered_at": NOW - 9000, "tested_at": NOW - 60}, False),
        ({"failing_since": NOW - 900, "last_failure_at": NOW - 59}, False),
        ({"failing_since": NOW - 900, "last_failure_at": NOW - 60}, True),
    ],
    ids=["never", "start", "sent", "killed", "reload", "answered", "silent", "flows", "tested", "failed", "again"],
)
def test_when_a_test_is_wanted(changes, wanted):
    assert is_wanted(DestinationRow("default", **changes), NOW, 30.0) is wanted


def test_a_throttled_receiver_is_not_slow_and_the_operator_can_end_its_wait():
    waiting = samples([50] * 30)
    throttle = {"throttled_until": NOW + 3000, "last_error": "http 503"}
    assert judged("throttled", waiting, failing_since=NOW - 9, **throttle) == []
    found = one("throttled", waiting, failing_since=NOW - 60, **throttle)
    assert (found.id, found.effect) == ("receiver_away", "its events wait")
    assert "csi delivery resume --destination default" in found.commands
