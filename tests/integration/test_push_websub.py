"""WebSub over loopback HTTP: subscribe, verify, renew; a push is confirmed by a read; misses; hubs that fail or lie."""

import pytest

from csi.pipeline import subscribe
from csi.status import timeline
from csi.status.source_problems import is_on_time
from csi.status.verdict import is_overdue
from csi.store import db, inbound_messages, subscriptions, watches
from csi.store.models import Event, Watch
from csi.store.queries import event_search
from tests.rigs.push import push_rig


def test_a_push_is_delivered_within_seconds_and_once_although_the_feed_is_polled_too(tmp_path, clock):
    with push_rig(tmp_path, clock) as rig:
        rig.subscribe()
        assert rig.subscription.state == "verified"
        clock.move(20)
        video = rig.upload()
        assert rig.push(video) == [202]
        rig.line.wait(5)
        assert [event["subject"]["video_id"] for event in rig.received()] == [video]
        rig.line.wait(900, step=100)
        assert len(rig.received()) == 1
        row = rig.subscription
        assert (row.pushes, row.confirmed, row.misses, row.near_misses) == (1, 1, 0, 0)
        assert db.fetch("SELECT COUNT(*) FROM pushed_items") == [(0,)]


def test_a_subscription_is_requested_with_the_topic_and_a_secret_that_stays_the_same(tmp_path, clock):
    with push_rig(tmp_path, clock) as rig:
        rig.subscribe()
        (first,) = rig.hub.requests
        assert (first["hub.mode"], first["hub.topic"]) == ("subscribe", rig.topic)
        assert first["hub.callback"].startswith(f"{rig.url}/hooks/websub-")
        row = rig.subscription
        assert 0.7 * 432_000 <= row.due_at - clock() <= 0.8 * 432_000
        clock.time = row.due_at + 1
        rig.line.run()
        rig.wait(lambda: len(rig.hub.verifications) == 2)
        second = rig.hub.requests[1]
        assert (second["hub.secret"], second["hub.callback"]) == (first["hub.secret"], first["hub.callback"])
        assert first["hub.secret"] not in str(db.fetch("SELECT * FROM subscriptions"))
        assert rig.subscription.expires_at == pytest.approx(clock() + 432_000, abs=5)


def test_a_hub_that_answers_503_is_asked_again_by_a_ladder_that_a_restart_keeps(tmp_path, clock):
    with push_rig(tmp_path, clock) as rig:
        rig.hub.faults.status = 503
        rig.line.run()
        waits = []
        for _ in range(6):
            row = rig.subscription
            assert (row.state, row.last_error) == ("failing", "the hub answered 503")
            waits.append(row.due_at - clock())
            clock.time = row.due_at + 1
            rig.rt.process.subscriptions_synced_at = float("-inf")  # as after a restart
            rig.line.run()
        for wait, step in zip(waits, (120, 300, 900, 1800, 3600, 3600), strict=True):
            assert 0.8 * step <= wait <= 1.2 * step
        rig.hub.faults.status = 202
        clock.time = rig.subscription.due_at + 1
        rig.line.run()
        rig.wait(lambda: rig.subscription.state == "verified")
        assert (rig.subscription.failures, rig.subscription.last_error) == (0, None)


@pytest.mark.parametrize(
    ("lie", "error"),
    [
        ("topic", "the hub was refused: it asked to verify a topic that was not subscribed"),
        ("challenge", "the hub was refused: its challenge is missing or not usable"),
        ("lease", "the hub was refused: the lease that it grants is not usable"),
        ("unsubscribe", "the hub was refused: it asked to unsubscribe"),
    ],
)
def test_a_hub_that_lies_changes_nothing_but_the_error_of_the_subscription(tmp_path, clock, lie, error):
    with push_rig(tmp_path, clock) as rig:
        rig.hub.faults.lie = lie
        rig.subscribe()
        assert rig.hub.verifications == [404]
        row = rig.subscription
        assert (row.state, row.expires_at, row.last_error) == ("requested", None, error)
        clock.move(601)
        rig.line.run()
        assert rig.subscription.last_error == "the hub accepted the subscription and did not verify it"
        assert rig.subscription.failures == 1
        assert Watch.get(source="youtube_channel_rss").health == "healthy"


def test_a_denied_subscription_is_tried_again_later(tmp_path, clock):
    with push_rig(tmp_path, clock) as rig:
        rig.hub.faults.lie = "denied"
        rig.subscribe()
        rig.wait(lambda: rig.subscription.state == "failing")
        assert "denied" in rig.subscription.last_error
        assert rig.subscription.due_at > clock()


def test_pushes_with_a_wrong_signature_are_dropped_and_repeated_ones_are_stored_once(tmp_path, clock):
    with push_rig(tmp_path, clock) as rig:
        rig.subscribe()
        video = rig.upload()
        for signature in ("wrong", "none"):
            rig.hub.faults.signature = signature
            assert rig.push(video) == [202]
        assert inbound_messages.newest(10) == []
        assert rig.subscription.last_error.startswith("a push was dropped")
        rig.hub.faults.signature, rig.hub.faults.doubled = "right", True
        assert rig.push(video) == [202, 200]
        rig.line.wait(5)
        assert len(inbound_messages.newest(10)) == 1
        assert len(rig.received()) == 1


