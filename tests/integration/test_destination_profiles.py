"""Destinations that do not speak the PRD's contract: what they get, what their answers mean, and when they get it."""

import hashlib
import hmac
import json
from dataclasses import replace
from datetime import UTC, datetime

import pytest
from pydantic import SecretStr

from csi import __version__
from csi.body_template.sample import SAMPLE_EVENT
from csi.config.delivery_settings import DestinationSettings
from csi.doctor import destination_check
from csi.emitter import http
from csi.emitter.destination import build
from csi.emitter.http import Receiver
from csi.emitter.profile import Profile, compose
from csi.errors import NetError
from csi.pipeline import receiver_test
from csi.status import destination_details, facts, slo
from csi.status.backlog import backlog
from csi.status.destinations import destination_status
from csi.store import counters, db, destinations
from tests.fakes.in_memory_playlists import list_id
from tests.fakes.profile_receiver import SAMPLES
from tests.fakes.scripted_receiver import SECRET, ReceivedRequest, json_reply
from tests.rigs.in_process import ledger_pipeline


@pytest.mark.parametrize("profile", SAMPLES)
def test_each_profile_is_verified_by_the_published_library_and_2xx_is_delivered(tmp_path, profile):
    with ledger_pipeline(tmp_path, profile=profile, tier="standard") as line:
        receiver_test.request_all(line.rt)
        line.run()
        assert (destination_status(line.rt, "there").state, line.ua.requests) == ("untested", [])
        line.publish(3, spacing=1, title='Ü "{}" <b>')
        line.wait(90, step=5)
        assert (line.states(), line.ua.objections) == ({"delivered": 3}, [])
        assert sorted(set(line.ua.event_ids)) == sorted(line.ua.event_ids)
        assert len(line.ua.event_ids) == 3
        assert destination_status(line.rt, "there").state == "accepting"
        assert destinations.get("there").confirms_counts is None


def test_a_template_that_fails_on_one_event_makes_it_a_dead_letter_and_the_others_arrive(tmp_path):
    template = '{"text": {{ event | tojson }},\n "length": {{ 1 // (event.subject.title | length - 3) }}}'
    with ledger_pipeline(tmp_path, profile="template", destination={"template": template}) as line:
        line.publish(1, title="first")
        line.publish(1, title="bad")
        line.publish(1, title="third")
        line.wait(20, step=1)
        assert line.states() == {"delivered": 2, "dead": 1}
        requests = destination_details.details(line.rt, "there").attempts
        assert sorted(one.answer for one in requests) == ["http 200", "http 200", "not sent"]
        assert {one.url for one in requests} == {line.rt.destinations["there"].address}
        ((cause, reason),) = db.fetch("SELECT cause, error_reason FROM dead_letter")
        assert cause == "event"
        assert "line 2: ZeroDivisionError" in reason
        assert len(line.ua.requests) == 2


def test_of_a_batch_the_event_that_a_template_fails_on_is_found_by_halving(tmp_path):
    fails = '{% if event.subject.title == "bad" %}{{ nothing }}{% endif %}'
    template = "{% for event in events %}" + fails + '{% endfor %}{"text": 1}'
    given = {"body": "batch", "template": template}
    with ledger_pipeline(tmp_path, profile="template", destination=given, tier="standard") as line:
        line.ua._read = lambda asked: _read_anything(line, asked)
        line.publish(4, spacing=1)
        line.publish(1, title="bad")
        line.wait(90, step=5)
        assert line.states() == {"delivered": 4, "dead": 1}
        assert [reason for (reason,) in db.fetch("SELECT error_reason FROM dead_letter")] == [
            "its template failed: line 1: UndefinedError: 'nothing' is undefined"
        ]


def _read_anything(line, asked):
    return ReceivedRequest(line.clock(), asked.headers, asked.body, {}, None)


