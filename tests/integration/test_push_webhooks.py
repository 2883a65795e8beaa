"""Webhooks over loopback HTTP: Composio and your own scripts, verified, stored, handled once; floods and bad input."""

import json
import subprocess

import pytest
from standardwebhooks import Webhook

from csi.admin import inbound
from csi.admin.inbound import InboundRefused
from csi.clock import iso
from csi.ingester.event import CreatorSignalEvent
from csi.simulator.composio import ComposioSender
from csi.store import db, inbound_endpoints, inbound_messages, incidents, subscriptions
from csi.store.models import Event
from tests.rigs.push import PushRig, push_rig

SECRET = "composio-secret-of-the-project"


def event(number: int = 1, **fields) -> dict:
    return {
        "event_id": f"n8n:{number}",
        "dedupe_key": f"n8n:item:{number}",
        "source": "n8n",
        "event_type": "post",
        "occurred_at": "2026-02-22T12:00:00Z",
        "subject": {"title": f"Post {number}"},
    } | fields


def signed(rig: PushRig, access: inbound.SenderAccess, body: bytes, message_id: str = "msg_1", at: float | None = None):
    """Headers as the library of Standard Webhooks makes them."""
    from datetime import UTC, datetime

    moment = datetime.fromtimestamp(rig.clock() if at is None else at, UTC)
    signature = Webhook(access.secret).sign(message_id, moment, body.decode())
    return {
        "webhook-id": message_id,
        "webhook-timestamp": str(int(moment.timestamp())),
        "webhook-signature": signature,
        "Content-Type": "application/json",
    }


@pytest.fixture
def rig(tmp_path, clock):
    with push_rig(tmp_path, clock, key=True) as found:
        yield found


@pytest.fixture
def composio(rig, monkeypatch):
    monkeypatch.setenv("CSI_COMPOSIO_SECRET", SECRET)
    made = rig.sender("composio", "composio", secret_env="CSI_COMPOSIO_SECRET")
    return ComposioSender(made.url, SECRET, now=rig.clock)


def playlist_item(rig: PushRig) -> dict:
    """A new item of the playlist, as the API lists it."""
    other = rig.world.add_channel("Another channel", at=rig.clock())
    video = rig.world.upload(other.id, "Added", at=rig.clock())
    rig.world.add_to_playlist(rig.playlist, video.id, at=rig.clock())
    page = rig.site.api("playlistItems", {"part": "snippet,contentDetails,status", "playlistId": rig.playlist,
                                          "maxResults": "50"}, "demo-key", rig.clock())  # fmt: skip
    items = json.loads(page.body)["items"]
    return next(item for item in items if item["contentDetails"]["videoId"] == video.id)


# ── your own ────────────────────────────────────────────────────────────────────────────────────────────


def test_a_ready_event_is_delivered_once_however_often_it_is_sent(rig):
    access = rig.sender("n8n", tier="urgent")
    body = json.dumps([event(1), event(2)]).encode()
    assert rig.post(access.url, body, signed(rig, access, body)) == 202
    assert rig.post(access.url, body, signed(rig, access, body)) == 200  # the same message again
    assert rig.post(access.url, body, signed(rig, access, body, "msg_2")) == 202  # the same events under another id
    rig.line.wait(3)
    assert [one["event_id"] for one in rig.received("post")] == ["n8n:1", "n8n:2"]
    assert rig.received("post")[0]["routing"]["priority"] == "urgent"
    assert rig.received("post")[0]["metadata"]["source_adapter"] == "inbound:n8n"
    assert [one.result for one in inbound_messages.newest(5)] == ["0 stored, 2 known", "2 stored, 0 known"]


def test_other_bytes_under_a_known_id_are_a_conflict(rig):
    access = rig.sender("n8n")
    for number, status in ((1, 202), (2, 409)):
        body = json.dumps(event(number)).encode()
        assert rig.post(access.url, body, signed(rig, access, body)) == status
    rig.line.wait(40, step=10)
    assert [one["event_id"] for one in rig.received("post")] == ["n8n:1"]


@pytest.mark.parametrize(
    ("change", "status"),
    [
        ({"webhook-signature": "v1,AAAA"}, 401),
        ({"webhook-signature": ""}, 401),
        ({"webhook-timestamp": "soon"}, 401),
        ({"webhook-id": "x" * 300}, 401),
    ],
)
def test_what_is_not_signed_rightly_is_refused_and_counted(rig, change, status):
    access, body = rig.sender("n8n"), json.dumps(event()).encode()
    assert rig.post(access.url, body, signed(rig, access, body) | change) == status
    assert rig.post(access.url, body, signed(rig, access, body, at=rig.clock() - 400)) == 401
    assert inbound_messages.newest(5) == []
    assert inbound_endpoints.find("n8n").refused == 2


