"""`csi delivery`: status, pause, resume, and a test that explains what the receiver answered."""

import json
import re
import time
from email.utils import formatdate

import pytest

from csi.doctor.destination_check import Exchange, explain, explain_clock, judge_fixed_form, judge_forms
from csi.emitter.verdict import ClockOff, Delivered, EndpointFault, Refused, Throttled, Transient
from csi.errors import MissingSetting, NetError
from csi.ingester import signature
from csi.net import HttpHeaders, HttpResponse
from csi.status.destinations import UnknownDestination
from csi.status.facts import gather
from csi.store import db, destinations
from csi.web.health import readiness
from tests.fakes.raw_server import RawServer, Send, answer
from tests.fakes.scripted_receiver import SECRET, ScriptedReceiver, accept
from tests.rigs.operator import operator_rig


@pytest.fixture
def operator(tmp_path):
    with operator_rig(tmp_path) as built:
        yield built


# --- status, pause, resume


def test_status_of_a_receiver_that_nothing_is_known_of(operator):
    (one,) = operator.json("delivery", "status")["destinations"]
    assert (one["destination"], one["state"], one["breaker"], one["pending"]) == ("default", "untested", "closed", 0)
    assert one["gate"] == "open", "the deprecated alias of `state`"
    text = operator.call("delivery", "status").stdout
    assert "state         not contacted yet" in text
    assert "last success  never" in text


def test_status_shows_what_waits_travels_and_died(operator):
    operator.event("a", ago=7300)
    operator.event("b", tier="standard")
    operator.batch([operator.event("c")])
    operator.dead("d")
    (one,) = operator.json("delivery", "status")["destinations"]
    assert (one["pending"], one["in_flight"], one["dead_letters"]) == (2, 1, 1)
    assert {lane["lane"]: (lane["pending"], lane["in_flight"]) for lane in one["lanes"]} == {
        "urgent": (1, 1),
        "standard": (1, 0),
    }
    text = operator.call("delivery", "status").stdout
    assert "2 pending, 1 in flight, 1 open dead letters" in text
    assert "2 h" in text


def test_status_says_why_the_gate_is_closed(operator):
    now = operator.now
    destinations.change("default", circuit="open", reason="http 401", opened_at=now, next_probe_at=now + 15)
    (one,) = operator.json("delivery", "status")["destinations"]
    assert (one["state"], one["gate"]) == ("circuit_open", "away")
    assert one["breaker_reason"].startswith("authentication failed (401): check the secret")
    destinations.change("default", circuit="closed", throttled_until=now + 100)
    assert "throttled by the receiver until" in operator.call("delivery", "status").stdout


def test_status_says_what_is_known_of_a_receiver(operator):
    now = operator.now
    destinations.change(
        "default",
        answered_at=now,
        confirms_counts=False,
        certificate_expires_at=now + 30 * 86_400 + 60,
        last_failure_at=now,
        last_error="timeout: no answer within 10 s",
    )
    (one,) = operator.json("delivery", "status")["destinations"]
    assert (one["state"], one["confirms_counts"], one["last_error"]) == ("accepting", False, "no answer within 10 s")
    assert one["certificate_expires_at"]
    text = operator.call("delivery", "status").stdout
    for said in ("certificate   expires in 30 days", "does not confirm counts", ": no answer within 10 s"):
        assert said in text


def test_pause_is_kept_shown_and_ended(operator):
    result = operator.call("delivery", "pause", "--reason", "maintenance\x1b[31m")
    assert (result.exit_code, result.stdout) == (0, "default: delivery is paused\n")
    (one,) = operator.json("delivery", "status")["destinations"]
    assert (one["state"], one["gate"], one["held"]) == ("paused", "held", "maintenance[31m")
    assert "paused by the operator since" in operator.call("delivery", "status").stdout
    assert "it was paused already" in operator.call("delivery", "pause").stdout
    assert destinations.get().paused_reason == "by command"
    assert operator.call("delivery", "resume").stdout == "default: delivery is resumed\n"
    assert operator.call("delivery", "resume").stdout == "default: delivery was neither paused nor throttled\n"
    assert (destinations.get().paused_reason, destinations.get().paused_at) == (None, None)