def test_a_template_that_fails_on_every_event_opens_the_circuit_and_all_arrive_once_it_is_right(tmp_path):
    with ledger_pipeline(tmp_path, profile="template") as line:
        there = line.rt.destinations["there"]
        broken = replace(there.profile, template="{{ nothing }}")
        line.rt.destinations["there"] = replace(there, receiver=replace(there.receiver, profile=broken))
        line.publish(12, spacing=1)
        line.wait(60, step=2)
        assert line.states()["pending"] >= 4  # five, and one for each probe since then
        state = destination_status(line.rt, "there")
        assert "its template failed: line 1: UndefinedError" in (state.cause or "")
        line.rt.destinations["there"] = there
        assert line.back_in() <= 90
        assert line.states() == {"delivered": 12}


def test_where_the_status_counts_a_207_is_delivered_and_no_duplicate(tmp_path):
    reply = json_reply(207, {"ok": False, "rejected": 1, "errors": [{"index": 0, "error": "duplicate_event"}]})
    with ledger_pipeline(tmp_path, then=reply, profile="n8n") as line:
        line.publish(2, spacing=1)
        line.wait(30, step=5)
        assert line.states() == {"delivered": 2}
        assert slo.report(line.rt, 86_400).duplicates.value == 0


def test_messages_are_collected_for_five_minutes_into_one(tmp_path):
    given = {"group_seconds": None, "title": "{{ events | length }} items"}
    with ledger_pipeline(tmp_path, profile="notify", destination=given, interval=100) as line:
        line.publish(2, spacing=1)
        line.wait(150, step=50)
        line.publish(1)
        line.wait(145, step=50)
        assert line.ua.requests == []
        line.wait(120, step=30)
        (request,) = line.ua.requests
        assert (json.loads(request.body)["title"], len(request.events)) == ("3 items", 3)
        assert [one.answer for one in destination_details.details(line.rt, "there").attempts] == ["accepted"]
        assert line.states() == {"delivered": 3}
        # Events that wait by design say nothing about how fast delivery is.
        urgent = slo.report(line.rt, 86_400).latencies[0]
        assert (urgent.slow, urgent.to_accepted.p95, counters.all_of("accept_seconds")) == (0, None, {})


def test_texts_of_a_feed_mention_nobody_in_a_message_but_a_template_may():
    title = "@everyone\nBcc: x <!channel> <@U1> a@all.example"
    event = SAMPLE_EVENT | {"subject": SAMPLE_EVENT["subject"] | {"title": title}}
    template = "@here {{ events[0].subject.title }}"
    profile = Profile(kind="notify", title="<!here> {{ event.subject.title }}", template=template)
    sent = compose(profile, [event], instance_id="i", batch_id="b", form="ascii")
    shown = "@\u200beveryone{}Bcc: x <\u200b!channel> <\u200b@U1> a@all.example"
    assert sent.title == f"<!here> {shown.format(' ')}"
    assert sent.body.decode() == f"@here {shown.format(chr(10))}"
    plain = compose(Profile(kind="notify"), [event], instance_id="i", batch_id="b", form="ascii")
    assert plain.title == shown.format(" ")
    assert shown.format("\n") in plain.body.decode()


def test_in_quiet_hours_nothing_is_sent_and_the_reason_is_shown(tmp_path):
    """The clock in hand stands at noon."""
    given = {"quiet_hours": [{"start": "11:00", "end": "13:00"}]}
    with ledger_pipeline(tmp_path, profile="notify", destination=given, interval=7200) as line:
        line.clock.time = datetime(2026, 3, 2, 12, 0, tzinfo=UTC).timestamp()
        line.publish(2, spacing=1)
        line.wait(3000, step=1000)
        assert (line.ua.requests, line.states()) == ([], {"pending": 2})
        (group,) = [one for one in backlog(line.rt) if one.step == "flush"]
        assert (group.reason.text, group.reason.until) == (
            "quiet hours of this destination",
            datetime(2026, 3, 2, 13, 0, tzinfo=UTC).timestamp(),
        )
        assert facts.gather(line.rt).oldest_pending is None
        line.wait(602, step=300)
        assert line.states() == {"delivered": 2}
        assert [len(request.events) for request in line.ua.requests] == [2]


