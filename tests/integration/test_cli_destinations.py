"""`csi destinations`: added, changed and rotated without the file and without a restart; secrets shown once."""

import json
import re
import stat
from datetime import UTC, datetime

import pytest
from standardwebhooks.webhooks import Webhook

from csi.admin import destination_settings as managed
from csi.config import destination_secrets
from csi.config.delivery_settings import DestinationSettings
from csi.store import db, events, managed_destinations
from csi.store.queries import audit_rows
from csi.web.shared_state import Sidecar
from tests.fakes.scripted_receiver import ReceivedRequest, ScriptedReceiver, accept, json_reply
from tests.fakes.youtube import simulated_youtube
from tests.rigs.in_process import InProcessPipeline
from tests.rigs.operator import operator_rig

ENV: dict[str, str] = {}


@pytest.fixture
def operator(tmp_path):
    file_own = {"destinations": {"fixed": {"endpoint": "http://127.0.0.1:9/", "secret_env": "CSI_UA_SHARED_SECRET"}}}
    with operator_rig(tmp_path, delivery=file_own) as built:
        yield built


@pytest.fixture
def line(tmp_path, clock):
    with simulated_youtube(playlists=1, now=clock) as yt, ScriptedReceiver() as ua, db.connection():
        source = {"first_poll": "all", "poll_interval_seconds": 30, "quota_limit": 1_000_000}
        playlists = {"api_base_url": yt.api_base_url, "playlists": [{"id": yt.playlists[0]}], **source}
        built = InProcessPipeline(tmp_path, clock, ua.url, sources={"youtube_playlist": playlists})
        built.yt = yt
        yield built


def secret_of(line: InProcessPipeline, name: str) -> str:
    kept = destination_secrets.read(line.rt.settings.csi.state_dir)[name]
    return kept[destination_secrets.variable_of(name, "SECRET")].get_secret_value()


# --- the command


def test_a_destination_is_added_shown_changed_and_removed(operator):
    added = operator.json("destinations", "add", "hook", "http://127.0.0.1:9/in", "answers=status", "tags=[ai, news]")
    secret = added["secret"]
    assert re.fullmatch(r"[0-9a-f]{64}", secret)
    assert added["settings"]["tags"] == ["ai", "news"]
    (row,) = managed_destinations.every(0.0)
    assert secret not in row.settings_json
    file = operator.rt.settings.csi.state_dir / destination_secrets.FILE
    assert (stat.S_IMODE(file.stat().st_mode), secret in file.read_text()) == (0o600, True)

    changed = operator.call("destinations", "set", "hook", "body=event", "timeout_seconds=5", "tags=")
    assert changed.exit_code == 0, changed.output
    shown = operator.json("destinations", "show", "hook")
    assert (shown["origin"], shown["settings"]["body"], shown["settings"]["timeout_seconds"]) == (
        "command",
        "event",
        5.0,
    )
    assert ("tags" in shown["settings"], secret in json.dumps(shown)) == (False, False)
    names = [(one["destination"], one["origin"]) for one in operator.json("destinations", "list")["destinations"]]
    assert names == [("fixed", "config"), ("default", "config"), ("hook", "command")]
    assert "hook" in operator.call("destinations", "list").stdout

    assert operator.call("destinations", "remove", "hook").exit_code == 2, "it asks, and nobody answers"
    assert operator.call("destinations", "remove", "hook", "--yes").exit_code == 0
    assert (managed_destinations.every(0.0), secret in file.read_text()) == ([], False)
    assert [one.action for one in audit_rows.page(3)] == [
        f"csi destinations {word} hook" for word in ("remove", "set", "add")
    ]
    assert not any(secret in f"{one.action}{one.detail}" for one in audit_rows.page(9))


