"""Bad nights: feeds that are not there, hosts that rate-limit us, channels that are really gone, gaps."""

import json
from itertools import pairwise

import pytest

from csi.pipeline import poll, polled_host_health
from csi.simulator.youtube.faults import id_fraction
from csi.store import counters, db, hosts
from csi.store.models import Event, Host, Watch
from csi.worker import retention
from tests.fakes.site_net import API_HOST, FEED_HOST
from tests.rigs.in_process import InProcessPipeline, polling_pipeline

HOUR, DAY = 3600.0, 86_400.0
SELDOM = {"poll_interval_seconds": 550}
"""Long tests with few reads; a host still counts as answering when it did within ten minutes."""


@pytest.fixture
def said(monkeypatch):
    """What the log says of hosts and watches."""
    lines: list[tuple[str, dict]] = []
    for module in (polled_host_health, poll):
        for level in ("info", "warning"):
            monkeypatch.setattr(module.log, level, lambda text, **fields: lines.append((text, fields)))
    return lines


def texts(said) -> list[str]:
    return [text for text, _ in said]


def hit(channels, share: float = 0.4) -> list[str]:
    """Those that the simulator's `#40` strikes."""
    return [ref for ref in channels if id_fraction(ref) < share]


def titles() -> list[str]:
    return [json.loads(row.subject_json)["title"] for row in Event.select()]


# --- whole nights of 404 (fault case 74)


NIGHTS = [("404", "missing", 3 * HOUR), ("500", "transient", HOUR / 3), ("html", "malformed", HOUR / 3)]


@pytest.mark.parametrize(("fault", "kind", "night"), NIGHTS)
def test_two_in_five_feeds_fail_for_three_hours(tmp_path, clock, said, fault, kind, night):
    with polling_pipeline(tmp_path, clock, channels=12) as yt:
        yt.go(400)
        struck = hit(yt.channels)
        assert 4 <= len(struck) <= 6
        said.clear()
        asked = len(yt.net.asked)
        yt.site.set_faults(f"feed:{fault}#40")
        began = clock()
        yt.go(night, step=10)
        during = {row.ref: (row.state, row.health, row.error_kind) for row in Watch.select()}
        assert all(during[ref] == ("active", "outage", kind) for ref in struck)
        assert all(during[ref][1] == "healthy" for ref in yt.channels if ref not in struck)
        assert (len(yt.net.asked) - asked) / night < 0.25  # a few scouts; 12 healthy ones ask 0.04 times a second
        for ref in yt.channels:
            yt.upload(ref, f"Published in the night by {ref}")
        yt.site.set_faults("")
        yt.go(90)
        assert set(titles()) >= {f"Published in the night by {ref}" for ref in struck}
        yt.go(310)
        assert len(titles()) == 12
        assert {(row.health, row.errors) for row in Watch.select()} == {("healthy", 0)}
        assert texts(said).count("upstream outage begins") == 1
        assert texts(said).count("upstream outage is over") == 1
        end = dict(said)["upstream outage is over"]
        assert end["watches"] == len(struck)
        assert night - 300 <= end["seconds"] <= clock() - began  # noticed within an interval of the channels
        assert counters.all_of("outages") == {
            ("youtube_channel_rss", "began"): 1,
            ("youtube_channel_rss", "ended"): 1,
        }


def test_when_the_whole_host_is_away_it_is_asked_now_and_then_and_everything_is_read_at_once_when_it_is_back(
    tmp_path, clock, said
):
    with polling_pipeline(tmp_path, clock, channels=25, feeds={"poll_interval_seconds": 120}) as yt:
        yt.go(200)
        yt.site.set_faults("feed:reset")
        yt.go(HOUR / 6)
        assert {row.health for row in Watch.select()} == {"outage"}
        asked = len(yt.net.asked)
        yt.go(HOUR / 4)
        assert (len(yt.net.asked) - asked) / (HOUR / 4) < 0.2  # 25 healthy ones ask 0.21 times a second
        yt.site.set_faults("")
        back = clock()
        yt.go(90)
        assert all(row.last_success_at >= back for row in Watch.select())
        recalled = sorted(at for at, _, _ in yt.net.asked if at >= back)
        assert max(sum(1 for at in recalled if second <= at - back < second + 1) for second in range(90)) <= 13
        yt.go(60)
        assert Host.get_by_id(FEED_HOST).outage_since is None
        assert texts(said).count("upstream outage is over") == 1