@pytest.mark.parametrize(
    ("given", "arrive"),
    [
        ({"tiers": ["standard"]}, 0),
        ({"tiers": ["urgent"]}, 2),
        ({"watches": ["other"]}, 0),
        ({"watches": [list_id(1)]}, 1),
    ],
)
def test_events_are_chosen_by_watch_and_tier(tmp_path, given, arrive):
    with ledger_pipeline(tmp_path, profile="n8n", lists=2, destination=given) as line:
        line.publish(2, ref=-1)
        line.wait(20, step=2)
        assert len(line.ua.event_ids) == arrive


def test_headers_come_from_secrets_and_replace_the_bearer_token(tmp_path):
    given = {
        "headers": {
            "X-Environment": "test",
            "Authorization": {"value_env": "TO_SECRET", "prefix": "Token "},
            "content-type": "application/vnd.n8n+json",
        },
        "bearer_env": "TO_WHSEC",
        "method": "PATCH",
    }
    with ledger_pipeline(tmp_path, profile="n8n", destination=given) as line:
        line.publish(1)
        line.wait(20, step=2)
        headers = line.ua.requests[0].headers
        assert headers["x-environment"] == "test"
        assert headers["authorization"] == f"Token {SECRET}"
        assert headers["content-type"] == "application/vnd.n8n+json"


def test_the_default_request_is_the_same_byte_for_byte():
    """Signature, headers and body of release 1.0, for a fixed time, request and event."""
    receiver = Receiver("https://x.example/ingest", SECRET.encode(), SECRET, 30.0)
    sent = {}

    class Wire:
        def post(self, url, *, body, headers, limits, method):
            sent.update(url=url, body=body, headers=headers, method=method)
            raise NetError("x", kind="reset")

    event = {"event_id": "e1", "subject": {"title": "Ü"}}
    http.send_events(
        Wire(),
        receiver,
        [event],
        instance_id="csi-1",
        batch_id="b1",
        request_id="req_1",
        form="ascii",
        now=1771761600.0,
    )
    events = '[{"event_id":"e1","subject":{"title":"\\u00dc"}}]'
    version = f'"csi_version":"{__version__}"'
    body = f'{{"batch_id":"b1","csi_instance_id":"csi-1",{version},"events":{events}}}'.encode()
    digest = hmac.new(SECRET.encode(), b"1771761600.req_1." + body, hashlib.sha256).hexdigest()
    assert sent["body"] == body
    assert sent["method"] == "POST"
    assert list(sent["headers"].items()) == [
        ("Authorization", f"Bearer {SECRET}"),
        ("Content-Type", "application/json"),
        ("X-CSI-Signature", f"sha256={digest}"),
        ("X-CSI-Timestamp", "1771761600"),
        ("X-CSI-Request-ID", "req_1"),
    ]


def test_delivery_test_sends_nothing_to_a_receiver_that_does_not_know_empty_batches(tmp_path):
    with ledger_pipeline(tmp_path, profile="n8n") as line:
        found = destination_check.check(line.rt, "there")
        assert (found.is_good, found.text, line.ua.requests) == (
            True,
            "not asked: it does not know empty batches; its first event is its test",
            [],
        )
        line.ua.then = 404
        line.publish(1)
        line.wait(3)
        found = destination_check.check(line.rt, "there")
        assert (found.is_good, found.text) == (False, "nothing exists at its address (404): check the path")


def test_a_secret_address_is_never_shown(tmp_path):
    with ledger_pipeline(tmp_path, profile="n8n") as line:
        given = DestinationSettings(preset="slack", endpoint_env="HOOK")
        there = build("x", given, line.rt.settings, {"HOOK": SecretStr("https://hooks.example.org/T0/B0/abcdef?a=b")})
        assert there.address == "https://hooks.example.org/…"
        assert "abcdef" not in repr(there)
