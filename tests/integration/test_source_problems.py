"""Nothing of a source stops silently: each fault of the simulated YouTube is a problem, with its cause and remedy."""

import json
from contextlib import contextmanager

import pytest

from csi.status import facts
from csi.status.verdict import judge
from csi.store import api_refusals, db, hosts, incidents
from csi.store.models import Event, Watch
from csi.web.health import readiness
from csi.worker import alerting
from csi.worker.maintenance import write_heartbeat
from csi.worker.reload import note_start, reload
from tests.fakes.site_net import API_HOST, FEED_HOST
from tests.rigs.in_process import InProcessPipeline, polling_pipeline

HOUR, DAY = 3600.0, 86_400.0
NO_KEY = {"api_key_env": "NO_SUCH_KEY"}


def problems(yt):
    """Those of sources, by id. The worker of the rig is alive, and delivers nothing."""
    write_heartbeat(yt.rt, yt.clock())
    return {
        one.id: one for one in judge(facts.gather(yt.rt)).problems if one.kind.page == "/sources" or "quota" in one.id
    }


def notified(yt):
    """Ids of the alerts whose message would be sent now."""
    write_heartbeat(yt.rt, yt.clock())
    alerting.evaluate(yt.rt)
    sql = "SELECT name FROM alerts WHERE resolved_at IS NULL AND failing_seconds + (? - firing_at) >= delay ORDER BY id"
    return [name for (name,) in db.fetch(sql, yt.clock()) if name != "backlog_old"]


def ready(yt):
    write_heartbeat(yt.rt, yt.clock())
    return readiness(facts.gather(yt.rt))


def name_of(ref):
    """The title that the source gave, if it is known: watches without a configured name are called by it."""
    return db.value("SELECT coalesce(name, ref) FROM watches WHERE ref = ?", ref)


def titles():
    return [json.loads(row.subject_json)["title"] for row in Event.select()]


# --- items lost for good


@contextmanager
def away_too_long(tmp_path, clock, **feeds):
    with polling_pipeline(tmp_path, clock, channels=1, videos=20, feeds=feeds) as yt:
        yt.go(10)
        for number in range(40):
            yt.upload(yt.channels[0], f"Number {number}", at=clock() + number)
        clock.move(60)
        yield yt


def test_items_that_left_the_feed_are_a_problem_at_once_until_it_is_acknowledged(tmp_path, clock):
    with away_too_long(tmp_path, clock, **NO_KEY) as yt:
        yt.go(400)
        assert len(titles()) == 15
        problem = problems(yt)["items_missed"]
        assert name_of(yt.channels[0]) in problem.what
        assert "from 2026-02-22T12:0" in problem.what
        assert "no key" in problem.cause
        assert {"YOUTUBE_API_KEY", "via: both", f"csi problems ack {problem.incident}"} <= set(problem.commands)
        assert notified(yt) == ["items_missed"]
        yt.go(7 * DAY, step=6 * HOUR)
        assert "items_missed" in problems(yt)
        incidents.acknowledge(problem.incident, "cli", clock())
        assert "items_missed" not in problems(yt)


def test_a_gap_that_the_api_fills_within_the_hour_is_no_problem(tmp_path, clock):
    with away_too_long(tmp_path, clock) as yt:
        yt.site.set_faults("api:500")
        yt.go(900)
        assert "items_missed" not in problems(yt)
        yt.site.set_faults("")
        yt.go(900)
        assert len(titles()) == 40
        assert "items_missed" not in problems(yt)


def test_a_gap_that_stays_open_for_an_hour_is_a_problem_until_the_api_fills_it(tmp_path, clock):
    with away_too_long(tmp_path, clock) as yt:
        yt.site.set_faults("api:500")
        yt.go(HOUR + 1300)
        assert "internal error" in problems(yt)["items_missed"].cause
        yt.site.set_faults("")
        yt.go(900)
        assert len(titles()) == 40
        assert "items_missed" not in problems(yt)