def test_every_key_of_the_model_can_be_set():
    texts = {"quiet_hours": "[]", "headers": "{X-Team: red}", "priority_behavior": "{urgent: {batch_size: 2}}"}
    for key in DestinationSettings.model_fields:
        assert managed.value_of(texts.get(key, "x")) is not None
    assert managed.value_of("") is None
    assert managed.value_of("{{ a }} : [") == "{{ a }} : ["


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("add", "fixed", "http://127.0.0.1:9/"), "the configuration has a destination fixed already"),
        (("set", "fixed", "body=event"), "config.yaml, then reload the worker"),
        (("remove", "default", "--yes"), "change delivery.ua_endpoint (CSI_UA_ENDPOINT) in"),
        (("set", "default", "answers=status"), "a destination of another name: csi destinations add"),
        (("rotate", "fixed"), "change delivery.destinations.fixed in"),
        (("set", "moon", "body=event"), "there is no destination 'moon'"),
        (("add", "no/name", "http://127.0.0.1:9/"), "a name has 1 to 64 letters"),
        (("add", "hook", "http://example.org/"), "endpoint:"),
        (("add", "hook", "http://127.0.0.1:9/", "body=parcel"), "body:"),
        (("add", "hook", "http://127.0.0.1:9/", "colour=red"), "not KEY=VALUE of a known key"),
        (("add", "hook", "http://127.0.0.1:9/", "secret_env=CSI_NOT_SET"), "CSI_NOT_SET is not set"),
        (("add", "hook", "http://127.0.0.1:9/", "template={{ nothing.at.all }}"), "template: the template fails"),
        (("add", "hook"), "endpoint, or endpoint_env"),
        (("test", "moon"), "there is no destination 'moon'"),
    ],
)
def test_what_is_refused_changes_nothing(operator, arguments, words):
    result = operator.call("destinations", *arguments)
    assert result.exit_code != 0
    assert words in f"{result.stderr}{result.exception}"
    assert managed_destinations.every(0.0) == []
    assert not (operator.rt.settings.csi.state_dir / destination_secrets.FILE).exists()


@pytest.mark.parametrize("given", ["short-of-prefix", "whsec_!!!", "whsec_c2hvcnQ="])
def test_a_secret_of_the_wrong_form_is_refused_and_not_shown(operator, given):
    arguments = ("http://127.0.0.1:9/", "signature=standard_webhooks", "secret_form=whsec", "--secret-stdin")
    result = operator.call("destinations", "add", "hook", *arguments, text=f"{given}\n")
    assert (result.exit_code, managed_destinations.every(0.0)) == (1, [])
    assert "secret_env: the value of" in str(result.exception)
    assert given not in result.output + str(result.exception)


def test_a_url_that_is_a_secret_is_kept_in_the_file_and_not_shown(operator):
    url = "https://hooks.example.org/services/T0/B0/very-secret-part"
    assert operator.call("destinations", "add", "chat", "preset=slack", "--endpoint-stdin", text=url).exit_code == 0
    shown = operator.json("destinations", "show", "chat")
    assert (shown["url"], "very-secret-part" in json.dumps(shown)) == ("https://hooks.example.org/…", False)
    assert "very-secret-part" not in managed_destinations.every(0.0)[0].settings_json


# --- while the worker and the sidecar run


def test_a_running_worker_and_sidecar_take_a_new_destination_and_lose_nothing(line):
    sidecar = Sidecar(lambda: line.rt)
    with ScriptedReceiver(then=json_reply(200, b"<html>ok</html>")) as hook:
        line.run()
        given = {"endpoint": hook.url, "answers": "status", "body": "event", "signature": "none"}
        managed.add(line.rt, "hook", given, {}, ENV)
        assert "hook" not in line.rt.destinations
        line.yt.add(line.yt.playlists[0])
        line.wait(40)
        assert "hook" in sidecar._call(lambda rt: rt.destinations)
        (request,) = hook.requests
        assert json.loads(request.body)["event_id"] == db.value("SELECT event_id FROM events")
        assert events.counts() == {"delivered": 1}
        managed.remove(line.rt, managed.find(line.rt, "hook", ENV))
        line.yt.add(line.yt.playlists[0])
        line.wait(40)
        assert ("hook" in line.rt.destinations, len(hook.requests)) == (False, 1)
    assert events.counts() == {"delivered": 2}


def test_removing_a_destination_settles_what_waits_for_it_alone(line):
    managed.add(line.rt, "hook", {"endpoint": "http://127.0.0.1:9/", "signature": "none"}, {}, ENV)
    line.run()
    line.yt.add(line.yt.playlists[0])
    line.wait(40)
    assert events.counts() == {"in_flight": 1} or events.counts() == {"pending": 1}
    assert managed.remove(line.rt, managed.find(line.rt, "hook", ENV)) == 1
    assert (events.counts(), db.number("SELECT COUNT(*) FROM outbox")) == ({"delivered": 1}, 0)
    line.wait(40)
    assert events.counts() == {"delivered": 1}


def test_a_destination_whose_secret_is_lost_keeps_its_events_until_it_has_a_new_one(line):
    with ScriptedReceiver() as hook:
        managed.add(line.rt, "hook", {"endpoint": hook.url}, {}, ENV)
        (line.rt.settings.csi.state_dir / destination_secrets.FILE).unlink()
        line.yt.add(line.yt.playlists[0])
        line.wait(40)
        assert (hook.requests, db.number("SELECT COUNT(*) FROM destinations WHERE circuit = 'open'")) == ([], 1)
        hook.secret = managed.rotate(line.rt, managed.find(line.rt, "hook", ENV), 0.0)
        line.wait(60)
    assert (events.counts(), len(hook.event_ids)) == ({"delivered": 1}, 1)


# --- rotation


