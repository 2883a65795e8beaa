"""Events that are sent again: the same id, visible in the timeline, counted apart from duplicates."""

import httpx
import pytest

from csi.admin import resend_by_command
from csi.config.delivery_settings import RESEND
from csi.runtime import Runtime
from csi.status import slo, timeline
from csi.store import counters, db, destinations, events
from csi.store.models import Event, Watch
from csi.store.queries import audit_rows
from csi.store.queries.event_search import EventQuery
from csi.web.app import create_app
from ops.screenshot import READ_TOKEN, TOKEN, furnish, open_show
from tests.fakes.scripted_receiver import ReceivedRequest, Reply, ScriptedReceiver, accept, for_events, json_reply
from tests.fakes.youtube import simulated_youtube
from tests.rigs.in_process import InProcessPipeline
from tests.rigs.operator import operator_rig


@pytest.fixture
def make_line(tmp_path, clock):
    with simulated_youtube(playlists=1, now=clock) as yt, db.connection():

        def build(ua: ScriptedReceiver, items: int = 1, **blocks: object) -> InProcessPipeline:
            for _ in range(items):
                yt.add(yt.playlists[0])
            source = {"first_poll": "all", "poll_interval_seconds": 60, "quota_limit": 1_000_000}
            playlists = {"api_base_url": yt.api_base_url, "playlists": [{"id": yt.playlists[0]}], **source}
            return InProcessPipeline(tmp_path, clock, ua.url, sources={"youtube_playlist": playlists}, **blocks)

        yield build


def strict(request: ReceivedRequest, known: set[str]) -> Reply:
    """As the contract has it: an event that is known already is a duplicate."""
    again = [event_id for event_id in request.event_ids if event_id in known]
    known |= set(request.event_ids)
    return json_reply(409, {"ok": False, "error": "duplicate_event"}) if again else accept(request)


def pks() -> list[int]:
    return [event.id for event in Event.select().order_by(Event.id)]


def test_the_same_event_arrives_again_and_is_no_duplicate_of_ours(make_line):
    known: set[str] = set()
    with ScriptedReceiver(then=lambda request: strict(request, known)) as ua:
        line = make_line(ua, items=3)
        line.wait(40)
        first = [one for one in ua.requests if one.events]
        before = Event.get()
        line.wait(600)
        done = resend_by_command.resend(line.rt, pks())
        line.wait(5)
        again = [one for one in ua.requests if one.events][len(first) :]
    assert (done.events, done.sent, done.failed, done.destinations) == (3, 3, 0, ("default",))
    assert [one.event_ids for one in again] == [[one for it in first for one in it.event_ids]]
    after = Event.get()
    assert (after.state, after.delivered_at, after.emitted_at) == ("delivered", before.delivered_at, before.emitted_at)
    figures = slo.report(line.rt, 3600).duplicates
    assert (figures.counts.sent, figures.counts.reported, figures.counts.possible) == (3, 0, 0)
    assert (figures.counts.resent, figures.value) == (3, 0.0)
    assert "3 sent again by an operator" in [one.detail for one in slo.objectives(slo.report(line.rt, 3600))][1]
    counted = counters.all_of("events")
    assert (counted["youtube_playlist", "delivered"], counted["youtube_playlist", "resent"]) == (3, 3)
    steps = timeline.timeline_of(line.rt, after.dedupe_key).steps
    assert [step.details["lane"] for step in steps if step.what == "batched"] == ["urgent", RESEND]
    assert any("to be sent again by command" in step.text for step in steps)


def test_a_second_command_while_the_first_waits_sends_nothing_twice(make_line):
    with ScriptedReceiver() as ua:
        line = make_line(ua)
        line.wait(40)
        assert resend_by_command.resend(line.rt, pks()).sent == 1
        twice = resend_by_command.resend(line.rt, pks())
        line.wait(5)
        sent = [one for one in ua.requests if one.events]
    assert (twice.sent, twice.failed, twice.results[0].note) == (0, 1, "it is queued for this destination already")
    assert len(sent) == 2


