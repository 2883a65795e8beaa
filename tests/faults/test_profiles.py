"""Fault cases 131–134 and 157–158: what holds for the PRD's receiver holds for a destination of every profile."""

import random
import time

import pytest

from csi.store import db
from tests.fakes.profile_receiver import SAMPLES, delivery_to, receiver_of, secrets_for, welcome
from tests.fakes.scripted_receiver import Cut, json_reply
from tests.faults.oracle import Bounds
from tests.rigs.in_process import ledger_pipeline
from tests.rigs.processes import drained, installation, publish, read_process_ledgers, wait_until

QUICK = "standard_webhooks"


def profiles(*without: str) -> list:
    """One profile in `make test`, the others in `make faults`."""
    names = [name for name in SAMPLES if name not in without]
    return [pytest.param(name, marks=[] if name == QUICK else pytest.mark.faults) for name in names]


@pytest.mark.parametrize("profile", profiles())
def test_case_131_three_503_then_dead_then_sent_again(case, tmp_path, seed, profile):
    with ledger_pipeline(tmp_path, then=503, profile=profile) as s:
        s.rt.rng = random.Random(seed)
        s.publish(1)
        s.run()
        s.wait(100)
        ((cause, tries),) = db.fetch("SELECT cause, retry_count FROM dead_letter")
        dead = s.states()
        s.ua.then = welcome
        took = s.back_in()
        account = case.close(s.books(), seed=seed, back=f"{took:.0f}s<=90s")
        assert (cause, tries, dead) == ("transient", 3, {"dead": 1})
        assert (s.states(), account.extra, s.ua.objections) == ({"delivered": 1}, 0, [])


@pytest.mark.parametrize("profile", profiles("notify"))
def test_case_132_retry_after_is_kept(case, tmp_path, seed, profile):
    with ledger_pipeline(tmp_path, json_reply(429, b"slow down", retry_after="120"), profile=profile) as s:
        s.publish(4, spacing=1)
        s.run()
        s.wait(240, step=5)
        first, *others = [request.at for request in s.ua.requests]
        early = sum(at - first < 120 for at in others)
        case.close(s.books(), seed=seed, early=early)
        assert (early, s.states(), s.ua.objections) == (0, {"delivered": 4}, [])


@pytest.mark.parametrize("status", [401, 302, 503])
@pytest.mark.parametrize("profile", profiles())
def test_case_133_an_outage_opens_the_circuit_and_ends_in_order(case, tmp_path, seed, profile, status):
    with ledger_pipeline(tmp_path, then=status, profile=profile, lists=2) as s:
        for _ in range(6):
            s.publish(4, ref=-1, spacing=1)
            s.wait(30, step=5)
        circuit = db.value("SELECT circuit FROM destinations WHERE destination = 'there'")
        s.ua.then = welcome
        took = s.back_in()
        case.close(s.books(), seed=seed, circuit=circuit, requests=len(s.ua.requests), back=f"{took:.0f}s<=90s")
        assert (circuit, s.states(), s.ua.objections) == ("open", {"delivered": 24}, [])
        assert took <= 90


@pytest.mark.parametrize("profile", profiles())
def test_case_157_accepted_and_then_the_connection_resets(case, tmp_path, seed, profile):
    """The answer never arrives: the event is sent once more, as the same event."""
    with ledger_pipeline(tmp_path, lambda request: welcome(request).on(Cut(0)), profile=profile) as s:
        s.publish(1)
        s.run()
        s.wait(40)
        account = case.close(s.books(), seed=seed)
        assert (s.states(), account.extra, s.ua.objections) == ({"delivered": 1}, 1, [])
        assert len(set(s.ua.event_ids)) == 1


@pytest.mark.parametrize("profile", profiles())
def test_case_158_random_5xx_and_cut_answers(case, tmp_path, seed, profile):
    rng = random.Random(seed)

    def moody(request):
        if rng.random() < 0.3:
            return json_reply(rng.choice([500, 502, 503, 504]))
        return welcome(request).on(Cut(20)) if rng.random() < 0.1 else welcome(request)

    with ledger_pipeline(tmp_path, then=moody, profile=profile, lists=4) as s:
        for _ in range(10):
            s.publish(5, ref=-1)
            s.wait(30, step=2)
        s.ua.then = welcome
        took = s.back_in(limit=180)
        case.close(s.books(), seed=seed, requests=len(s.ua.requests), back=f"{took:.0f}s")
        assert (s.states(), s.ua.objections) == ({"delivered": 50}, [])


@pytest.mark.faults
@pytest.mark.slow
@pytest.mark.parametrize("profile", SAMPLES)
def test_case_134_kill_9_with_each_profile(case, tmp_path, seed, profile):
    """The worker is killed four times while it sends, and a child process that rendered templates ends with it."""
    with receiver_of(profile)() as ua:
        secrets = secrets_for(ua.url)
        with installation(tmp_path, delivery=delivery_to(ua.url, profile)) as box:
            rng, total, in_flight = random.Random(seed), publish(box, 20), 0
            for _ in range(4):
                worker = box.start(**secrets)
                wait_until(lambda worker=worker: worker.poll() is not None, rng.uniform(2.0, 5.0))
                in_flight += box.kill(worker)
                total += publish(box, 10)
            box.start(**secrets)
            began = time.monotonic()
            box.wait_for(drained(box, total), seconds=240)
            case.close(
                read_process_ledgers(box, ua),
                Bounds(in_flight_at_crashes=in_flight, timed=False),
                seed=seed,
                kills=4,
                back=f"{time.monotonic() - began:.0f}s",
            )
            assert ua.objections == []
