"""Receivers are tested with an empty batch before events depend on them, and what the answers show is stored."""

import ssl
from dataclasses import replace
from pathlib import Path

import pytest

from csi.admin import destinations as admin_destinations
from csi.doctor import destination_check, service_checks
from csi.net import Net
from csi.pipeline import deliver, receiver_test
from csi.status import facts
from csi.status.destinations import destination_status
from csi.status.verdict import verdict
from csi.store import attempts, backlog_samples, batches, db, destinations
from csi.worker import maintenance, reload
from tests.fakes.scripted_receiver import ScriptedReceiver, accept, for_events, json_reply
from tests.rigs.in_process import ledger_pipeline

TLS = Path(__file__).parents[1] / "data" / "tls"


@pytest.fixture
def line(tmp_path):
    with ledger_pipeline(tmp_path) as built:
        maintenance.write_heartbeat(built.rt, built.clock())
        yield built


def start(line):
    """As a worker does, with one pass of its maintenance loop."""
    reload.note_start(line.rt)
    line.run()


def away(line):
    return [problem for problem in verdict(line.rt).problems if problem.id == "receiver_away"]


def row():
    return destinations.get()


# --- at the start, after a reload, hourly


def test_at_the_workers_start_an_empty_signed_batch_is_sent(line):
    assert destination_status(line.rt, "default").state == "untested"
    start(line)
    (request,) = line.ua.requests
    assert (request.events, request.objection) == ([], None)
    assert (row().answered_at, row().last_success_at, row().test_requested_at) == (line.clock(), None, None)
    found = destination_status(line.rt, "default")
    assert (found.state, found.is_reachable) == ("accepting", True)
    line.run()
    assert len(line.ua.requests) == 1


@pytest.mark.parametrize(("status", "cause"), [(401, "authentication failed (401)"), (404, "nothing exists")])
def test_a_wrong_secret_or_path_is_a_problem_at_once_and_no_event_dies_of_it(line, status, cause):
    line.ua.then = status
    start(line)
    (problem,) = away(line)
    assert (problem.is_proven, problem.since) == (True, line.clock())
    assert cause in problem.cause
    line.publish(3)
    line.wait(60, step=5)
    assert line.states() == {"pending": 3}
    line.heal()
    line.wait(25, step=1)
    assert (away(line), line.states()) == ([], {"delivered": 3})


def test_a_receiver_that_is_down_at_the_start_is_a_problem_until_it_answers(line):
    line.ua.stop()
    began = line.clock()
    start(line)
    (problem,) = away(line)
    assert (problem.cause, problem.is_proven, problem.since) == ("connection refused", False, began)
    line.wait(60, step=5)
    assert (away(line)[0].since, row().circuit) == (began, "open")
    line.ua.start_again()
    line.wait(25, step=5)
    assert (away(line), row().failing_since) == ([], None), "no event is needed to notice that it is back"


def test_after_a_reload_it_is_tested_again(line):
    start(line)
    line.clock.move(5)
    fresh = reload.reload(line.rt, lambda: line.rt.settings)
    assert fresh is not line.rt
    line.run()
    assert len(line.ua.requests) == 2


def test_hourly_while_nothing_is_sent_and_never_beside_deliveries(line):
    start(line)
    for _ in range(3):
        line.clock.move(1900)
        line.publish(1)
        line.run()
    assert [len(request.events) for request in line.ua.requests] == [0, 1, 1, 1]
    line.clock.move(3600)
    line.run()
    assert [len(request.events) for request in line.ua.requests] == [0, 1, 1, 1, 0]


@pytest.mark.parametrize("how", ["off", "paused"])
def test_nothing_is_sent_while_delivery_is_off_or_paused(line, how):
    if how == "paused":
        destinations.change("default", paused_reason="x", paused_at=line.clock())
        start(line)
    else:
        reload.note_start(line.rt)
        line.run_without_delivery()
    assert line.ua.requests == []
    assert row().test_requested_at is not None, "it is still wanted"


def test_a_test_whose_process_was_killed_is_sent_again(line):
    reload.note_start(line.rt)
    assert destinations.claim_test(row(), line.clock())
    assert not destinations.claim_test(replace(row(), tested_at=None), line.clock()), "another worker has it"
    line.run()
    assert line.ua.requests == []
    line.clock.move(line.rt.destinations["default"].receiver.timeout + receiver_test.LEASE_MARGIN)
    line.run()
    assert (len(line.ua.requests), row().test_requested_at) == (1, None)