def test_one_bad_feed_does_not_make_an_outage_and_waits_longer_and_longer(tmp_path, clock, said):
    with polling_pipeline(tmp_path, clock, channels=3, feeds=SELDOM) as yt:
        bad = yt.channels[1]
        yt.go(10)
        yt.site.set_faults(f"feed/{bad}:500")
        yt.go(10 * 60)
        assert max(b - a for a, b in pairwise(yt.net.times(bad)[2:])) <= 61
        yt.go(9 * HOUR)
        waits = [b - a for a, b in pairwise(yt.net.times(bad))]
        assert 1500 < max(waits) <= HOUR
        assert Watch.get(ref=bad).health == "backing_off"
        assert "upstream outage begins" not in texts(said)
        assert len([line for line in said if line[0] == "poll failed"]) == 1
        yt.site.set_faults("")
        yt.go(HOUR)
        assert Watch.get(ref=bad).health == "healthy"
        assert "watch recovered" in texts(said)


def test_a_single_watch_is_asked_every_minute_for_nothing_proves_that_its_host_is_there(tmp_path, clock):
    with polling_pipeline(tmp_path, clock, channels=1) as yt:
        yt.site.set_faults("feed:404")
        yt.go(2 * HOUR)
        assert Watch.get().health == "backing_off"
        yt.site.set_faults("")
        yt.go(61)
        assert Watch.get().health == "healthy"


def test_a_short_fault_of_one_watch_is_over_within_a_minute(tmp_path, clock):
    with polling_pipeline(tmp_path, clock, channels=8) as yt:
        yt.go(10)
        yt.site.set_faults(f"feed/{yt.channels[0]}:404@-600", from_now=True)
        yt.go(600)
        yt.go(70)
        assert Watch.get(ref=yt.channels[0]).health == "healthy"


# --- dead, confirmed by the API only


def test_a_channel_that_is_gone_is_dead_when_the_api_says_so_and_comes_back_by_itself(tmp_path, clock, said):
    with polling_pipeline(tmp_path, clock, channels=3, feeds=SELDOM) as yt:
        gone = yt.channels[0]
        yt.go(10)
        channel = yt.world.channel(gone)
        yt.world.delete_channel(gone)
        yt.go(HOUR / 2)
        assert Watch.get(ref=gone).health == "backing_off"
        yt.go(2 * HOUR)
        dead = Watch.get(ref=gone)
        assert (dead.health, dead.state) == ("dead", "active")
        assert dead.missing_since is not None
        before = len(yt.net.times(gone))
        yt.go(6 * HOUR)
        assert 6 <= len(yt.net.times(gone)) - before <= 8
        yt.world.add_channel(channel.title, at=clock(), channel_id=gone)
        yt.go(HOUR)
        alive = Watch.get(ref=gone)
        assert (alive.health, alive.missing_since, alive.errors) == ("healthy", None, 0)


def test_a_channel_that_exists_is_suspect_at_most(tmp_path, clock):
    with polling_pipeline(tmp_path, clock, channels=3, feeds=SELDOM) as yt:
        bad = yt.channels[0]
        yt.go(10)
        yt.site.set_faults(f"feed/{bad}:404")
        yt.go(26 * HOUR)
        watch = Watch.get(ref=bad)
        assert (watch.health, watch.missing_since) == ("suspect", None)
        asked = [at for at, host, ref in yt.net.asked if ref == bad and host == API_HOST]
        assert len(asked) == 2  # once when it lasted, and once a day