def test_addresses_that_do_not_exist_are_all_the_same(rig):
    access = rig.sender("n8n")
    inbound.add(rig.rt, "old")
    gone = inbound.access(rig.rt, inbound_endpoints.find("old")).url
    inbound.remove("old")
    urls = [access.url[:-1] + ("0" if access.url[-1] != "0" else "1"), gone, f"{rig.url}/hooks/nobody/123",
            f"{rig.url}/hooks/websub-999/123", f"{rig.url}/hooks/", f"{rig.url}/hooks/n8n"]  # fmt: skip
    answers = {rig.net.post(url, body=b"x" * 1000, headers={}).body for url in urls}
    assert len(answers) == 1
    assert b'"status": 404' in answers.pop()
    assert rig.net.get(access.url).status == 404


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (b"not json", "not JSON"),
        (b"[]", "not empty"),
        (b"[1]", "events[0] is not an object"),
        (json.dumps([event(), event(2, occurred_at="soon")]).encode(), "events[1].occurred_at"),
        (json.dumps(event(event_id="")).encode(), "events[0].event_id"),
        (json.dumps([event()] * 101).encode(), "at most 100"),
        (b"[" * 100_000, "not JSON"),
    ],
)
def test_bad_content_is_named_with_its_place_and_not_stored(rig, body, says):
    access = rig.sender("n8n")
    answer = rig.net.post(access.url, body=body, headers=signed(rig, access, body))
    assert answer.status == 422
    assert says in answer.body.decode()
    assert inbound_messages.newest(5) == []


def test_a_large_body_is_413_and_a_flood_is_503_with_retry_after(tmp_path, clock):
    limits = {"max_messages_per_minute": 3, "max_body_bytes": 2000}
    with push_rig(tmp_path, clock, inbound=limits) as rig:
        access = rig.sender("n8n")
        large = json.dumps(event(subject={"title": "x" * 3000})).encode()
        assert rig.post(access.url, large, signed(rig, access, large)) == 413
        statuses = []
        for number in range(5):
            body = json.dumps(event(number)).encode()
            answer = rig.net.post(access.url, body=body, headers=signed(rig, access, body, f"msg_{number}"))
            statuses.append((answer.status, answer.headers.get("retry-after")))
        assert statuses == [(202, None), (202, None), (503, "60"), (503, "60"), (503, "60")]
        clock.move(61)
        assert rig.post(access.url, body, signed(rig, access, body, "msg_9")) == 202


def test_a_rotated_secret_is_accepted_beside_the_one_before_it_for_a_day(rig):
    before, body = rig.sender("n8n"), json.dumps(event()).encode()
    after = inbound.rotate(rig.rt, "n8n")
    assert after.secret != before.secret
    assert after.url == before.url
    for place, access in enumerate((before, after)):
        assert rig.post(access.url, body, signed(rig, access, body, f"msg_{place}")) == 202
    rig.clock.move(86_401)
    assert rig.post(before.url, body, signed(rig, before, body, "msg_3")) == 401
    moved = inbound.rotate(rig.rt, "n8n", new_address=True)
    assert rig.post(before.url, body, signed(rig, moved, body, "msg_4")) == 404
    assert rig.post(moved.url, body, signed(rig, moved, body, "msg_4")) == 202


def test_the_printed_command_is_accepted_as_it_is(rig):
    rig.sender("n8n")
    command = inbound.signed_request(rig.rt, "n8n")
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=20)
    assert json.loads(done.stdout) == {"status": "accepted"}
    rig.line.wait(40, step=10)
    assert len(rig.received("test")) == 1


def test_neither_secret_nor_token_is_in_the_database(rig):
    access, body = rig.sender("n8n"), json.dumps(event()).encode()
    rig.post(access.url, body, signed(rig, access, body))
    rig.line.wait(2)
    tables = [name for (name,) in db.fetch("SELECT name FROM sqlite_master WHERE type = 'table'")]
    stored = " ".join(str(db.fetch(f"SELECT * FROM {name}")) for name in tables)
    assert access.secret.removeprefix("whsec_") not in stored
    assert access.url.rpartition("/")[2] not in stored


def test_raw_items_become_events_of_their_watch_and_an_unknown_watch_can_be_corrected_and_replayed(rig):
    rig.line.run()
    access = rig.sender("lists", "items", source="youtube_playlist")
    item = playlist_item(rig)
    rows = [{"event_type": "video_added_to_playlist", "occurred_at": item["snippet"]["publishedAt"], "payload": item}]
    for message_id, ref in (("msg_1", "PLunknown"), ("msg_2", rig.playlist)):
        body = json.dumps({"watch": ref, "items": rows}).encode()
        assert rig.post(access.url, body, signed(rig, access, body, message_id)) == 202
    rig.line.wait(3)
    second, first = inbound_messages.newest(5)
    assert (first.state, second.state, second.result) == ("failed", "done", "1 stored, 0 known")
    assert "no active watch" in first.result
    assert inbound.replay(rig.rt, [], all_failed=True) == [first.id]
    assert len(rig.received("video_added_to_playlist")) == 1


