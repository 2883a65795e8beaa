"""The oracle itself: it must see what it is there for, or every green case means nothing."""

from dataclasses import replace

import pytest

from tests.fakes.raw_server import Canary
from tests.fakes.scripted_receiver import SECRET
from tests.faults.independent import objection
from tests.faults.oracle import Attempt, Bounds, Event, Ledgers, Taken, judge, line, violations
from tests.rigs.in_process import ledger_pipeline

EARLY = Event("e0", "k0", "delivered", 1, "urgent", "2026-01-01T00:00:00Z", 0.0, 1.0)
LATE = Event("e1", "k1", "delivered", 1, "urgent", "2026-01-02T00:00:00Z", 0.0, 2.0)
GOOD = Ledgers(
    served=frozenset({"k0", "k1"}),
    events=(EARLY, LATE),
    taken=(Taken("e0", 1, "b0", "r0", "x"), Taken("e1", 2, "b1", "r1", "y")),
    attempts=(Attempt(1, 1, 1.0, 1.0, "delivered", 200), Attempt(2, 1, 2.0, 2.0, "delivered", 200)),
)


def late_retry(seconds: float) -> tuple[Attempt, ...]:
    return (Attempt(1, 1, 0.0, 0.0, "transient", 503), Attempt(1, 2, seconds, seconds, "delivered", 200))


FAULTS = {
    "I1 lost": {"served": frozenset({"k0", "k1", "gone"})},
    "I1 lost, I2 pending, I2 states": {"events": (EARLY, replace(LATE, state="pending")), "taken": GOOD.taken[:1]},
    "I2 states": {"events": (EARLY, replace(LATE, state="wandering"))},
    "I3 unexpected": {"taken": (*GOOD.taken, Taken("stranger", 3, "b", "r", "z"))},
    "I3 changed, I4 extra": {"taken": (*GOOD.taken, Taken("e1", 3, "b1", "r2", "other"))},
    "I4 extra": {"taken": (*GOOD.taken, Taken("e1", 3, "b1", "r2", "y"))},
    "I5 gaps": {"attempts": late_retry(5)},
    "I5 attempts": {"attempts": tuple(Attempt(1, 1, n, n, "transient", 503) for n in range(4))},
    "I6 order": {"taken": tuple(reversed(GOOD.taken))},
    "I7 contacted": {"contacted": 1},
}


def test_a_clean_run_has_nothing_to_object_to():
    assert violations(judge(GOOD), Bounds()) == []
    assert violations(judge(replace(GOOD, attempts=late_retry(20))), Bounds()) == []


@pytest.mark.parametrize("expected", FAULTS)
def test_every_invariant_is_seen(expected):
    assert ", ".join(violations(judge(replace(GOOD, **FAULTS[expected])), Bounds())) == expected


def test_an_answer_lost_on_the_wire_allows_one_more_delivery():
    lost = (replace(GOOD.taken[0], answered=False), GOOD.taken[1], GOOD.taken[0])
    assert violations(judge(replace(GOOD, taken=lost)), Bounds()) == []


def test_the_line_is_as_documented():
    text = line(judge(replace(GOOD, attempts=late_retry(19.4))), Bounds(), seed=7)
    start = "served=2 lost=0 extra=0<=0 unexpected=0 changed=0 pending=0 dead=0 attempts=2 gaps=0/19.4"
    assert text == f"{start} seed=7"


def test_the_canary_remembers_who_came():
    import socket

    with Canary() as canary:
        socket.create_connection(("127.0.0.1", canary.port)).close()
        for _ in range(500):
            if canary.contacted:
                break
            socket.create_connection(("127.0.0.1", canary.port)).close()
        assert canary.contacted


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({}, None),
        ({"authorization": "Bearer other"}, "wrong bearer"),
        ({"x-csi-signature": "sha256=00"}, "wrong signature"),
        ({"x-csi-timestamp": "1"}, "wrong signature"),
        ({"x-csi-request-id": "other"}, "wrong signature"),
        ({"content-type": "text/plain"}, "wrong content type"),
    ],
)
def test_the_independent_judge_accepts_ours_and_nothing_else(tmp_path, change, words):
    with ledger_pipeline(tmp_path) as s:
        s.publish(1, title="Über {} 🚀")
        s.run()
        (request,) = s.ua.requests
    assert objection(SECRET, request.headers | change, request.body) == words