def test_standard_webhooks_carries_both_signatures_during_the_overlap(line):
    with ScriptedReceiver(then=json_reply(200)) as hook:
        given = {"endpoint": hook.url, "answers": "status", "body": "event", "signature": "standard_webhooks"}
        _, old = managed.add(line.rt, "hook", given | {"secret_form": "whsec"}, {}, ENV)
        new = managed.rotate(line.rt, managed.find(line.rt, "hook", ENV), 3_600.0)
        for _ in range(2):
            line.yt.add(line.yt.playlists[0])
            line.wait(40)
            line.wait(4_000, step=500)
    during, after = hook.requests[0], hook.requests[-1]
    assert signatures(during) == [signed_by(new, during), signed_by(old, during)]
    assert signatures(after) == [signed_by(new, after)]


def signatures(request: ReceivedRequest) -> list[str]:
    return request.headers["webhook-signature"].split()


def signed_by(secret: str, request: ReceivedRequest) -> str:
    """By the published library."""
    at = datetime.fromtimestamp(int(request.headers["webhook-timestamp"]), UTC)
    return Webhook(secret).sign(request.headers["webhook-id"], at, request.body.decode())


@pytest.mark.parametrize("refusal", [401, 403])
def test_with_one_signature_the_previous_secret_is_used_where_the_new_one_is_refused(line, refusal):
    with ScriptedReceiver() as hook:
        _, old = managed.add(line.rt, "hook", {"endpoint": hook.url}, {}, ENV)
        hook.secret = old
        hook.then = lambda request: accept(request) if request.objection is None else json_reply(refusal)
        managed.rotate(line.rt, managed.find(line.rt, "hook", ENV), 3_600.0)
        line.yt.add(line.yt.playlists[0])
        line.wait(40)
        row = managed_destinations.find("hook")
        assert (events.counts(), row.previous_needed_at is not None) == ({"delivered": 1}, True)
        hook.secret = secret_of(line, "hook")
        line.yt.add(line.yt.playlists[0])
        line.wait(40)
    assert (events.counts(), managed_destinations.find("hook").previous_needed_at) == (
        {"delivered": 2}, row.previous_needed_at,
    )  # fmt: skip


def test_rotate_shows_the_secret_once_and_says_until_when(operator):
    first = operator.json("destinations", "add", "hook", "http://127.0.0.1:9/in")["secret"]
    done = operator.call("destinations", "rotate", "hook", "--overlap", "2h")
    (new,) = re.findall(r"[0-9a-f]{64}", done.stdout)
    shown = operator.call("destinations", "show", "hook").stdout
    assert (new != first, "last needed: never since" in shown, new in shown or first in shown) == (True, True, False)
    assert operator.call("destinations", "set", "hook", "answers=status", "signature=standard_webhooks").exit_code == 0
    shown = operator.call("destinations", "show", "hook").stdout
    assert "requests have both signatures, so when it was last needed is not known" in shown


# --- test


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (json_reply(200, b"<html>hello</html>"), "where every 2xx means accepted"),
        (json_reply(302), "set CSI_UA_ENDPOINT (of a named destination: its endpoint) to the final one"),
        (
            json_reply(207, {"ok": False, "accepted": 0, "rejected": 1, "errors": [{"index": 0, "error": "too old"}]}),
            "it refuses the event; it says: too old",
        ),
        (json_reply(400, {"ok": False, "error": "no title"}), "it says: no title"),
    ],
    ids=["html", "redirect", "207", "400"],
)
def test_a_failed_test_says_what_to_do(operator, answer, says):
    with ScriptedReceiver(then=answer) as hook:
        operator.json("destinations", "add", "hook", hook.url)
        done = operator.call("destinations", "test", "hook")
    assert (done.exit_code, says in done.stdout) == (1, True), done.stdout


@pytest.mark.parametrize(("status", "ok"), [(200, True), (503, False), (302, False)])
def test_a_sample_event_tests_a_destination(operator, status, ok):
    with ScriptedReceiver(then=json_reply(status, b"<html>hello</html>")) as hook:
        operator.json("destinations", "add", "hook", hook.url, "answers=status", "body=event", "signature=none")
        done = operator.json("destinations", "test", "hook", code=0 if ok else 1)
        assert (done["ok"], done["status"], len(hook.requests)) == (ok, status, 1)
        shown = operator.json("destinations", "show", "hook")
    (request,) = shown["attempts"]
    assert (request["status"], request["outcome"], request["url"]) == (
        status,
        "test_ok" if ok else "test_failed",
        hook.url,
    )
    assert (shown["requests"], shown["success"], shown["p95_seconds"] is not None) == (1, 1.0 if ok else 0.0, True)
    assert db.number("SELECT COUNT(*) FROM events") == 0