def test_the_attempt_of_a_killed_test_is_closed_at_the_next_start(line):
    attempts.start(None, "default", "r", 1, "ascii", line.clock())
    maintenance.recover(line.rt)
    assert db.column("SELECT outcome FROM delivery_attempts") == ["interrupted"]


def test_a_failed_test_does_not_stop_batches_that_are_under_way(line):
    line.ua.then = for_events(503)
    line.publish(1)
    line.run()
    assert row().failing_since == line.clock()
    line.ua.then = 503
    reload.note_start(line.rt)
    deliver.test(line.rt, "default")
    assert (row().circuit, row().test_requested_at) == ("closed", None)


def test_a_failed_test_is_reported_also_while_a_batch_is_under_way(line):
    line.ua.then = json_reply(503)
    with db.writing():
        batches.create([], destination="default", tier="standard", now=line.clock())
    reload.note_start(line.rt)
    deliver.test(line.rt, "default")
    assert row().circuit == "closed"
    line.clock.move(61)
    (problem,) = away(line)
    assert (problem.cause, problem.fails) == ("the receiver is unavailable (503)", ("ready", "alert"))


def test_a_wrong_secret_opens_the_circuit_also_while_a_batch_is_under_way(line):
    line.ua.then = json_reply(401)
    with db.writing():
        batches.create([], destination="default", tier="standard", now=line.clock())
    reload.note_start(line.rt)
    deliver.test(line.rt, "default")
    (problem,) = away(line)
    assert (row().circuit, problem.is_proven) == ("open", True)


def test_a_good_test_does_not_hide_that_events_fail(line):
    line.ua.then = lambda request: json_reply(503) if request.events else accept(request)
    line.publish(1)
    line.run()
    began = row().failing_since
    reload.note_start(line.rt)
    deliver.test(line.rt, "default")
    assert (row().answered_at, row().failing_since) == (line.clock(), began)


# --- what is reported of a failing receiver


def test_the_problem_counts_from_the_first_failure_and_names_what_waits(line):
    line.ua.stop()
    line.publish(1)
    line.run()
    began = line.clock()
    line.wait(150, step=5)
    (problem,) = away(line)
    assert (problem.since, problem.cause, problem.events) == (began, "connection refused", 1)
    line.publish(2)
    line.wait(60, step=5)
    assert away(line)[0].events == 3
    reasons = db.column("SELECT error_reason FROM dead_letter")
    assert reasons == ["connection refused"]


def test_a_receiver_that_only_asks_for_patience_is_reported_after_a_minute(line):
    line.ua.then = json_reply(429, retry_after="45")
    line.publish(1)
    line.run()
    began = line.clock()
    line.wait(100, step=5)
    (problem,) = away(line)
    assert (problem.since, problem.cause) == (began, "the receiver rate-limits us (429)")
    line.heal()
    line.wait(60, step=5)
    assert away(line) == []


def test_doctor_does_not_call_a_receiver_ok_that_refuses_every_event(line):
    line.ua.then = lambda request: json_reply(400, {"ok": False, "error": "no"}) if request.events else accept(request)
    line.publish(8)
    line.wait(30, step=1)
    (receiver,) = [one for one in service_checks.check_receivers(line.rt) if one.check == "receiver"]
    assert receiver.level == "fail"
    assert "it refuses every event (400)" in receiver.text
    assert "csi dlq list" in receiver.remedy
    assert away(line)[0].is_proven
    line.heal()
    line.wait(60, step=1)
    assert (away(line), set(line.states())) == ([], {"delivered"})


def test_a_receiver_that_does_not_confirm_counts_is_named_once(line):
    start(line)
    assert (row().confirms_counts, destination_status(line.rt, "default").note) == (True, None)
    line.ua.then = json_reply(200, {"ok": True})
    line.publish(1)
    line.wait(10)
    assert not row().confirms_counts
    assert "does not confirm counts" in destination_status(line.rt, "default").note
    (warned,) = [one for one in service_checks.check_receivers(line.rt) if one.level == "warn"]
    assert "does not confirm counts" in warned.text


# --- certificates