def test_without_a_key_nothing_is_ever_dead(tmp_path, clock):
    with polling_pipeline(tmp_path, clock, channels=3, feeds={"api_key_env": "NO_SUCH_KEY"}) as yt:
        yt.go(10)
        yt.world.delete_channel(yt.channels[0])
        yt.go(3 * HOUR)
        assert Watch.get(ref=yt.channels[0]).health == "suspect"
        assert not [host for _, host, _ in yt.net.asked if host == API_HOST]


# --- hosts that rate-limit us (fault case 75)


def rest_long(yt, clock):
    """Until enough watches were refused for the host to rest for more than a minute."""
    while (hosts.get(FEED_HOST).paused_until or 0) - clock() <= 61:
        yt.go(1)


@pytest.mark.parametrize("status", [429, 503])
def test_one_feed_with_a_far_retry_after_stops_no_other_for_more_than_a_minute(tmp_path, clock, status):
    with polling_pipeline(tmp_path, clock, channels=20) as yt:
        yt.go(400)
        bad = yt.channels[3]
        yt.site.set_faults(f"feed/{bad}:{status}=3600")
        began = clock()
        yt.go(HOUR)
        assert len([at for at in yt.net.times(bad) if at >= began]) <= 2
        others = [yt.net.times(ref) for ref in yt.channels if ref != bad]
        assert max(b - a for times in others for a, b in pairwise(times) if a >= began) <= 400
        assert Watch.get(ref=bad).health == "throttled"


def test_a_429_pauses_its_host_and_no_other(tmp_path, clock):
    with polling_pipeline(tmp_path, clock, channels=20, playlists=3) as yt:
        yt.go(400)
        yt.site.set_faults("feed:429=600*3")
        rest_long(yt, clock)
        began, until = clock(), hosts.get(FEED_HOST).paused_until
        assert 590 <= until - began <= 600
        yt.until(until - 1)
        feeds = [at for at, host, _ in yt.net.asked if host == FEED_HOST and at > began]
        assert feeds == []
        assert len([at for at, host, _ in yt.net.asked if host == API_HOST and at > began]) >= 3 * 15
        assert sum(row.errors for row in Watch.select()) == 3  # only the watches that were refused
        yt.go(60)
        assert all(row.last_success_at > until for row in Watch.select())
        busiest = [at for at, host, _ in yt.net.asked if host == FEED_HOST and at >= until]
        assert max(sum(1 for at in busiest if second <= at - until < second + 1) for second in range(60)) <= 8
        assert hosts.get(FEED_HOST).pauses == 0


@pytest.mark.parametrize("status", [429, 503])
def test_without_retry_after_the_pause_grows_to_a_minute(tmp_path, clock, status):
    with polling_pipeline(tmp_path, clock, channels=5) as yt:
        yt.go(400)
        yt.site.set_faults(f"feed:{status}")
        began = clock()
        yt.go(30 * 60)
        asked = [at for at, host, _ in yt.net.asked if at >= began]
        assert max(b - a for a, b in pairwise(asked)) <= 300
        assert hosts.get(FEED_HOST).pauses >= 5
        assert 10 <= len(asked) <= 90
        yt.site.set_faults("")
        yt.go(91)
        assert {(row.health, row.errors) for row in Watch.select()} == {("healthy", 0)}


def test_a_pause_outlives_a_restart(tmp_path, clock):
    with polling_pipeline(tmp_path, clock, channels=6) as yt:
        yt.go(400)
        yt.site.set_faults("feed:429=900*3")
        rest_long(yt, clock)
        until = hosts.get(FEED_HOST).paused_until
        config = {"sources": {"youtube_channel_rss": {"watchlist": [{"channel_id": ref} for ref in yt.channels]}}}
        yt.use(InProcessPipeline(tmp_path, clock, "http://127.0.0.1:9/", **config))
        yt.until(until - 1)
        assert yt.net.asked == []
        assert [wake.step for wake in poll.poll_early(yt.rt, Watch.get().id)] == ["poll"]  # not even by command
        assert yt.net.asked == []
        yt.go(60)
        assert len({ref for _, _, ref in yt.net.asked}) == 6