def test_an_event_that_dies_when_it_is_sent_again_stays_delivered_and_its_dead_letter_is_redriven(make_line):
    with ScriptedReceiver(then=for_events(200, 422)) as ua:
        line = make_line(ua, dlq={"auto_redrive": False})
        line.wait(40)
        resend_by_command.resend(line.rt, pks())
        line.wait(5)
        assert db.fetch("SELECT state, cause FROM dead_letter") == [("open", "event")]
        assert events.counts() == {"delivered": 1}
        done = resend_by_command.resend(line.rt, pks())
        line.wait(5)
    assert done.results[0].note == "dead letter 1 is replayed"
    assert db.fetch("SELECT state, result FROM dead_letter") == [("replayed", "delivered")]
    assert (events.counts(), slo.report(line.rt, 3600).duplicates.counts.sent) == ({"delivered": 1}, 1)


def test_a_destination_gets_what_its_filters_accept_even_if_it_never_had_it(make_line):
    more = {"endpoint": "http://127.0.0.1:9/", "secret_env": "CSI_SECRET_MORE"}
    with ScriptedReceiver() as ua:
        line = make_line(ua)
        line.wait(40)
        wants = {"sources": ["youtube_playlist"], "watches": [Watch.get().ref], "tiers": [Event.get().tier]}
        named = {"wants": more | wants, "other": {**more, "sources": ["reddit"]}}
        line = make_line(ua, items=0, delivery={"destinations": named}, secrets={"CSI_SECRET_MORE": "5f2b" * 8 + "a1"})
        destinations.change("wants", paused_reason="test", paused_at=line.clock())
        first = resend_by_command.resend(line.rt, pks(), "wants")
        refused = resend_by_command.resend(line.rt, pks(), "other")
        skipped = resend_by_command.resend(line.rt, pks(), "other", named=False)
    assert first.results[0].note == "sent there for the first time"
    assert any("paused by the operator" in note for note in first.notes)
    assert (refused.sent, "filters of 'other' exclude it" in refused.results[0].note) == (0, True)
    assert (skipped.results, skipped.words) == ((), "no event matches that a destination wants")


def test_what_was_asked_for_survives_the_end_of_the_process(make_line):
    with ScriptedReceiver() as ua:
        line = make_line(ua)
        line.wait(40)
        resend_by_command.resend(line.rt, pks())
        line.scheduled.clear()  # every wake-up is lost; the row in the outbox is not
        line.wait(5)
        assert len([one for one in ua.requests if one.events]) == 2


# --- the command


def test_the_command_shows_first_and_asks_above_a_hundred(tmp_path):
    with operator_rig(tmp_path) as operator:
        for number in range(101):
            operator.batch([operator.event(f"video{number}")])
        db.run("DELETE FROM outbox")
        db.run("UPDATE events SET state = 'delivered', delivered_at = first_seen_at")
        plan = operator.json("events", "resend", "--source", "youtube_playlist", "--dry-run")
        assert (plan["dry_run"], plan["events"], plan["sent"], db.number("SELECT COUNT(*) FROM outbox")) == (
            True, 101, 101, 0,
        )  # fmt: skip
        asked = operator.call("events", "resend", "--since", "1h")
        assert (asked.exit_code, "pass --yes" in asked.stderr) == (2, True)
        assert db.number("SELECT COUNT(*) FROM outbox") == 0
        done = operator.call("events", "resend", "--since", "1h", "--yes")
        assert (done.exit_code, done.stdout) == (
            0, "101 events, 101 to default: pending again; the worker sends them\n",
        )  # fmt: skip
        assert db.number("SELECT COUNT(*) FROM outbox WHERE tier = 'resend'") == 101
        assert audit_rows.page(1)[0].action == "csi events resend"
        one = operator.call("events", "resend", "5")
        assert (one.exit_code, "queued for this destination already" in one.stderr) == (5, True)


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        ((), 2, "choose with an ID"),
        (("5", "--since", "1h"), 2, "cannot be combined"),
        (("nothing",), 1, "there is no event 'nothing'"),
        (("--source", "youtube_playlist", "--destination", "moon"), 1, "there is no destination 'moon'"),
        (("--watch", "PLnone"), 1, "there is no watch 'PLnone'"),
    ],
)
def test_what_the_command_refuses(tmp_path, arguments, code, words):
    with operator_rig(tmp_path) as operator:
        operator.event("video")
        result = operator.call("events", "resend", *arguments)
        assert (result.exit_code, words in f"{result.stderr}{result.exception}") == (code, True), result.stderr
        assert db.number("SELECT COUNT(*) FROM outbox WHERE tier = 'resend'") == 0


