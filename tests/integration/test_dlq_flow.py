"""Dead letters through the whole walk: sent again by hand and by themselves, delivered once whoever was first."""

import sys
import threading

import pytest

from csi.admin import destinations, replay_by_command
from csi.dlq import dead_letters as dlq
from csi.dlq import replay, search
from csi.errors import MalformedItem
from csi.pipeline import redrive
from csi.store import db, events, inbox
from csi.store.destinations import change
from csi.store.models import Event
from tests.fakes.scripted_receiver import SECRET, ScriptedReceiver, for_events
from tests.fakes.youtube import simulated_youtube
from tests.integration import test_store as shelf
from tests.rigs.in_process import InProcessPipeline
from tests.rigs.processes import installation


@pytest.fixture
def yt(clock):
    with simulated_youtube(playlists=2, now=clock) as site:
        yield site


@pytest.fixture
def make_line(tmp_path, clock, yt):
    def build(ua: ScriptedReceiver, **blocks: object) -> InProcessPipeline:
        source = {"first_poll": "all", "poll_interval_seconds": 10, "priority": "urgent", "quota_limit": 1_000_000}
        playlists = {"api_base_url": yt.api_base_url, "playlists": [{"id": ref} for ref in yt.playlists], **source}
        return InProcessPipeline(tmp_path, clock, ua.url, sources={"youtube_playlist": playlists}, **blocks)

    with db.connection():
        yield build


def send_again(line: InProcessPipeline) -> list[bool]:
    ids = search.ids(search.DeadLetterFilter(states=dlq.STATES))
    return [outcome.is_sent for outcome in replay_by_command.replay_all(line.rt, ids)]


def letters() -> list[tuple[str, str | None]]:
    return db.fetch("SELECT state, result FROM dead_letter ORDER BY id")


# --- fault case 34


def test_a_replay_and_a_scheduled_retry_of_one_event_meet_and_it_is_delivered_once(make_line, yt):
    yt.add(yt.playlists[0])
    with ScriptedReceiver(then=for_events(503, 503, 503, 503)) as ua:
        line = make_line(ua, dlq={"auto_redrive": False})
        line.run()
        line.wait(100)
        assert letters() == [("open", None)]
        change("default", circuit="closed", canary=None, next_probe_at=None)
        assert send_again(line) == [True]
        line.run()
        assert Event.get().state in ("in_flight", "pending"), "a retry is scheduled now"
        assert send_again(line) == [False]
        line.wait(60)
        assert send_again(line) == [False]
        line.wait(60)
    accepted = [request for request in ua.requests if request.event_ids]
    print(f"requests={len(accepted)} delivered=1 extra={len(accepted) - 5}")
    assert (len(accepted), letters(), events.counts()) == (5, [("replayed", "delivered")], {"delivered": 1})


def test_redrive_and_a_replay_by_hand_in_the_same_moment_deliver_once(make_line, yt):
    yt.add(yt.playlists[0])
    with ScriptedReceiver(401) as ua:
        line = make_line(ua)
        line.run()
        assert letters() == [("open", None)]
        change("default", circuit="closed", next_probe_at=None, last_success_at=line.clock())
        assert [len(redrive.redrive(line.rt)) > 0, send_again(line)] == [True, [False]]
        line.wait(30)
    assert (letters(), events.counts()) == ([("replayed", "delivered")], {"delivered": 1})
    assert len([request for request in ua.requests if request.event_ids]) == 2