# --- feeds without entries


def test_feeds_without_entries_are_a_host_problem_within_four_minutes(tmp_path, clock):
    with polling_pipeline(tmp_path, clock, channels=5, videos=15, feeds={"poll_interval_seconds": 60}) as yt:
        yt.go(200)
        assert problems(yt) == {}
        yt.site.set_faults("feed:noentries")
        yt.go(100)
        outage = problems(yt)["host_outage"]
        assert outage.subject == FEED_HOST
        assert "no items any more" in outage.cause
        for _ in range(14):
            yt.go(10)
            notified(yt)
        assert notified(yt) == ["host_outage"]
        assert {row.error_kind for row in Watch.select()} == {"empty"}
        yt.site.set_faults("")
        yt.go(200)
        assert problems(yt) == {}
        assert titles() == []


def test_the_outage_of_a_host_that_no_watch_uses_is_no_problem(tmp_path, clock):
    with polling_pipeline(tmp_path, clock, channels=5, videos=15) as yt:
        yt.go(10)
        hosts.get("left.example")
        db.run("UPDATE hosts SET outage_since = ?, outage_watches = 5 WHERE host = 'left.example'", clock())
        assert problems(yt) == {}


def test_one_feed_without_entries_fails_at_its_third_read(tmp_path, clock):
    with polling_pipeline(tmp_path, clock, channels=6, videos=15) as yt:
        yt.go(10)
        bad = yt.channels[2]
        yt.site.set_faults(f"feed/{bad}:noentries")
        while Watch.get(ref=bad).empty_reads == 0:
            yt.go(1)
        assert Watch.get(ref=bad).health == "healthy"
        yt.go(35)
        assert (Watch.get(ref=bad).health, Watch.get(ref=bad).error_kind) == ("backing_off", "empty")
        assert sum(row.errors > 0 for row in Watch.select()) == 1
        yt.site.set_faults("")
        yt.go(120)
        assert (Watch.get(ref=bad).health, Watch.get(ref=bad).empty_reads) == ("healthy", 0)


def test_a_first_read_without_entries_is_no_fault(tmp_path, clock):
    with polling_pipeline(tmp_path, clock, channels=3, videos=0) as yt:
        yt.go(HOUR)
        assert {(row.health, row.empty_reads) for row in Watch.select()} == {("healthy", 0)}


# --- quiet watches and stale feeds


def publish_hourly(yt, ref, hours):
    for _ in range(hours):
        yt.upload(ref)
        yt.go(HOUR)


@pytest.mark.parametrize(("feeds", "key"), [(NO_KEY, False), ({}, True)], ids=["without a key", "with a key"])
def test_a_channel_that_stops_publishing_is_quiet_after_a_day(tmp_path, clock, feeds, key):
    with polling_pipeline(tmp_path, clock, channels=2, feeds={"poll_interval_seconds": 600, **feeds}) as yt:
        yt.go(10)
        publish_hourly(yt, yt.channels[0], 12)
        yt.go(23 * HOUR)
        assert "watch_quiet" not in problems(yt)
        yt.go(2 * HOUR)
        notice = problems(yt)["watch_quiet"]
        assert (notice.severity, notice.fails) == ("notice", ())
        assert name_of(yt.channels[0]) in notice.what
        assert name_of(yt.channels[1]) not in notice.what
        assert "usually every 60 minutes" in notice.what
        asked = [host for _, host, _ in yt.net.asked].count(API_HOST)
        assert (asked > 0) is key
        yt.go(20 * HOUR)
        assert [host for _, host, _ in yt.net.asked].count(API_HOST) == asked, "it is compared once a day"
        yt.upload(yt.channels[0])
        yt.go(1300)
        assert "watch_quiet" not in problems(yt)