def test_what_cannot_be_added_is_refused_with_a_remedy(rig):
    rig.sender("n8n")
    for arguments, says in [
        (("n8n",), "exists already"),
        (("Not A Name",), "expected a name"),
        (("websub-1",), "expected a name"),
        (("x", "items"), "--source"),
        (("x", "composio"), "--secret-env"),
    ]:
        with pytest.raises(InboundRefused, match=says):
            inbound.add(rig.rt, *arguments)


# ── Composio ────────────────────────────────────────────────────────────────────────────────────────────


@pytest.mark.parametrize("version", ["V1", "V2", "V3"])
def test_an_item_of_composio_and_of_the_poll_is_one_event_with_the_same_key_and_id(rig, composio, version):
    rig.line.run()
    item = playlist_item(rig)
    assert composio.playlist_item(item, version=version) == 202
    rig.line.wait(3)
    (pushed,) = rig.received("video_added_to_playlist")
    adapter = rig.rt.adapter("youtube_playlist")
    (polled,) = [raw for raw in adapter.read(_position(rig)).items if raw.payload["id"] == item["id"]]
    expected = adapter.normalize(polled)
    assert (pushed["event_id"], pushed["dedupe_key"]) == (expected.event_id, expected.dedupe_key)
    assert CreatorSignalEvent.model_validate(pushed).subject["title"] == "Added"
    rig.line.wait(900, step=100)
    assert Event.select().count() == 1


def _position(rig):
    from csi.adapters.base import Position

    return Position(rig.playlist)


def test_composio_repeats_a_message_and_a_revoked_key_is_refused(rig, composio):
    rig.line.run()
    from csi.simulator.composio import PLAYLIST_TRIGGER, envelope

    data = {"item": playlist_item(rig)}
    body = envelope(data, "msg_x", rig.clock(), version="V3", trigger=PLAYLIST_TRIGGER)
    assert [composio.send("msg_x", body, attempt) for attempt in (1, 2)] == [202, 200]
    composio.secret = "revoked"
    assert composio.send("msg_y", body) == 401


def test_polling_counts_what_composio_missed(rig, composio):
    rig.line.run()
    composio.playlist_item(playlist_item(rig))
    rig.line.wait(3)
    rig.clock.move(60)
    playlist_item(rig)  # only the poll finds it
    rig.line.wait(2600, step=200)
    (row,) = [one for one in subscriptions.every() if one.kind == "composio"]
    assert (row.pushes, row.confirmed, row.misses) == (1, 1, 1)
    assert len(rig.received("video_added_to_playlist")) == 2


def test_an_incomplete_item_and_other_triggers_only_poll_the_watch(rig, composio):
    rig.line.run()
    item = playlist_item(rig)
    del item["snippet"]["publishedAt"]
    rig.clock.move(30)
    assert composio.playlist_item(item) == 202
    rig.line.wait(3)
    assert inbound_messages.newest(1)[0].result == "polls 1 watch"
    assert len(rig.received("video_added_to_playlist")) == 1
    assert composio.trigger({"channel_id": rig.channel}, trigger="YOUTUBE_NEW_ACTIVITY_TRIGGER") == 202
    assert composio.trigger({"x": 1}, trigger="OTHER") == 202
    rig.line.wait(3)
    assert [one.result for one in inbound_messages.newest(2)][1] == "polls 1 watch"
    assert "no watch has this item" in inbound_messages.newest(1)[0].result


@pytest.mark.parametrize("kind", ["composio.connected_account.expired", "composio.trigger.disabled"])
def test_an_ended_connection_is_an_incident_that_the_next_item_closes(rig, composio, kind):
    rig.line.run()
    assert composio.end(kind) == 202
    rig.line.wait(2)
    (found,) = incidents.unacknowledged()
    assert (found.problem, found.subject) == ("push_ended", "composio")
    composio.playlist_item(playlist_item(rig))
    rig.line.wait(2)
    assert incidents.unacknowledged() == []


def test_a_missing_secret_is_our_trouble_and_not_the_senders(rig, composio, monkeypatch):
    monkeypatch.delenv("CSI_COMPOSIO_SECRET")
    assert composio.trigger({}) == 503


def test_the_time_is_the_moment_of_the_message(rig):
    access, body = rig.sender("n8n"), json.dumps(event(received_at="2020-01-01T00:00:00Z")).encode()
    rig.post(access.url, body, signed(rig, access, body))
    moment = iso(rig.clock())
    rig.line.wait(40, step=10)
    assert rig.received("post")[0]["received_at"] == moment