def test_readyz_says_that_delivery_is_paused_but_not_why(operator):
    operator.call("delivery", "pause", "--reason", "ask Anna")
    report = readiness(gather(operator.rt))
    assert not report.is_good
    assert report.body["delivery"]["held"] == ["default"]
    assert "delivery to default is paused by the operator" in report.body["reasons"]
    assert "Anna" not in json.dumps(report.body)


@pytest.mark.parametrize("command", ["status", "pause", "resume", "test"])
def test_a_destination_that_does_not_exist(operator, command):
    result = operator.call("delivery", command, "--destination", "nowhere")
    assert isinstance(result.exception, UnknownDestination)
    assert "default" in str(result.exception)


# --- test


def verifies(*forms):
    """A receiver that verifies the signature over these canonical forms only."""

    def answer(request):
        stamp, number = request.headers["x-csi-timestamp"], request.headers["x-csi-request-id"]
        good = [signature.sign(SECRET, stamp, number, signature.canonical(request.envelope, form)) for form in forms]
        given = request.headers["x-csi-signature"].removeprefix("sha256=")
        return accept(request) if given in good else (401, {"ok": False, "error": "bad_signature"}, {})

    return answer


def ask(tmp_path, *script, then=accept, code=0, **delivery):
    with ScriptedReceiver(*script, then=then) as ua, operator_rig(tmp_path, ua.url, delivery=delivery) as built:
        (one,) = built.json("delivery", "test", code=code)["destinations"]
        text = built.call("delivery", "test").output
    assert SECRET not in text + json.dumps(one)
    assert all(request.event_ids == [] for request in ua.requests), "nothing but empty batches"
    return one, ua


def test_a_receiver_that_takes_everything(tmp_path):
    one, ua = ask(tmp_path)
    assert (one["ok"], one["status"], one["forms"]) == (True, 200, "both")
    assert one["text"] == "accepted: address, token and signature are right"
    assert set(db.column("SELECT outcome FROM delivery_attempts")) == {"test_ok"}
    assert len(ua.requests) == 6


@pytest.mark.parametrize("form", ["ascii", "utf8"])
def test_a_receiver_that_verifies_one_form_only_is_found_out_and_remembered(tmp_path, form):
    one, _ = ask(tmp_path, then=verifies(form))
    assert (one["ok"], one["forms"]) == (True, form)
    assert destinations.get().json_form == form


def test_a_configured_form_that_is_not_verified_is_said(tmp_path):
    one, _ = ask(tmp_path, then=verifies("utf8"), canonical_json="ascii")
    assert (one["ok"], one["forms"]) == (True, "unknown")
    assert "does not verify text beyond ASCII in the configured form ascii" in one["forms_text"]


def test_a_wrong_secret(tmp_path):
    one, ua = ask(tmp_path, then=(401, {"ok": False, "error": "bad_signature"}, {}), code=1)
    assert (one["ok"], one["status"], one["forms"]) == (False, 401, "unknown")
    assert "CSI_UA_SHARED_SECRET" in one["text"]
    assert len(ua.requests) == 2, "nobody is asked about forms who lets nothing in"


def test_a_clock_that_is_off(tmp_path):
    body = b'{"ok": false, "error": "stale_timestamp"}'
    date = ("Date", formatdate(time.time() - 1000, usegmt=True))
    with RawServer([Send(answer(401, body, [date]))]) as ua, operator_rig(tmp_path, f"{ua.url}/ingest") as built:
        (one,) = built.json("delivery", "test", code=1)["destinations"]
    assert -1010 < one["clock_ahead"] < -990
    assert re.search(r"its clock is 10\d\d s behind ours", one["clock_text"])
    assert "stale_timestamp" in one["text"]
    assert "NTP" in one["text"]