# --- admin API and dashboard


@pytest.fixture
def rt(tmp_path) -> Runtime:
    found = open_show(tmp_path)
    furnish(found, events_a_day=4)
    return found


def client_of(rt: Runtime, token: str = TOKEN) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(app=create_app(lambda: rt))
    return httpx.AsyncClient(
        transport=transport, base_url="http://127.0.0.1", headers={"Authorization": f"Bearer {token}"}
    )


def delivered_ids() -> list[str]:
    found = db.column(
        "SELECT e.event_id FROM events e JOIN batch_events be ON be.event_pk = e.id WHERE e.state = 'delivered' "
        "AND NOT EXISTS (SELECT 1 FROM outbox o WHERE o.event_pk = e.id) ORDER BY e.id LIMIT 3"
    )
    return [str(one) for one in found]


@pytest.mark.asyncio
async def test_the_admin_api_sends_again_and_a_reader_does_not(rt):
    ids = delivered_ids()
    async with client_of(rt, READ_TOKEN) as reader:
        assert (await reader.post("/admin/events/resend", json={"ids": ids})).status_code == 403
    watch = Watch.get()
    async with client_of(rt) as client:
        named = (await client.post("/admin/events/resend", json={"watch": watch.ref, "dry_run": True})).json()
        unknown = await client.post("/admin/events/resend", json={"watch": "nothing"})
        both = await client.post("/admin/events/resend", json={"ids": ids, "since": "1d"})
        none = await client.post("/admin/events/resend", json={})
        absent = await client.post("/admin/events/resend", json={"ids": ["nothing"]})
        plan = (await client.post("/admin/events/resend", json={"ids": ids, "dry_run": True})).json()
        done = (await client.post("/admin/events/resend", json={"ids": ids})).json()
    assert [both.status_code, none.status_code, absent.status_code] == [400, 400, 409]
    assert (named["events"], unknown.status_code) == (
        len(resend_by_command.choose((), EventQuery(watch_id=watch.id))),
        404,
    )
    assert (plan["sent"], plan["notes"], done["sent"], done["dry_run"]) == (len(ids), [], len(ids), False)
    assert db.number("SELECT COUNT(*) FROM outbox WHERE tier = 'resend'") == len(ids) > 0


@pytest.mark.asyncio
async def test_more_than_a_hundred_need_a_confirmation(rt, monkeypatch):
    monkeypatch.setattr(resend_by_command, "CONFIRM_ABOVE", 2)
    async with client_of(rt) as client:
        asked = await client.post("/admin/events/resend", json={"since": "30d"})
        done = await client.post("/admin/events/resend", json={"since": "30d", "confirm": True})
    assert (asked.status_code, "confirm: true" in asked.text, done.status_code) == (400, True, 200)


def test_a_watch_selects_its_own_events(rt):
    watch = Watch.get()
    chosen = resend_by_command.choose((), EventQuery(watch_id=watch.id))
    assert chosen == [event.id for event in Event.select().where(Event.watch_id == watch.id).order_by(Event.id)]