def test_a_stale_feed_is_found_through_the_api_and_its_items_arrive(tmp_path, clock):
    with polling_pipeline(tmp_path, clock, channels=1, feeds={"poll_interval_seconds": 600}) as yt:
        yt.go(10)
        publish_hourly(yt, yt.channels[0], 12)
        yt.site.set_faults("feed:stale")
        publish_hourly(yt, yt.channels[0], 27)
        stale = problems(yt)["feed_stale"]
        assert name_of(yt.channels[0]) in stale.what
        assert "via: api" in stale.commands
        assert len(titles()) >= 12 + 24
        publish_hourly(yt, yt.channels[0], 4)
        assert len(titles()) >= 12 + 29, "read through the API every hour"
        yt.site.set_faults("")
        yt.go(2 * HOUR)
        assert len(titles()) == 12 + 31
        assert problems(yt) == {}


def test_a_time_without_polls_makes_no_watch_quiet(tmp_path, clock):
    with polling_pipeline(tmp_path, clock, channels=1, feeds={"poll_interval_seconds": 600, **NO_KEY}) as yt:
        yt.go(10)
        publish_hourly(yt, yt.channels[0], 12)
        clock.move(5 * DAY)
        assert "watch_quiet" not in problems(yt)


# --- watches that are gone, and sources that are mostly late


def test_a_channel_that_is_gone_is_a_notice_and_those_of_a_day_are_one_message(tmp_path, clock):
    with polling_pipeline(tmp_path, clock, channels=8, videos=15) as yt:
        yt.go(10)
        yt.world.delete_channel(yt.channels[3])
        yt.go(2 * HOUR)
        gone = problems(yt)["watch_gone"]
        assert (gone.severity, gone.subject) == ("notice", "youtube_channel_rss 2026-02-22")
        assert name_of(yt.channels[3]) in gone.what
        assert "API confirms 1 of 1" in gone.cause
        assert notified(yt) == ["watch_gone"]
        yt.world.delete_channel(yt.channels[4])
        yt.go(2 * HOUR)
        assert "2 watches are gone" in problems(yt)["watch_gone"].what
        assert notified(yt) == ["watch_gone"]
        assert ready(yt).is_good


def test_four_of_five_channels_without_an_answer_are_a_problem_of_the_source(tmp_path, clock):
    with polling_pipeline(tmp_path, clock, channels=5, videos=15, feeds={"poll_interval_seconds": 60}) as yt:
        yt.go(200)
        for ref in yt.channels[1:]:
            yt.world.delete_channel(ref)
        yt.go(240)
        assert ready(yt).body["adapters"]["youtube_channel_rss"]["on_time"] >= 1
        assert not ready(yt).is_good
        assert "4 of its 5 watches" in problems(yt)["source_stale"].what
        assert "404" in problems(yt)["source_stale"].cause
        assert len(notified(yt)) == 1


@pytest.mark.parametrize("fault", ["404", "500", "reset", "html"])
def test_what_may_pass_is_notified_once_within_four_minutes_of_its_first_failure(tmp_path, clock, fault):
    with polling_pipeline(tmp_path, clock, channels=1, videos=15, feeds={"poll_interval_seconds": 60}) as yt:
        yt.go(200)
        yt.site.set_faults(f"feed:{fault}")
        while Watch.get().errors == 0:
            yt.go(1)
        seen = []
        for _ in range(16):
            yt.go(15)
            seen.append(notified(yt))
        assert seen[0] == []
        assert seen[-1] == ["source_stale"]
        yt.site.set_faults("")
        yt.go(90)
        assert problems(yt) == {}
        assert notified(yt) == []


# --- the API