@pytest.fixture
def secure(tmp_path, line):
    """The receiver with a certificate, and a function that changes it."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(TLS / "localhost.pem", TLS / "localhost.key")
    roots = tmp_path / "roots.pem"
    roots.write_text("".join((TLS / f"{name}.pem").read_text() for name in ("localhost", "expired")))
    line.rt.net = Net(verify=ssl.create_default_context(cafile=roots))
    with ScriptedReceiver(tls=context, now=line.clock) as ua:
        known = line.rt.destinations["default"]
        line.rt.destinations["default"] = replace(known, receiver=replace(known.receiver, url=ua.url))

        def change(name):
            context.load_cert_chain(TLS / f"{name}.pem", TLS / f"{name}.key")
            ua.stop()
            ua.start_again()

        yield change


def test_the_end_of_the_certificate_is_read_from_the_connection(line, secure):
    start(line)
    assert row().certificate_expires_at == 4_733_510_400.0
    line.clock.time = 4_733_510_400.0 - 86_400
    found = {problem.id: problem for problem in verdict(line.rt).problems}
    assert "expires in 1 day" in found["certificate_expiring"].what


def test_doctor_says_how_long_the_certificate_is_valid(line, secure):
    for days, level in ((15, "ok"), (13, "warn"), (1, "fail")):
        line.clock.time = 4_733_510_400.0 - days * 86_400
        (found,) = [one for one in service_checks.check_receivers(line.rt) if one.check == "certificate"]
        assert (found.level, f"expires in {days} day" in found.text) == (level, True)


def test_an_expired_certificate_is_named_with_its_date_and_its_own_remedy(line, secure):
    start(line)
    secure("expired")
    line.rt.net.close()
    line.clock.move(1)
    start(line)
    (problem,) = away(line)
    assert (problem.cause, problem.is_proven) == ("certificate expired on 2020-02-01", True)
    assert "renew the receiver's certificate" in problem.remedy
    assert row().certificate_expires_at == 1_580_515_200.0
    told = destination_check.check(line.rt, "default")
    assert "certificate expired on 2020-02-01" in told.text
    assert "start the receiver" not in told.remedy


def test_a_name_that_does_not_resolve_is_not_a_receiver_to_start(line):
    known = line.rt.destinations["default"]
    there = replace(known.receiver, url="https://receiver.invalid/ingest")
    line.rt.destinations["default"] = replace(known, receiver=there)
    start(line)
    (problem,) = away(line)
    assert problem.cause == "name cannot be resolved"
    told = destination_check.check(line.rt, "default")
    assert "start the receiver" not in problem.remedy + told.remedy


# --- samples of the backlog


def test_the_backlog_is_sampled_every_half_a_minute(line):
    start(line)
    destinations.change("default", paused_reason="x", paused_at=line.clock())
    line.publish(4)
    line.wait(70, step=5)
    seen = backlog_samples.since(0)
    assert [(one.waiting, one.delivered) for one in seen] == [(0, 0), (4, 0), (4, 0)]
    assert facts.gather(line.rt).waiting("default") == 4
    destinations.change("default", paused_reason=None, paused_at=None)
    line.wait(35, step=5)
    assert [(one.waiting, one.due, one.delivered) for one in backlog_samples.since(0)][-1] == (0, 0, 4)
    line.clock.move(3700)
    line.run()
    assert len(backlog_samples.since(0)) == 1


# --- what is known without a worker


def test_under_a_dead_worker_nothing_is_known_of_a_receiver(line):
    start(line)
    assert destination_status(line.rt, "default").state == "accepting"
    line.clock.move(31)
    found = destination_status(line.rt, "default")
    assert (found.state, found.is_reachable, found.gate) == ("unknown", None, "open")
    line.run()
    assert destination_status(line.rt, "default").state == "accepting"


def test_delivery_is_off_since_the_configuration_in_use_says_so(line):
    settings = line.rt.settings
    reload.note_start(line.rt)
    assert facts.gather(line.rt).delivery_off_since is None
    off = settings.model_copy(update={"features": settings.features.model_copy(update={"delivery": False})})
    line.rt.settings, switched_at = off, line.clock.move(60)
    reload.note_start(line.rt)
    line.clock.move(60)
    reload.note_start(line.rt)
    assert facts.gather(line.rt).delivery_off_since == switched_at


def test_the_operator_ends_a_wait_that_the_receiver_asked_for(line):
    """It asked for an hour and is repaired now: a test says so and changes nothing, `resume` sends what waits."""
    line.ua.then = json_reply(503, retry_after="3600")
    line.publish(3)
    line.run()
    line.ua.then = accept
    assert destination_check.check(line.rt, "default").is_good
    line.wait(120, step=5)
    assert (destination_status(line.rt, "default").state, line.states().get("delivered")) == ("throttled", None)
    assert away(line)[0].events == 3
    assert admin_destinations.resume(line.rt, "default")
    line.wait(5)
    assert line.states() == {"delivered": 3}
    assert not admin_destinations.resume(line.rt, "default")
