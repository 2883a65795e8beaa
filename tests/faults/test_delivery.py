"""Fault cases 13–26 and 29–34 with a clock in hand: what the receiver answers, and what becomes of each event."""

import random
import threading
from datetime import UTC, datetime
from email.utils import format_datetime
from itertools import pairwise

import pytest

from csi.dlq import dead_letters, replay, search
from csi.emitter.verdict import Throttled, Transient
from csi.emitter.verdict import judge as judge_answer
from csi.net import HttpHeaders, HttpResponse
from csi.store import batches, db
from tests.fakes.scripted_receiver import Cut, Reply, accept, json_reply
from tests.faults.oracle import Bounds, counted, fingerprint, judge
from tests.rigs.in_process import ledger_pipeline

DOWN = 503


def letters(columns: str = "event_id, cause, status, retry_count, state") -> list[tuple]:
    return db.fetch(f"SELECT {columns} FROM dead_letter ORDER BY id")


def test_case_13_always_503(case, tmp_path, seed):
    with ledger_pipeline(tmp_path, then=DOWN) as s:
        s.rt.rng = random.Random(seed)
        s.publish(1)
        s.run()
        s.wait(120)
        ((event_id, cause, status, tries, _),) = letters()
        reason, died, seen = letters("error_reason, died_at, first_seen_at")[0]
        case.close(s.books(), seed=seed, status=status, requests=len([r for r in s.ua.requests if r.events]))
        assert (cause, status, tries, reason) == ("transient", 503, 3, "http 503")
        assert died > seen
        assert (s.states(), len([r for r in s.ua.requests if r.events])) == ({"dead": 1}, 3)
        assert event_id == s.ua.event_ids[0]


def test_case_14_twice_503_then_200(case, tmp_path, seed):
    with ledger_pipeline(tmp_path, DOWN, DOWN) as s:
        s.publish(1)
        s.run()
        s.wait(100)
        account = case.close(s.books(), seed=seed, requests=len(s.ua.requests))
        assert (s.states(), account.attempts, len(s.ua.requests)) == ({"delivered": 1}, 3, 3)
        assert len({r.headers["x-csi-request-id"] for r in s.ua.requests}) == 3
        assert len({r.envelope["batch_id"] for r in s.ua.requests}) == 1
        assert len({fingerprint(r.events[0]) for r in s.ua.requests}) == 1


@pytest.mark.parametrize("place", [0, 1, 17, 24, 25, 33, 48, 49, "anywhere"])
def test_case_15_one_bad_event_among_fifty(case, tmp_path, seed, place):
    guilty: list[str] = []
    index = random.Random(seed).randrange(50) if place == "anywhere" else place
    most = 9 if index in (3, 28) else 8  # two places need one more: no event is given up by deduction (decision 0011)

    def picky(request):
        guilty[:] = guilty or [request.event_ids[index]]
        return json_reply(400, {"ok": False, "error": "bad"}) if guilty[0] in request.event_ids else accept(request)

    with ledger_pipeline(tmp_path, then=picky, tier="standard") as s:
        s.publish(50, spacing=1)
        s.run()
        s.wait(60)
        bad = [r for r in s.ua.requests if guilty[0] in r.event_ids]
        case.close(s.books(), seed=seed, requests=f"{len(s.ua.requests)}<={most}", carrying_it=len(bad))
        assert s.states() == {"delivered": 49, "dead": 1}
        assert [row[:2] for row in letters()] == [(guilty[0], "event")]
        assert len(s.ua.requests) <= most, "the whole, six halves, and everything innocent"
        s.wait(300, step=10)
        assert [row[4] for row in letters()] == ["open"], "an event's own fault is never redriven"