def test_an_item_that_the_cached_feed_does_not_list_is_confirmed_by_a_later_read(tmp_path, clock):
    with push_rig(tmp_path, clock) as rig:
        rig.subscribe()
        clock.move(20)
        rig.site.set_faults("feed:stale@0-100000")
        rig.line.run()
        video = rig.upload()
        rig.push(video)
        rig.line.wait(30)
        assert rig.received() == []
        rig.site.set_faults("")
        rig.line.wait(35)
        assert [event["subject"]["video_id"] for event in rig.received()] == [video]


def test_with_an_api_key_a_push_is_confirmed_by_the_uploads_list_and_keeps_the_feeds_key_and_id(tmp_path, clock):
    with push_rig(tmp_path, clock, key=True) as rig:
        rig.subscribe()
        clock.move(20)
        rig.site.set_faults("feed:stale@0-100000")
        video = rig.upload()
        rig.push(video)
        rig.line.wait(5)
        (event,) = rig.received()
        assert event["dedupe_key"] == f"youtube:video:{video}"
        assert event["event_id"].startswith(f"src:yt:rss:{video}:")
        rig.site.set_faults("")
        rig.line.wait(700, step=100)
        assert len(rig.received()) == 1


def test_a_push_of_an_edit_makes_no_event_and_no_read(tmp_path, clock):
    with push_rig(tmp_path, clock) as rig:
        rig.subscribe()
        old = rig.world.newest(rig.channel, 1)[0].id
        polls = rig.site.requests.count("videos.xml")
        rig.push(old)
        rig.line.wait(10)
        assert rig.received() == []
        assert rig.site.requests.count("videos.xml") == polls
        assert inbound_messages.newest(1)[0].result == "0 new, 1 known, 0 removed"


def test_polling_is_rarer_after_twenty_confirmed_pushes_and_back_at_the_first_miss(tmp_path, clock):
    with push_rig(tmp_path, clock) as rig:
        rig.subscribe()
        subscriptions.change(rig.subscription.id, unbroken=18)
        for count in (19, 20):
            clock.move(40)
            rig.push(rig.upload())
            rig.line.run()
            rig.line.run()
            assert (rig.subscription.unbroken, rig.subscription.stretched) == (count, count == 20)
        watch = Watch.get(source="youtube_channel_rss")
        assert watch.next_poll_at - clock() > 1000
        assert watch.planned_interval == 1200, "what lists and health checks use"
        (times,) = [one for one in watches.schedule() if one.id == watch.id]
        assert is_on_time(times, 0.0, watch.next_poll_at)
        assert not is_overdue(times, watch.next_poll_at + 170, 0.0)
        rig.upload("Not announced")
        clock.time = watch.next_poll_at + 1
        rig.line.run()
        rig.line.wait(930, step=100)
        row = rig.subscription
        assert (row.misses, row.unbroken, row.stretched) == (1, 0, False)
        back = Watch.get(source="youtube_channel_rss")
        assert back.next_poll_at - clock() <= 300
        clock.time = back.next_poll_at + 1
        rig.line.run()
        assert Watch.get(source="youtube_channel_rss").planned_interval == 300


def test_a_push_that_comes_after_the_poll_is_a_near_miss(tmp_path, clock):
    with push_rig(tmp_path, clock) as rig:
        rig.subscribe()
        clock.move(60)
        video = rig.upload()
        rig.line.wait(310, step=50)
        assert len(rig.received()) == 1
        rig.push(video)
        rig.line.wait(1000, step=100)
        assert (rig.subscription.near_misses, rig.subscription.misses) == (1, 0)


@pytest.mark.parametrize("wanted", [False, True])
def test_a_removed_video_is_marked_and_its_event_is_optional(tmp_path, clock, wanted):
    with push_rig(tmp_path, clock, push={"removed_events": wanted}) as rig:
        rig.subscribe()
        clock.move(20)
        video = rig.upload("Gone soon")
        rig.push(video)
        rig.line.wait(5)
        rig.push_removal(video)
        rig.push_removal("neverseen01")
        rig.line.wait(5)
        key = f"youtube:video:{video}"
        row = Event.get(dedupe_key=key)
        assert event_search.find(row.event_id).removed_at == row.removed_at
        steps = {step.what: step.at for step in timeline.timeline_of(rig.rt, key).steps}
        assert steps["removed"] == row.removed_at
        removed = rig.received("video_removed")
        assert [event["subject"]["title"] for event in removed] == (["Gone soon"] if wanted else [])


def test_a_watch_that_is_not_pushed_any_more_is_unsubscribed_and_its_callback_is_gone(tmp_path, clock):
    with push_rig(tmp_path, clock) as rig:
        rig.subscribe()
        Watch.update(state="removed").execute()
        clock.move(40)
        rig.line.run()
        rig.wait(lambda: not rig.hub.verified)
        assert [form["hub.mode"] for form in rig.hub.requests] == ["subscribe", "unsubscribe"]
        url = subscribe.callback_url(rig.rt, rig.subscription.id, "youtube_channel_rss")
        assert rig.post(url, b"<feed/>", {"X-Hub-Signature": "sha1=00"}) == 410
