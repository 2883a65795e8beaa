"""Fault cases 30 and 34: random answers of two receivers and random commands, drawn from the seed."""

import json
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from csi.admin import destinations
from csi.dlq import replay, search
from csi.store import db, leases
from tests.fakes.scripted_receiver import (
    SECRET,
    Behaviour,
    Cut,
    ReceivedRequest,
    Reply,
    ScriptedReceiver,
    accept,
    json_reply,
)
from tests.faults.oracle import Bounds
from tests.rigs.in_process import LedgerPipeline, ledger_pipeline

TIERS = ("urgent", "standard", "high_volume")


def lie(request: ReceivedRequest) -> Reply:
    """More accepted than were sent; nothing was taken."""
    told = {"ok": True, "accepted": len(request.events) + 1}
    return Reply(200, json.dumps(told).encode(), takes=frozenset())


def wrong_index(request: ReceivedRequest) -> Reply:
    told = {"accepted": len(request.events), "rejected": 1, "errors": [{"index": len(request.events), "error": "x"}]}
    return Reply(207, json.dumps(told).encode(), takes=frozenset())


def picky(request: ReceivedRequest) -> Reply:
    return json_reply(400, {"error": "bad"}) if any(map(is_bad, request.events)) else accept(request)


def is_bad(event: dict) -> bool:
    return "BAD" in event["subject"]["title"]


class Weather:
    """One receiver: each answer is good most of the time, or one of all that can go wrong."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.odd: list[Callable[[ReceivedRequest], Reply]] = [
            lambda request: accept(request).on(Cut(rng.randrange(80))),
            lambda request: json_reply(429, retry_after=rng.choice(["1", "0.5", "-3", "soon", "40"])),
            lambda request: json_reply(rng.choice([401, 404, 413, 422, 500, 503])),
            lie,
            wrong_index,
        ]

    def __call__(self, request: ReceivedRequest) -> Reply:
        return self.rng.choice(self.odd)(request) if self.rng.random() < 0.25 else picky(request)

    def turn(self) -> Behaviour:
        return self.rng.choice([self, self, picky, json_reply(503), json_reply(401), json_reply(429, retry_after="30")])


def command(s: LedgerPipeline, rng: random.Random) -> str:
    """What people do meanwhile, and a worker that starts anew."""
    name = rng.choice(["replay", "pause", "resume", "resume", "restart", "nothing", "nothing"])
    match name:
        case "replay":
            replay.replay(search.newest(search.DeadLetterFilter(), 100), s.clock())
        case "pause":
            destinations.pause(s.rt, "default", "for a while")
        case "resume":
            destinations.resume(s.rt, "default")
        case "restart":
            leases.release_all(s.clock())
    return name


def weather(case, home: Path, seed: int) -> None:
    rng, second = random.Random(seed), ScriptedReceiver(then=accept)
    delivery = {"destinations": {"second": {"endpoint": second.url, "secret_env": "CSI_SECOND_SECRET"}}}
    lists, tier, secrets = rng.choice([1, 3, 6]), rng.choice(TIERS), {"CSI_SECOND_SECRET": SECRET}
    with second, ledger_pipeline(home, lists=lists, tier=tier, delivery=delivery, secrets=secrets) as s:
        s.rt.rng = random.Random(seed)
        skies, acts = [(s.ua, Weather(rng)), (second, Weather(rng))], list[str]()
        for _ in range(20):
            for ua, sky in skies:
                ua.then = sky.turn() if rng.random() < 0.4 else ua.then
            s.publish(rng.randrange(8), ref=-1, title=rng.choice(["Item {}", "Größe {}"]))
            s.publish(int(rng.random() < 0.2), ref=-1, title="BAD {}")
            acts.append(command(s, rng))
            s.wait(rng.choice([1, 7, 20, 65]))
        destinations.resume(s.rt, "default")
        s.ua.then = second.then = picky
        took = drained_after(s, limit=300)
        missing = never_arrived("second", second)
        numbers = {"tier": tier, "commands": len(acts) - acts.count("nothing"), "missing_at_second": missing}
        case.close(s.books(), Bounds(timed=False), seed=seed, **numbers, stuck=stuck(), back=f"{took:.0f}s<=300s")
        assert (missing, stuck(), took < 300) == (0, 0, True)


def drained_after(s: LedgerPipeline, limit: float) -> float:
    """Seconds until nothing waits. A letter that has used up its rounds of redrive waits for a person, not for us."""
    start, rounds = s.clock(), s.rt.settings.dlq.max_redrive_rounds
    while s.clock() - start < limit and (waiting(s) or s.count(f"{_REDRIVEN} AND rounds < {rounds}")):
        s.wait(1)
    return s.clock() - start


def waiting(s: LedgerPipeline) -> int:
    return s.count("SELECT COUNT(*) FROM outbox") + s.count("SELECT COUNT(*) FROM inbox WHERE state = 'new'")


_REDRIVEN = "SELECT COUNT(*) FROM dead_letter WHERE state = 'open' AND cause IN ('transient', 'destination')"


def never_arrived(name: str, ua: ScriptedReceiver) -> int:
    """Events that this receiver has not got and that are no open dead letter of its own."""
    stored = {row[0] for row in db.fetch("SELECT event_id FROM events")}
    dead = {
        row[0] for row in db.fetch("SELECT event_id FROM dead_letter WHERE state = 'open' AND destination = ?", name)
    }
    return len(stored - dead - {one.event_id for one in ua.taken})


def stuck() -> int:
    """What no row may look like when everything is over."""
    return sum(int(db.fetch(query)[0][0]) for query in _STUCK)


_STUCK = (
    "SELECT COUNT(*) FROM batches WHERE state IN ('ready', 'sending')",
    "SELECT COUNT(*) FROM delivery_attempts WHERE outcome = 'sending'",
    "SELECT COUNT(*) FROM dead_letter WHERE state = 'replaying'",
    "SELECT COUNT(*) FROM events e WHERE state = 'dead' AND NOT EXISTS "
    "(SELECT 1 FROM dead_letter d WHERE d.event_id = e.event_id AND d.state = 'open')",
)


def test_case_30_random_weather_in_short(case, tmp_path, seed):
    weather(case, tmp_path, seed)


@pytest.mark.faults
@pytest.mark.parametrize("number", range(1, 13))
def test_case_30_random_weather(case, tmp_path, seed, number):
    weather(case, tmp_path, seed + number)