@pytest.mark.parametrize("nth", range(2, 6))
def test_case_15_the_search_meets_an_outage(case, tmp_path, seed, nth):
    """While one part is on its way, another batch fails and everything that waits is dissolved: nobody is forgotten."""
    guilty: list[str] = []

    def picky(request):
        guilty[:] = guilty or [request.event_ids[0]]
        if len(s.ua.requests) == nth:
            with db.connection():
                batches.release_waiting("default", keep=None, now=s.clock())
        return json_reply(400, {"ok": False, "error": "bad"}) if guilty[0] in request.event_ids else accept(request)

    with ledger_pipeline(tmp_path, then=picky, tier="standard") as s:
        s.publish(30, spacing=1)
        s.run()
        s.wait(200)
        case.close(s.books(), seed=seed, interrupted_at=nth, requests=len(s.ua.requests))
        assert s.states() == {"delivered": 29, "dead": 1}
        assert [row[:2] for row in letters()] == [(guilty[0], "event")]


def test_case_16_413_above_a_size(case, tmp_path, seed):
    def small(request):
        return json_reply(413) if len(request.body) > 20_000 else accept(request)

    with ledger_pipeline(tmp_path, then=small, tier="standard") as s:
        s.publish(100, title="{} " + "x" * 400, spacing=1)
        s.run()
        s.wait(60)
        case.close(s.books(), seed=seed, requests=len(s.ua.requests))
        assert (s.states(), letters()) == ({"delivered": 100}, [])