def test_an_outage_outlives_a_restart_and_ends_once(tmp_path, clock, said):
    with polling_pipeline(tmp_path, clock, channels=12) as yt:
        yt.go(400)
        yt.site.set_faults("feed:404#40")
        yt.go(HOUR / 4)
        config = {"sources": {"youtube_channel_rss": {"watchlist": [{"channel_id": ref} for ref in yt.channels]}}}
        yt.use(InProcessPipeline(tmp_path, clock, "http://127.0.0.1:9/", **config))
        yt.go(HOUR / 4)
        yt.site.set_faults("")
        yt.go(400)
        assert texts(said).count("upstream outage begins") == texts(said).count("upstream outage is over") == 1
        assert dict(said)["upstream outage is over"]["seconds"] >= HOUR / 2 - 300


# --- gaps (decision 0042, 18)


def test_a_window_that_shows_nothing_known_is_filled_from_the_uploads_list(tmp_path, clock):
    with polling_pipeline(tmp_path, clock, channels=3, videos=20) as yt:
        yt.go(10)
        assert Event.select().count() == 0
        for number in range(40):
            yt.upload(yt.channels[0], f"Number {number}", at=clock() + number)
        clock.move(60)
        yt.go(400)
        assert sorted(titles()) == sorted(f"Number {number}" for number in range(40))
        kinds = {row.event_type for row in Event.select()}
        assert kinds == {"channel_new_upload", "channel_new_upload_api"}
        watch = Watch.get(ref=yt.channels[0])
        assert (watch.note, watch.gap_json) == (None, None)
        assert counters.all_of("gaps") == {("youtube_channel_rss", "filled"): 1}
        order = [json.loads(row.subject_json)["title"] for row in Event.select().order_by(Event.seq)]
        assert order == [f"Number {number}" for number in range(40)]


def test_a_gap_that_cannot_be_filled_is_said_on_the_watch(tmp_path, clock, monkeypatch):
    with polling_pipeline(tmp_path, clock, channels=1, videos=20, feeds={"api_key_env": "NO_SUCH_KEY"}) as yt:
        yt.go(10)
        for number in range(40):
            yt.upload(yt.channels[0], f"Number {number}", at=clock() + number)
        clock.move(60)
        yt.go(400)
        assert len(titles()) == 15
        watch = Watch.get()
        assert watch.note.startswith("items may have been missed between 2026-02-22T12:0")
        assert "no key" in watch.note
        yt.go(HOUR)
        assert Watch.get().note == watch.note
        assert counters.all_of("gaps") == {("youtube_channel_rss", "open"): 1}
        yt.go(7 * DAY, step=6 * HOUR)
        assert (Watch.get().gap_json, Watch.get().note) == (None, watch.note)


def test_a_gap_is_filled_later_when_the_api_was_away(tmp_path, clock):
    with polling_pipeline(tmp_path, clock, channels=1, videos=20) as yt:
        yt.go(10)
        for number in range(80):  # two pages: what the window showed meanwhile must not end the walk on the first
            yt.upload(yt.channels[0], f"Number {number}", at=clock() + number)
        clock.move(100)
        yt.site.set_faults("api:500")
        yt.go(600)
        assert len(titles()) == 15
        assert "items may have been missed" in Watch.get().note
        yt.site.set_faults("")
        yt.upload(yt.channels[0], "Number 80")
        yt.go(1300)
        assert sorted(titles()) == sorted(f"Number {number}" for number in range(81))
        assert Watch.get().note is None


def test_a_night_with_more_than_a_windows_worth_of_uploads_loses_nothing(tmp_path, clock):
    with polling_pipeline(tmp_path, clock, channels=4, videos=15) as yt:
        yt.go(10)
        yt.site.set_faults("feed:404")
        yt.go(600)
        for number in range(30):
            for ref in yt.channels:
                yt.upload(ref, f"{ref} {number}")
            clock.move(20)
        yt.go(60)
        yt.site.set_faults("")
        yt.go(90)
        assert len(titles()) == len(set(titles())) == 120