@pytest.mark.usefixtures("store")
def test_of_many_who_replay_one_letter_at_once_exactly_one_does():
    shelf.bury(shelf.add_events("a"))
    (letter,) = search.newest(search.DeadLetterFilter(), 1)
    outcomes: list[bool] = []
    start = threading.Barrier(4)

    def race() -> None:
        with db.connection():
            start.wait()
            outcomes.extend(outcome.is_sent for outcome in replay.replay([letter], shelf.NOW))

    threads = [threading.Thread(target=race) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(outcomes) == [False, False, False, True]
    assert (db.number("SELECT COUNT(*) FROM outbox"), db.value("SELECT rounds FROM dead_letter")) == (1, 1)


@pytest.mark.usefixtures("store")
def test_finding_and_grouping_on_both_engines():
    shelf.bury(shelf.add_events("a"), reason="http 503: Zu_Viel", now=shelf.NOW - 7200)
    shelf.bury([shelf.add_events("b")[-1]], reason="100% full")
    find = search.DeadLetterFilter
    assert [len(search.ids(find(error_like=text))) for text in ("zu_viel", "zuXviel", "100% f", "503", "nope")] == [
        1,
        0,
        1,
        1,
        0,
    ]
    assert search.count(find(since=shelf.NOW - 3600)) == 1
    assert [(group.key, group.count) for group in search.groups(find(), "error")] == [
        ("100% full", 1),
        ("http 503: Zu_Viel", 1),
    ]
    assert [group.count for group in search.groups(find(), "cause")] == [2]
    assert [letter.event_id for letter in dlq.of_item("key:a")] == ["src:a"]
    assert dlq.of_item("KEY:A") == []


# --- items that never became events


def test_a_malformed_item_is_delivered_once_its_adapter_is_mended(make_line, yt, monkeypatch):
    video = yt.add(yt.playlists[0])
    with ScriptedReceiver() as ua:
        line = make_line(ua)
        adapter = line.rt.adapter("youtube_playlist")
        whole = adapter.normalize

        def broken(raw):
            raise MalformedItem("no title")

        monkeypatch.setattr(adapter, "normalize", broken)
        line.run()
        line.wait(30)
        assert (letters(), ua.requests) == ([("open", None)], [])
        assert send_again(line) == [True]
        line.wait(5)
        assert letters() == [("replayed", "died again"), ("open", None)], "still broken"
        monkeypatch.setattr(adapter, "normalize", whole)
        assert send_again(line) == [False, True]
        line.wait(30)
    assert letters()[1] == ("replayed", f"became {Event.get().event_id}")
    assert [event["subject"]["video_id"] for event in ua.requests[0].envelope["events"]] == [video]
    assert (events.counts(), db.number("SELECT COUNT(*) FROM inbox"), len(ua.requests)) == ({"delivered": 1}, 0, 1)


def test_an_item_that_ended_the_process_is_handled_again_from_quarantine(make_line, yt, clock):
    yt.add(yt.playlists[0])
    with ScriptedReceiver() as ua:
        line = make_line(ua)
        poll_only = [wake for wake in line.step(line_poll(line)) if wake.step == "ingest"]
        for _ in range(inbox.MAX_CLAIMS):
            assert inbox.claim(int(poll_only[0].key), clock())
            clock.move(inbox.LEASE_SECONDS + 1)
        line.step(poll_only[0])
        assert (letters(), db.value("SELECT state FROM inbox")) == ([("open", None)], "quarantined")
        assert send_again(line) == [True]
        line.wait(10)
    assert letters() == [("replayed", f"became {Event.get().event_id}")]
    assert (events.counts(), db.number("SELECT COUNT(*) FROM inbox")) == ({"delivered": 1}, 0)


def line_poll(line: InProcessPipeline):
    from csi.pipeline.schedule import plan

    return plan(line.rt, horizon=0)[0]


def test_a_receiver_that_sends_our_secret_back_does_not_get_it_into_a_table(make_line, yt):
    yt.add(yt.playlists[0])

    def echo(request):
        return 422, {"ok": False, "error": f"you said {request.headers['authorization']}"}, {}

    with ScriptedReceiver(then=echo) as ua:
        line = make_line(ua)
        line.run()
    assert SECRET in str(ua.requests[0].headers)
    assert len(letters()) == 1
    for table in ("delivery_attempts", "dead_letter"):
        assert SECRET not in str(db.fetch(f"SELECT * FROM {table}"))


# --- held by command


def test_while_delivery_is_held_nothing_is_sent_and_then_everything_is(make_line, yt):
    with ScriptedReceiver() as ua:
        line = make_line(ua)
        line.run()
        destinations.pause(line.rt, "default", "maintenance")
        for number in range(3):
            yt.add(yt.playlists[number % 2], f"Number {number}")
        line.wait(120, step=5)
        assert (ua.requests, events.counts()) == ([], {"pending": 3})
        destinations.resume(line.rt, "default")
        line.wait(20)
    assert events.counts() == {"delivered": 3}
    assert sorted(ua.event_ids) == sorted(event.event_id for event in Event.select())


# --- a real worker, and the command as a process


@pytest.mark.slow
def test_the_commands_beside_a_running_worker(tmp_path):
    with (
        ScriptedReceiver(then=for_events(400)) as ua,
        installation(tmp_path, channels=0, dlq={"auto_redrive": False}) as site,
    ):
        site.ua_url = ua.url
        site.yt.add(site.yt.playlists[0], "Über")
        site.start()
        site.wait_for(lambda: site.rows("SELECT 1 FROM dead_letter"))
        assert csi(site, "delivery", "test").returncode == 0
        done = csi(site, "dlq", "replay", "--all", "--wait", "30s")
        assert (done.returncode, done.stderr) == (0, "")
        assert done.stdout.splitlines() == [
            "1 of 1 dead letter pending again; the worker sends them",
            "1 of 1 delivered",
        ]
        assert site.delivered() == 1
        assert csi(site, "delivery", "pause", "--reason", "tea").returncode == 0
        site.yt.add(site.yt.playlists[0], "While it is held")
        site.wait_for(lambda: site.rows("SELECT 1 FROM outbox"))
        held = csi(site, "trace", str(site.rows("SELECT event_id FROM events ORDER BY id DESC LIMIT 1")[0][0]))
        assert "paused by the operator" in held.stdout
        assert csi(site, "delivery", "resume").returncode == 0
        site.wait_for_delivered(2)


def csi(site, *arguments: str):
    return site.run(sys.executable, "-m", "csi.cli.main", *arguments)