def endpoint_fault(case, tmp_path, seed, status: int, *, minutes: int, total: int) -> None:
    """A receiver that answers like this for a while, with events arriving all the time."""
    with ledger_pipeline(tmp_path, then=status, lists=4, tier="standard") as s:
        for _ in range(minutes * 6):
            s.publish(max(total // (minutes * 6), 1), ref=-1)
            s.wait(10, step=5)
        s.wait(35, step=5)
        circuit = db.fetch("SELECT circuit FROM destinations")
        dead = len({event_id for event_id, *_ in letters()})
        dead_batches = s.count("SELECT COUNT(*) FROM batches WHERE state = 'dead'")
        s.heal()
        took = s.back_in()
        stored = s.count("SELECT COUNT(*) FROM events")
        numbers = {
            "dead_before": dead,
            "dead_batches": f"{dead_batches}<=1",
            "back": f"{took:.0f}s<=90s",
            "events": stored,
        }
        case.close(s.books(), seed=seed, **numbers)
        assert (dead > 0, dead_batches, circuit) == (True, 1, [("open",)])
        assert s.states() == {"delivered": stored}
        assert db.fetch("SELECT circuit FROM destinations") == [("closed",)]
        assert took < 90


def test_case_17_401_for_ten_minutes(case, tmp_path, seed):
    endpoint_fault(case, tmp_path, seed, 401, minutes=10, total=500)


@pytest.mark.parametrize("status", [302, 403, 404, 410])
def test_case_18_endpoint_faults(case, tmp_path, seed, status):
    endpoint_fault(case, tmp_path, seed, status, minutes=3, total=60)


def test_case_19_retry_after_in_every_lane(case, tmp_path, seed):
    """One lane meets the 429; no lane sends before the time is over."""
    with ledger_pipeline(tmp_path, json_reply(429, retry_after="40"), lists=3) as s:
        s.publish(2, ref=0)
        s.run()
        asked = s.clock()
        db.run("UPDATE outbox SET tier = 'standard', due_at = ? WHERE state = 'pending'", s.clock())
        s.publish(3, ref=1)
        s.publish(3, ref=2)
        s.wait(39)
        early = len([r for r in s.ua.requests if r.at > asked])
        took = s.back_in()
        case.close(s.books(), seed=seed, early=early, back=f"{took:.0f}s")
        assert early == 0
        assert s.states() == {"delivered": 8}
        assert {number for (number,) in db.fetch("SELECT attempt FROM delivery_attempts")} == {1}


def closest(requests) -> float:
    """Seconds between the two requests that came closest to each other."""
    return min(after.at - before.at for before, after in pairwise(requests))


def test_case_19_who_asks_whether_it_is_back_is_told_to_wait(case, tmp_path, seed):
    """The receiver was away, and answers every question with 429: the next one comes when its time is over."""
    with ledger_pipeline(tmp_path, then=DOWN, lists=2) as s:
        s.publish(3, ref=-1)
        s.run()
        s.wait(200, step=5)
        before, s.ua.then = len(s.ua.requests), json_reply(429, retry_after="600")
        s.wait(3600, step=5)
        asked = s.ua.requests[before:]
        gap = closest(asked)
        s.heal()
        took = s.back_in(limit=700, step=5)
        case.close(s.books(), seed=seed, asked=len(asked), closest=f"{gap:.0f}s>=600s", back=f"{took:.0f}s")
        assert (len(asked) >= 5, gap >= 600) == (True, True)
        assert s.states() == {"delivered": 3}


@pytest.mark.faults
def test_case_19_events_older_than_a_day_are_told_to_wait(case, tmp_path, seed):
    """After a day the attempts are counted again (decision 0042, 22); what the receiver asks for holds all the same."""
    with ledger_pipeline(tmp_path, then=json_reply(429, retry_after="1800"), lists=2) as s:
        s.publish(3, ref=-1)
        s.run()
        s.wait(100_000, step=300)
        dead = s.count("SELECT COUNT(*) FROM dead_letter WHERE state = 'open'")
        gap, asked = closest(s.ua.requests), len(s.ua.requests)
        s.heal()
        took = s.back_in(limit=2000, step=5)
        numbers = {"asked": asked, "dead_before": dead, "closest": f"{gap:.0f}s>=1800s", "back": f"{took:.0f}s"}
        case.close(s.books(), Bounds(timed=False), seed=seed, **numbers)
        assert (dead > 0, gap >= 1800) == (True, True)
        assert s.states() == {"delivered": 3}


AT = 1_771_761_600.0
DATE = datetime.fromtimestamp(AT + 120, UTC)
RETRY_AFTER = [
    (["40"], 40.0),
    (["0.5"], 1.0),
    (["2.5"], 2.5),
    (["-7"], 1.0),
    (["999999"], 3600.0),
    (["1e400"], None),
    ([format_datetime(DATE, usegmt=True)], 120.0),
    ([DATE.strftime("%A, %d-%b-%y %H:%M:%S GMT")], 120.0),
    ([DATE.strftime("%a %b %d %H:%M:%S %Y")], 120.0),
    (["Sun, 22 Feb 2015 12:00:00 GMT"], 1.0),
    (["soon"], None),
    ([""], None),
    (["nan"], None),
    (["10", "90"], 10.0),
]


def test_case_20_a_table_of_retry_after(case):
    wrong = []
    for values, expected in RETRY_AFTER:
        answer = HttpResponse(
            status=429, headers=HttpHeaders([("Retry-After", value) for value in values]), body=b"", url=""
        )
        verdict = judge_answer(answer, 1, AT)
        waited = verdict.seconds if isinstance(verdict, Throttled) else None
        if waited != expected or not isinstance(verdict, Throttled | Transient):
            wrong.append((values, waited, expected))
    case.note(rows=len(RETRY_AFTER), wrong=len(wrong))
    assert wrong == []


@pytest.mark.parametrize("value", [30, "30", 30.0])
def test_case_21_retry_after_seconds_in_the_body(case, tmp_path, seed, value):
    with ledger_pipeline(
        tmp_path, json_reply(503, {"ok": False, "error": "ua_overloaded", "retry_after_seconds": value})
    ) as s:
        s.publish(1)
        s.run()
        s.wait(29)
        early = len(s.ua.requests) - 1
        s.wait(5)
        case.close(s.books(), seed=seed, early=early)
        assert (early, s.states()) == (0, {"delivered": 1})


def test_case_22_207_by_index(case, tmp_path, seed):
    errors = [{"index": 3, "error": "invalid_schema"}, {"index": 7, "error": "duplicate_event"}]
    partial = json_reply(207, {"ok": False, "accepted": 8, "rejected": 2, "errors": errors})
    with ledger_pipeline(tmp_path, partial, tier="standard") as s:
        s.publish(10, spacing=1)
        s.run()
        s.wait(100)
        case.close(s.books(), seed=seed, requests=len(s.ua.requests))
        assert s.states() == {"delivered": 9, "dead": 1}
        expected = [(s.ua.requests[0].event_ids[3], "event", "invalid_schema")]
        assert letters("event_id, cause, error_reason") == expected


DEEP = b"[" * 100_000 + b"]" * 100_000
LIES = {
    "html": b"<html>200 OK</html>",
    "empty": b"",
    "not-ok": b'{"ok": false}',
    "ok-is-a-word": b'{"ok": "true"}',
    "too-few": b'{"ok": true, "accepted": 0}',
    "too-many": b'{"ok": true, "accepted": 9}',
    "rejected-without-index": b'{"ok": true, "accepted": 0, "rejected": 1, "errors": []}',
    "index-beyond": b'{"ok": true, "accepted": 0, "rejected": 1, "errors": [{"index": 5, "error": "x"}]}',
    "five-megabytes": b'{"ok": true, "pad": "' + b"x" * 5_000_000 + b'"}',
    "deep": DEEP,
    "a-list": b'[{"ok": true}]',
    "bad-utf8": b'{"ok": true, "x": "\xff\xfe"}',
    "cut-json": b'{"ok": true, "acc',
    "207-without-counts": b"{}",
}


@pytest.mark.parametrize("lie", LIES)
def test_case_23_answers_that_do_not_add_up(case, tmp_path, seed, lie):
    status = 207 if lie == "207-without-counts" else 200
    with ledger_pipeline(tmp_path, then=Reply(status, LIES[lie], takes=frozenset())) as s:
        s.publish(1)
        s.run()
        s.wait(100)
        believed = s.states().get("delivered", 0)
        s.heal()
        took = s.back_in()
        case.close(s.books(), seed=seed, delivered_by_a_lie=believed, back=f"{took:.0f}s")
        assert believed == 0
        assert s.states() == {"delivered": 1}


HALF_A_PAIR = rb'"\ud800 \u0000 no"'
ERRORS = {
    207: b'{"ok": false, "accepted": 2, "rejected": 1, "errors": [{"index": 1, "error": ' + HALF_A_PAIR + b"}]}",
    **dict.fromkeys([400, 401, 503], b'{"ok": false, "error": ' + HALF_A_PAIR + b"}"),
}


@pytest.mark.parametrize("engine", ["sqlite", "postgresql"])
@pytest.mark.parametrize("status", ERRORS)
def test_case_23_words_that_no_database_stores(case, tmp_path, seed, status, engine, request):
    """Half a surrogate pair and a NUL in the receiver's own word: the answer is settled like any other."""
    database = request.getfixturevalue("postgres_url") if engine == "postgresql" else None
    taken = frozenset({0, 2}) if status == 207 else frozenset()
    with ledger_pipeline(tmp_path, Reply(status, ERRORS[status], takes=taken), tier="standard", database=database) as s:
        s.publish(3, spacing=1)
        s.run()
        s.wait(150, step=5)
        outcomes = [outcome for (outcome,) in db.fetch("SELECT outcome FROM delivery_attempts ORDER BY id")]
        case.close(s.books(), seed=seed, requests=len(s.ua.requests), outcomes=counted(outcomes))
        assert s.states() == ({"delivered": 2, "dead": 1} if status == 207 else {"delivered": 3})
        assert "sending" not in outcomes


def test_case_24_409_is_delivered(case, tmp_path, seed):
    with ledger_pipeline(tmp_path, then=409, lists=3) as s:
        s.publish(9, ref=-1)
        s.run()
        s.wait(20)
        case.close(s.books(), seed=seed, requests=len(s.ua.requests))
        assert (s.states(), letters()) == ({"delivered": 9}, [])


ROWS = {
    **dict.fromkeys([204, 205, 409], "delivered"),
    **dict.fromkeys([200, 201, 202, 203, 206, 208, 226, 299], "delivered"),
    **dict.fromkeys([300, 301, 302, 303, 304, 305, 307, 308, 399], "destination"),
    **dict.fromkeys([400, 413, 422], "event"),
    **dict.fromkeys([401, 402, 403, 404, 405, 406, 407, 410, 411, 412, 414, 415, 417, 418, 421], "destination"),
    **dict.fromkeys([423, 424, 426, 428, 431, 451, 499], "destination"),
    **dict.fromkeys([408, 425, 429, 500, 501, 502, 503, 504, 505, 507, 508, 511, 520, 522, 599], "transient"),
}
QUICK_ROWS = (202, 204, 302, 400, 404, 409, 425, 500)


@pytest.mark.parametrize(
    "status",
    [pytest.param(status, marks=[] if status in QUICK_ROWS else pytest.mark.faults) for status in ROWS],
)
def test_case_25_every_status_has_a_row(case, tmp_path, seed, status):
    with ledger_pipeline(tmp_path) as s:
        s.ua.then = json_reply(status, b"" if status in (204, 205, 304) else None, location=s.canary.url)
        s.publish(1)
        s.run()
        s.wait(100, step=10)
        causes = [cause for _, cause, *_ in letters()] or ["delivered"]
        case.close(s.books(), seed=seed, became=counted(causes))
        assert causes == [ROWS[status]]


def test_case_25_every_number_is_judged(case):
    """Without a body, so that the status alone decides (decision 0042, 23, 25, 27)."""
    found = {
        status: type(judge_answer(HttpResponse(status=status, headers=HttpHeaders(), body=b"", url=""), 1, AT)).__name__
        for status in range(100, 600)
    }
    wrong = [status for status, word in found.items() if word != SINGLE.get(status, HUNDREDS[status // 100])]
    case.note(statuses=len(found), wrong=len(wrong), verdicts=counted(found.values()))
    assert wrong == []


HUNDREDS = {1: "Transient", 2: "Transient", 3: "EndpointFault", 4: "EndpointFault", 5: "Transient"}
"""A 2xx that does not say `ok` is not believed."""
SINGLE = {
    **dict.fromkeys([204, 205, 409], "Delivered"),
    **dict.fromkeys([400, 413, 422], "Refused"),
    **dict.fromkeys([408, 425, 429], "Transient"),
}


@pytest.mark.parametrize("cut", [0, 1, 12, 40, 60])
def test_case_26_accepted_and_then_the_connection_resets(case, tmp_path, seed, cut):
    with ledger_pipeline(tmp_path, lambda request: accept(request).on(Cut(cut))) as s:
        s.publish(1)
        s.run()
        s.wait(40)
        account = case.close(s.books(), seed=seed, cut_at=cut)
        assert (s.states(), account.extra) == ({"delivered": 1}, 1)
        assert len(set(s.ua.event_ids)) == 1


def outage(case, tmp_path, seed, *, minutes: int) -> None:
    """10 events a minute into a receiver that answers 503: one batch dies, and all of it arrives in order."""
    with ledger_pipeline(tmp_path, then=DOWN, lists=5, tier="standard", interval=60) as s:
        s.shelf.window = 20
        for _ in range(minutes):
            s.publish(10, ref=-1)
            s.wait(60, step=20)
        dead = s.count("SELECT COUNT(DISTINCT event_id) FROM dead_letter")
        dead_batches = s.count("SELECT COUNT(*) FROM batches WHERE state = 'dead'")
        claimed: list[int] = []
        s.heal(lambda request: watch_claims(claimed, request))
        took = s.back_in(limit=600, step=1)
        account = case.close(
            s.books(),
            Bounds(ordered=True),
            seed=seed,
            disorder=judge(s.books()).disorder,
            dead_before=dead,
            dead_batches=f"{dead_batches}<=1",
            back=f"{took:.0f}s<=90s",
            claimed_at_once="/".join(map(str, claimed[:6])),
        )
        assert (dead > 0, dead_batches, account.disorder) == (True, 1, 0)
        assert all(number <= 2**place for place, number in enumerate(claimed)), "a burst above the ramp"
        assert max(claimed) <= 2 * s.rt.destinations["default"].max_concurrent_requests
        assert s.states() == {"delivered": minutes * 10}
        assert took < 90


def watch_claims(claimed: list[int], request) -> Reply:
    """How many batches are opened and not settled while this request is under way: what recovery lays on at once."""
    with db.connection():
        if request.events:
            claimed.append(db.fetch("SELECT COUNT(*) FROM batches WHERE state IN ('ready', 'sending')")[0][0])
    return accept(request)


def test_case_29_a_quarter_of_an_hour_down(case, tmp_path, seed):
    outage(case, tmp_path, seed, minutes=15)


def test_case_29_a_receiver_that_only_greets(case, tmp_path, seed):
    """It takes empty batches and fails all others: no round of redrive is used up, and all is in order, but for the one
    event that asked after a dead letter had: it may be the letter's own fault, and nobody waits for ever."""

    def greeting(request):
        return json_reply(503) if request.events else accept(request)

    with ledger_pipeline(tmp_path, then=greeting, lists=5, tier="standard", interval=60) as s:
        for _ in range(15):
            s.publish(10, ref=-1)
            s.wait(60, step=5)
        ((dead, rounds),) = letters("COUNT(*), MAX(rounds)")
        dead_batches = s.count("SELECT COUNT(*) FROM batches WHERE state = 'dead'")
        s.heal()
        took = s.back_in()
        account = case.close(s.books(), Bounds(), seed=seed, dead_before=dead, rounds=rounds, back=f"{took:.0f}s<=90s")
        assert (dead_batches, rounds) == (1, 0)
        assert account.disorder <= 2
        assert s.states() == {"delivered": 150}


def test_case_29_one_event_that_the_receiver_chokes_on(case, tmp_path, seed):
    """A 500 for one event and only for it: the others wait for minutes at most, and nobody dies with it."""

    def choking(request):
        return (
            json_reply(500)
            if any("Poison" in event["subject"]["title"] for event in request.events)
            else accept(request)
        )

    with ledger_pipeline(tmp_path, then=choking, lists=2, tier="standard", interval=60) as s:
        s.publish(11, ref=-1)
        s.publish(1, title="Poison")
        for _ in range(20):
            s.publish(1, ref=-1)
            s.wait(60, step=5)
        s.wait(1200, step=5)
        case.close(s.books(), Bounds(), seed=seed, requests=len(s.ua.requests))
        assert s.states() == {"delivered": 31, "dead": 1}


def test_case_25_a_receiver_that_refuses_everything(case, tmp_path, seed):
    """400 for all: after a few it counts as away, nothing more is burnt, and all of it arrives when it is mended."""
    with ledger_pipeline(tmp_path, then=400, lists=3) as s:
        s.publish(12, ref=-1)
        s.wait(120, step=5)
        asked, dead = len(s.ua.requests), s.count("SELECT COUNT(*) FROM dead_letter WHERE state = 'open'")
        away = s.count("SELECT COUNT(*) FROM destinations WHERE circuit = 'open' AND last_success_at IS NULL")
        s.heal()
        took = s.back_in()
        case.close(s.books(), seed=seed, dead_before=dead, requests=asked, back=f"{took:.0f}s")
        assert (away, asked < 20) == (1, True)
        assert s.states() == {"delivered": 12}


def refuse_each(request):
    errors = [{"index": index, "error": "unknown_source"} for index in range(len(request.events))]
    return json_reply(207, {"ok": not errors, "accepted": 0, "rejected": len(errors), "errors": errors})


@pytest.mark.parametrize("tier", ["urgent", "standard"])
def test_case_105_every_event_is_refused_by_207(case, tmp_path, seed, tier):
    """As with 400 for all: the circuit opens after a few, and all of it arrives when the receiver is mended."""
    with ledger_pipeline(tmp_path, then=refuse_each, lists=3, tier=tier) as s:
        for _ in range(6):
            s.publish(4, ref=-1)
            s.wait(60, step=5)
        dead = s.count("SELECT COUNT(*) FROM dead_letter WHERE state = 'open'")
        causes = {cause for (cause,) in letters("cause")}
        away = s.count("SELECT COUNT(*) FROM destinations WHERE circuit = 'open' AND last_success_at IS NULL")
        s.heal()
        took = s.back_in()
        case.close(s.books(), seed=seed, dead_before=dead, back=f"{took:.0f}s<=90s")
        assert (away, causes) == (1, {"destination"})
        assert dead < 24, "the rest stays pending"
        assert s.states() == {"delivered": 24}


def test_case_105_a_few_events_refused_by_207_are_their_own_fault(case, tmp_path, seed):
    with ledger_pipeline(tmp_path, refuse_each, refuse_each, lists=1) as s:
        s.publish(2)
        s.wait(10)
        s.publish(1)
        s.wait(60)
        case.close(s.books(), seed=seed, dead=len(letters()))
        assert {cause for (cause,) in letters("cause")} == {"event"}
        assert s.states() == {"dead": 2, "delivered": 1}


@pytest.mark.parametrize("lists", [1, 6])
def test_case_107_an_outage_of_26_seconds(case, tmp_path, seed, lists):
    """Batches have failed twice: the receiver is used again within 25 s, before their third attempts."""
    with ledger_pipeline(tmp_path, then=DOWN, lists=lists) as s:
        s.rt.rng = random.Random(seed)
        s.publish(lists, ref=-1)
        s.wait(26)
        s.publish(lists, ref=-1)
        s.heal()
        healed = s.clock()
        for _ in range(90):
            s.wait(1)
            if s.states().get("delivered"):
                break
        used = s.clock() - healed
        took = s.back_in()
        case.close(s.books(), seed=seed, used_again=f"{used:.0f}s<=25s", back=f"{used + took:.0f}s")
        assert s.states() == {"delivered": 2 * lists}
        assert used <= 25


def test_case_107_urgent_events_do_not_wait_behind_the_canary(case, tmp_path, seed):
    """The circuit is open, and the canary has failed twice: its third attempt is due 54 s after the recovery."""
    with ledger_pipeline(tmp_path, then=DOWN, lists=6) as s:
        s.rt.rng = random.Random(seed)
        s.publish(6, ref=-1)
        s.wait(26)
        canary = s.count("SELECT COUNT(*) FROM destinations JOIN batches b ON b.id = canary AND b.attempts = 2")
        s.heal()
        took = s.back_in()
        case.close(s.books(), seed=seed, all_urgent=f"{took:.0f}s<=25s")
        assert (canary, s.states()) == (1, {"delivered": 6})
        assert took <= 25


def test_case_105_probes_of_a_receiver_that_refuses_everything_cost_nothing(case, tmp_path, seed):
    """After the few that it took to see it, no event becomes a dead letter, and no dead letter uses up a round. One of
    the dead letters and one of the waiting events are refused for their own fault: others are the probe after them."""
    with ledger_pipeline(tmp_path, then=400, lists=3) as s:
        s.publish(6, ref=-1)
        s.wait(30)
        before = letters()
        s.publish(6, ref=-1)
        s.wait(900, step=5)
        after, rounds = letters(), letters("rounds")
        own_fault = {letters("event_id")[0][0], db.fetch("SELECT event_id FROM events WHERE state = 'pending'")[0][0]}
        s.heal(lambda request: json_reply(400) if own_fault & set(request.event_ids) else accept(request))
        took = s.back_in(limit=180)
        case.close(s.books(), seed=seed, dead=len(after), back=f"{took:.0f}s")
        assert (len(before), after, set(rounds)) == (5, before, {(0,)})
        assert s.states() == {"delivered": 10, "dead": 2}


@pytest.mark.faults
def test_case_29_six_hours_down(case, tmp_path, seed):
    outage(case, tmp_path, seed, minutes=360)


@pytest.mark.faults
def test_case_30_thirty_percent_5xx(case, tmp_path, seed):
    rng = random.Random(seed)

    def moody(request):
        return json_reply(rng.choice([500, 502, 503, 504])) if rng.random() < 0.3 else accept(request)

    with ledger_pipeline(tmp_path, then=moody, lists=4) as s:
        for _ in range(20):
            s.publish(5, ref=-1)
            s.wait(30, step=2)
        s.heal()
        took = s.back_in(limit=180)
        case.close(s.books(), seed=seed, requests=len(s.ua.requests), back=f"{took:.0f}s")
        assert s.states() == {"delivered": 100}


@pytest.mark.parametrize("size", [0, 1, 99, 100, 101, 500])
def test_case_32_batch_sizes(case, tmp_path, seed, size):
    with ledger_pipeline(tmp_path, tier="high_volume") as s:
        s.publish(size)
        s.run()
        s.wait(70, step=5)
        sizes = [len(request.event_ids) for request in s.ua.requests]
        case.close(s.books(), seed=seed, sizes=counted(sizes) or "none")
        assert (sum(sizes), max(sizes, default=0) <= 100) == (size, True)
        assert len(sizes) == -(-size // 100)


def test_case_34_replay_and_scheduled_retry_meet(case, tmp_path, seed):
    """A person replays everything, twice, while one event waits for its retry and another one is dead."""
    with ledger_pipeline(tmp_path, then=DOWN, lists=2) as s:
        s.publish(2, ref=-1)
        s.run()
        s.wait(30)
        early = sent_again(s)
        s.wait(90)
        s.heal()
        twice = [sent_again(s), sent_again(s)]
        took = s.back_in()
        s.wait(120)
        case.close(s.books(), seed=seed, replayed=f"{early}+{twice[0]}+{twice[1]}", back=f"{took:.0f}s")
        assert (early, twice) == (0, [1, 0])
        assert s.states() == {"delivered": 2}


def test_case_34_replayed_while_its_retry_is_scheduled(case, tmp_path, seed):
    """What was replayed fails and waits for its second attempt; a person replays it once more: it is sent once."""
    with ledger_pipeline(tmp_path, 400, DOWN) as s:
        s.publish(1)
        s.run()
        ((number,),) = letters("id")
        first = sent_again(s)
        s.run()
        waiting = s.count("SELECT COUNT(*) FROM batches WHERE state = 'ready' AND attempts = 1")
        second = sum(outcome.is_sent for outcome in replay.replay(dead_letters.by_ids([number]), s.clock()))
        s.wait(30)
        results = letters("state, result")
        case.close(s.books(), seed=seed, replayed=f"{first}+{second}", waiting=waiting, requests=len(s.ua.requests))
        assert (first, waiting, second) == (1, 1, 0)
        assert (s.states(), results) == ({"delivered": 1}, [("replayed", "delivered")])


def sent_again(s) -> int:
    """`csi dlq replay --all`"""
    found = search.newest(search.DeadLetterFilter(), 100)
    return sum(outcome.is_sent for outcome in replay.replay(found, s.clock()))


def test_case_34_two_people_replay_at_once(case, tmp_path, seed):
    """Four threads replay the same letters in the same moment: each event goes out once."""
    with ledger_pipeline(tmp_path, then=400, lists=6) as s:
        s.publish(4, ref=-1)
        s.run()
        s.heal()
        sent, start = [], threading.Barrier(4)

        def person() -> None:
            with db.connection():
                start.wait(10)
                sent.append(sent_again(s))

        people = [threading.Thread(target=person) for _ in range(4)]
        for one in people:
            one.start()
        for one in people:
            one.join(30)
        s.wait(60)
        case.close(s.books(), seed=seed, replayed="+".join(map(str, sorted(sent))))
        assert sum(sent) == 4
        assert s.states() == {"delivered": 4}