def test_a_first_read_has_no_gap(tmp_path, clock):
    with polling_pipeline(tmp_path, clock, channels=1, videos=30, feeds={"first_poll": "all"}) as yt:
        yt.go(400)
        assert len(titles()) == 15
        assert Watch.get().note is None
        assert not [host for _, host, _ in yt.net.asked if host == API_HOST]


# --- filters, caches, absences


def test_what_is_not_wanted_is_remembered_and_not_emitted(tmp_path, clock):
    with polling_pipeline(
        tmp_path, clock, channels=1, feeds={"include": ["video"], "title": {"not": "(?i)trailer"}}
    ) as yt:
        yt.go(10)
        wanted = yt.upload(yt.channels[0], "A video")
        short = yt.upload(yt.channels[0], "A short", kind="short")
        trailer = yt.upload(yt.channels[0], "The TRAILER")
        yt.go(700)
        assert titles() == ["A video"]
        reasons = dict(db.fetch("SELECT key, reason FROM dedupe_keys"))
        assert reasons == {
            f"youtube:video:{wanted}": "emitted",
            f"youtube:video:{short}": "filtered",
            f"youtube:video:{trailer}": "filtered",
        }
        assert counters.all_of("items")[("youtube_channel_rss", "filtered")] == 2


def test_the_cache_is_waited_for_where_it_is_respected(tmp_path, clock):
    with polling_pipeline(tmp_path, clock, channels=1, feeds={"respect_cache_headers": True}) as yt:
        yt.go(HOUR)
        waits = [b - a for a, b in pairwise(yt.net.times(yt.channels[0]))]
        assert all(900 <= wait <= 905 for wait in waits)
    assert len(waits) == 3


def test_after_an_absence_longer_than_keys_live_old_items_are_not_news(tmp_path, clock):
    with polling_pipeline(tmp_path, clock, channels=1, videos=10) as yt:
        yt.go(10)
        Watch.update(state="paused").execute()
        clock.move(100 * DAY)
        retention.prune(yt.rt, rest=lambda seconds: None)
        assert db.number("SELECT COUNT(*) FROM dedupe_keys") == 0
        yt.upload(yt.channels[0], "While nobody looked", at=clock() - 50 * DAY)
        Watch.update(state="active", next_poll_at=clock(), wake_at=clock()).execute()
        yt.go(10)
        assert titles() == ["While nobody looked"]


def test_after_a_long_absence_keys_that_still_exist_decide_what_is_new(tmp_path, clock):
    with polling_pipeline(tmp_path, clock, channels=1, videos=10) as yt:
        yt.go(10)
        listed_late = clock() - 40 * DAY
        clock.move(100 * DAY)
        yt.upload(yt.channels[0], "Listed late", at=listed_late)
        Watch.update(next_poll_at=clock(), wake_at=clock()).execute()
        yt.go(10)
        assert titles() == ["Listed late"]


def test_after_a_long_absence_an_item_newer_than_all_that_were_listed_is_new(tmp_path, clock):
    with polling_pipeline(tmp_path, clock, channels=1, videos=10) as yt:
        yt.go(10)
        newest = Watch.get().last_video_published_at
        clock.move(100 * DAY)
        retention.prune(yt.rt, rest=lambda seconds: None)
        assert db.number("SELECT COUNT(*) FROM dedupe_keys") == 0
        yt.upload(yt.channels[0], "Listed late", at=newest + 1)
        Watch.update(next_poll_at=clock(), wake_at=clock()).execute()
        yt.go(10)
        assert titles() == ["Listed late"]


def test_the_number_of_items_that_are_counted_as_seen_is_logged(tmp_path, clock, monkeypatch):
    lines = []
    with polling_pipeline(tmp_path, clock, channels=1, videos=10) as yt:
        monkeypatch.setattr(poll.log, "info", lambda message, **keys: lines.append((message, keys)))
        yt.go(10)
        clock.move(100 * DAY)
        retention.prune(yt.rt, rest=lambda seconds: None)
        Watch.update(next_poll_at=clock(), wake_at=clock()).execute()
        yt.go(10)
        said = [keys for message, keys in lines if message == "items are counted as seen, without events"]
        where = {"source": "youtube_channel_rss", "watch": yt.channels[0], "items": 10}
        assert said == [{**where, "why": "first_poll"}, {**where, "why": "absence"}]