def test_nobody_there(operator):
    (one,) = operator.json("delivery", "test", code=1)["destinations"]
    assert (one["status"], one["ok"]) == (None, False)
    assert one["text"].startswith("no answer: ")


def test_nothing_configured(tmp_path):
    with operator_rig(tmp_path) as built:
        built.env |= {"CSI_UA_ENDPOINT": None, "CSI_UA_SHARED_SECRET": None}
        result = built.call("delivery", "test")
    assert isinstance(result.exception, MissingSetting)


def test_it_asks_also_while_delivery_is_paused_and_leaves_the_breaker_alone(tmp_path):
    with ScriptedReceiver() as ua, operator_rig(tmp_path, ua.url) as built:
        destinations.change("default", paused_reason="x", paused_at=1.0, circuit="open", reason="http 401")
        assert built.call("delivery", "test").exit_code == 0
        assert (destinations.get().paused_reason, destinations.get().circuit) == ("x", "open")


# --- the words


def exchange(verdict, status=200, answer=None):
    return Exchange("ascii", answer or HttpResponse(status, HttpHeaders(), b"", "u"), verdict, 0.1, None)


@pytest.mark.parametrize(
    ("one", "words"),
    [
        (exchange(Delivered()), "accepted"),
        (exchange(Refused("http 400: empty"), 400), "refuses an empty batch (http 400: empty)"),
        (exchange(ClockOff("http 401; +400 s"), 401), "NTP"),
        (exchange(Throttled(40, "http 429"), 429), "asks us to wait for 40 s"),
        (exchange(EndpointFault("http 401: bad_credentials"), 401), "bearer token is wrong"),
        (exchange(EndpointFault("http 401"), 401), "authentication failed"),
        (exchange(EndpointFault("http 403: instance_not_allowed"), 403), "instance_id"),
        (exchange(EndpointFault("http 404"), 404), "path"),
        (exchange(EndpointFault("http 418"), 418), "misconfigured"),
        (exchange(EndpointFault("http 302"), 302), "never followed"),
        (
            exchange(EndpointFault("tls"), answer=NetError("h: certificate", kind="tls")),
            "refused by us: no TLS connection",
        ),
        (exchange(Transient("timeout"), answer=NetError("h: no time", kind="timeout")), "no answer in time"),
        (exchange(Transient("answer without ok"), 200), "right service"),
        (exchange(Transient("http 500: oh"), 500), "the receiver fails (500); it says: oh; events stay"),
    ],
)
def test_every_verdict_has_words(one, words):
    assert words in explain(one)


@pytest.mark.parametrize(
    ("ahead", "words"),
    [(None, "no Date header"), (1.4, "agrees"), (-12, "12 s behind"), (70, "70 s ahead of ours; beyond 300 s")],
)
def test_clocks(ahead, words):
    assert words in explain_clock(ahead)


@pytest.mark.parametrize(
    ("ascii_one", "utf8_one", "forms"),
    [
        (exchange(Delivered()), exchange(Delivered()), "both"),
        (exchange(Delivered()), exchange(EndpointFault("x"), 401), "ascii"),
        (exchange(EndpointFault("x"), 401), exchange(Refused("http 422"), 422), "utf8"),
        (exchange(Refused("x"), 400), exchange(Refused("x"), 400), "unknown"),
        (exchange(EndpointFault("x"), 401), exchange(EndpointFault("x"), 401), "unknown"),
        (exchange(Transient("x"), 503), exchange(Delivered()), "unknown"),
    ],
)
def test_only_a_refusal_beside_an_acceptance_is_a_proof(ascii_one, utf8_one, forms):
    assert judge_forms(exchange(Delivered()), ascii_one, utf8_one) == forms


def test_a_fixed_form_that_cannot_be_judged():
    assert "cannot tell" in judge_fixed_form("utf8", exchange(Refused("x"), 400))[1]