def test_a_refused_key_is_a_problem_at_its_first_call(tmp_path, clock):
    with polling_pipeline(tmp_path, clock, playlists=2, channels=1, videos=3) as yt:
        yt.go(60)
        yt.site.set_faults("api:API_KEY_INVALID")
        yt.go(330)
        refused = problems(yt)["api_refused"]
        assert (refused.subject, refused.is_proven) == ("YOUTUBE_API_KEY", True)
        assert "not valid" in refused.cause
        assert "YOUTUBE_API_KEY" in refused.commands
        assert notified(yt) == ["api_refused"]
        assert any("API key" in reason for reason in ready(yt).body["reasons"])
        yt.site.set_faults("")
        yt.go(330)
        assert problems(yt) == {}


def test_a_bad_key_is_reported_also_where_only_gaps_need_it(tmp_path, clock):
    with away_too_long(tmp_path, clock) as yt:
        yt.site.set_faults("api:API_KEY_INVALID")
        yt.go(400)
        assert [one.name for one in api_refusals.current()] == ["YOUTUBE_API_KEY"]
        found = problems(yt)
        assert set(found) == {"api_refused", "items_missed"}
        assert ready(yt).is_good, "every watch is read"


def test_a_spent_quota_is_one_alert_with_the_time_at_which_it_is_renewed(tmp_path, clock):
    with polling_pipeline(tmp_path, clock, playlists=3, videos=3, lists={"poll_interval_seconds": 900}) as yt:
        yt.go(60)
        yt.site.set_faults("api:quotaExceeded")
        yt.go(2 * HOUR)
        spent = problems(yt)["quota_spent"]
        assert "until 2026-02-23T08:00:00Z" in spent.effect
        assert "quota" in spent.cause
        assert "quota_low" not in problems(yt)
        assert notified(yt) == ["quota_spent"]
        assert not ready(yt).is_good
        yt.site.set_faults("")
        yt.until(1_771_833_600.0 + HOUR)
        assert problems(yt) == {}


def test_a_private_list_is_a_problem_at_once_and_the_others_are_read(tmp_path, clock):
    with polling_pipeline(tmp_path, clock, playlists=3, videos=3) as yt:
        yt.go(60)
        yt.site.set_faults(f"playlistItems/{yt.playlists[1]}:playlistItemsNotAccessible")
        yt.go(330)
        denied = problems(yt)["watch_denied"]
        assert name_of(yt.playlists[1]) in denied.what
        assert "private" in denied.cause
        assert notified(yt) == ["watch_denied"]
        assert ready(yt).is_good


# --- the configuration in force is the worker's


def test_a_source_that_a_reload_disabled_is_not_waited_for(tmp_path, clock):
    lists = {"playlists": [{"id": "PLone"}]}
    sources = {"youtube_playlist": lists, "youtube_channel_rss": {"watchlist": [{"channel_id": "UCone"}]}}
    with db.connection():
        line = InProcessPipeline(tmp_path, clock, "http://127.0.0.1:9/", sources=sources)
        note_start(line.rt)
        write_heartbeat(line.rt, clock())
        assert len(readiness(facts.gather(line.rt)).body["reasons"]) == 2
        settings = line.rt.settings
        off = settings.sources["youtube_playlist"].model_copy(update={"enabled": False})
        changed = settings.model_copy(update={"sources": {**settings.sources, "youtube_playlist": off}})
        reload(line.rt, lambda: changed)
        body = readiness(facts.gather(line.rt)).body
        assert body["reasons"] == ["youtube_channel_rss: not polled yet"]
        assert list(body["adapters"]) == ["youtube_channel_rss"]


def test_the_sidecar_uses_the_switches_of_a_worker_that_reloaded(tmp_path, clock):
    with db.connection():
        line = InProcessPipeline(tmp_path, clock, "http://127.0.0.1:9/", sources={})
        features = line.rt.settings.features.model_copy(update={"delivery": False})
        changed = line.rt.settings.model_copy(update={"features": features})
        reload(line.rt, lambda: changed)
        write_heartbeat(line.rt, clock())
        assert facts.gather(line.rt).delivery_is_on is False
        clock.move(60)
        assert facts.gather(line.rt).delivery_is_on, "the worker is gone: what this process has read is all there is"