# --- long walks


def test_a_long_walk_keeps_its_lease(tmp_path, clock):
    lists = {"first_poll": "all", "poll_interval_seconds": 600}
    with polling_pipeline(tmp_path, clock, playlists=1, lists=lists) as yt:
        for number in range(600):
            video = yt.world.upload(yt.library, f"Number {number}", at=clock() - 5000 + number).id
            yt.world.add_to_playlist(yt.playlists[0], video, at=clock() - 5000 + number)
        stolen = []

        def slowly(ref: str) -> None:
            clock.move(15)
            stolen.append(poll.watches.claim(Watch.get().id, clock(), 55, early=True))

        yt.net.before = slowly
        yt.run()  # 12 pages, 15 s each: three leases long
        assert not any(stolen)
        assert Watch.get().pages == 12
        yt.net.before = lambda ref: None
        yt.go(10)
        assert Event.select().count() == 600


def test_a_read_that_outlived_its_lease_says_so_and_stores_nothing(tmp_path, clock, said):
    with polling_pipeline(tmp_path, clock, channels=1, feeds={"first_poll": "all"}) as yt:

        def stolen(ref: str) -> None:
            clock.move(56)
            assert poll.watches.claim(Watch.get().id, clock(), 55, early=True)

        yt.net.before = stolen
        yt.run()
        assert texts(said) == ["lease was lost; what was read is not stored"]
        assert (Watch.get().first_read_at, Event.select().count()) == (None, 0)


def test_a_walk_whose_watch_was_taken_over_says_so(tmp_path, clock, said):
    with polling_pipeline(tmp_path, clock, playlists=1, lists={"first_poll": "all"}) as yt:
        for number in range(120):
            video = yt.world.upload(yt.library, f"Number {number}", at=clock()).id
            yt.world.add_to_playlist(yt.playlists[0], video, at=clock())

        def stolen(ref: str) -> None:
            clock.move(56)
            poll.watches.claim(Watch.get().id, clock(), 55, early=True)

        yt.net.before = stolen
        yt.run()
        assert texts(said) == ["lease was lost; what was read is not stored"]
        assert len(yt.net.asked) == 1


def test_a_walk_whose_watch_was_paused_ends_and_stores_nothing(tmp_path, clock):
    with polling_pipeline(tmp_path, clock, playlists=1, lists={"first_poll": "all"}) as yt:
        for number in range(500):
            video = yt.world.upload(yt.library, f"Number {number}", at=clock()).id
            yt.world.add_to_playlist(yt.playlists[0], video, at=clock())

        def pause(ref: str) -> None:
            clock.move(15)
            Watch.update(state="paused").execute()

        yt.net.before = pause
        yt.run()
        assert 2 <= len(yt.net.asked) <= 4
        assert (Watch.get().errors, Watch.get().first_read_at, Event.select().count()) == (0, None, 0)


def test_a_database_in_trouble_is_not_blamed_on_the_source(tmp_path, clock, monkeypatch):
    with polling_pipeline(tmp_path, clock, channels=1) as yt:

        def locked(keys: list[str]) -> set[str]:
            raise db.DatabaseError("database is locked")

        monkeypatch.setattr(poll.dedupe, "known", locked)
        with pytest.raises(db.DatabaseError):
            list(poll.poll(yt.rt, Watch.get().id))
        monkeypatch.undo()
        assert (Watch.get().errors, Watch.get().health, Watch.get().last_error) == (0, "healthy", None)
        yt.go(poll.watches.LEASE_SECONDS + 1 + poll.watches.REWAKE_SECONDS)
        assert Watch.get().last_success_at is not None  # the lease brought it back
