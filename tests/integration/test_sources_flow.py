"""Watches as a person manages them: added, filtered, paused, reset, imported, beside the configuration's."""

import json
from functools import partial
from pathlib import Path

import pytest

from csi.adapters.youtube.references import UnknownReference
from csi.admin import watch_options, watches
from csi.admin.watches import WatchOptions, WatchRefused
from csi.api_models import WatchJson
from csi.config.source_settings import KINDS
from csi.pipeline import schedule
from csi.store import api_units, db, heartbeats, poll_history, watch_admin
from csi.store.models import Event, Watch
from tests.fakes.scripted_receiver import ScriptedReceiver
from tests.fakes.youtube import simulated_youtube
from tests.rigs.in_process import InProcessPipeline

DATA = Path(__file__).parents[1] / "data" / "imports"
NOTHING = WatchOptions({})


@pytest.fixture
def yt(clock):
    with simulated_youtube(channels=3, playlists=2, now=clock) as site:
        yield site


@pytest.fixture
def build(tmp_path, clock, yt):
    """A line whose configuration watches the first channel and the first playlist."""
    with ScriptedReceiver() as ua, db.connection():

        def make(*, channels=None, playlists=None, key="demo-key", **common):
            blocks = {
                "youtube_playlist": {"playlists": playlists if playlists is not None else [{"id": yt.playlists[0]}]},
                "youtube_channel_rss": {
                    "feed_url_template": yt.feed_url_template,
                    "watchlist": channels if channels is not None else [{"channel_id": yt.channels[0]}],
                },
            }
            for block in blocks.values():
                block |= {"api_base_url": yt.api_base_url, "poll_interval_seconds": 10, **common}
            profiles = {"explain": {"pipeline": "explainer", "priority": "urgent", "tags": ["ai"]}}
            line = InProcessPipeline(tmp_path, clock, ua.url, sources=blocks, route_profiles=profiles)
            if not key:
                line.rt.settings.secrets.named.clear()
            return line

        yield make


@pytest.fixture
def line(build):
    return build()


def titles() -> set[str]:
    return {json.loads(row.subject_json)["title"] for row in Event.select()}


# --- add


def test_an_added_channel_is_watched_like_one_of_the_configuration(line, yt):
    line.run()
    yt.upload(yt.channels[1], "Old")
    added = watches.add(
        line.rt, yt.channels[1], WatchOptions({"name": "Second", "tags": ("mine",), "route_profile": "explain"})
    )
    assert (added.result, added.target.source, added.quote.most_units) == ("added", "youtube_channel_rss", 0)
    line.run()
    assert titles() == set(), "its first read marks what is there"
    yt.upload(yt.channels[1], "New")
    line.wait(12)
    assert titles() == {"New"}
    assert json.loads(Event.get().routing_json)["tags"] == ["ai", "mine"]
    row = Watch.get_by_id(added.watch_id)
    assert (row.origin, row.name, row.host) == ("command", "Second", yt.base_url.removeprefix("http://"))


def test_first_poll_and_interval_may_be_the_watchs_own(line, yt):
    yt.upload(yt.channels[1], "Old")
    added = watches.add(line.rt, yt.channels[1], WatchOptions({"first_poll": "all", "poll_interval_seconds": "2m"}))
    line.run()
    assert titles() == {"Old"}
    assert Watch.get_by_id(added.watch_id).interval_seconds == 120


@pytest.mark.parametrize("form", ["@{handle}", "https://www.youtube.com/@{handle}", "{base}/@{handle}/videos"])
def test_a_handle_is_looked_up_for_one_unit(line, yt, form):
    channel = yt.world.channel(yt.channels[1])
    text = form.format(handle=channel.handle.removeprefix("@"), base=yt.base_url)
    added = watches.add(line.rt, text, NOTHING, dry_run=True)
    assert (added.target.ref, added.name, added.target.units) == (channel.id, channel.title, 1)
    assert api_units.used(line.rt.now()) == 1
    assert watch_admin.find("youtube_channel_rss", channel.id) is None, "a dry run adds nothing"


def test_a_video_leads_to_its_channel(line, yt):
    video = yt.upload(yt.channels[2], "Any")
    assert watches.add(line.rt, f"https://youtu.be/{video}", NOTHING).target.ref == yt.channels[2]


def test_a_playlist_says_what_it_costs(line, yt):
    added = watches.add(line.rt, f"https://www.youtube.com/playlist?list={yt.playlists[1]}", NOTHING)
    assert added.target.source == "youtube_playlist"
    assert added.quote.most_units == 8_640
    assert added.quote.least_units == 288


def test_what_youtube_does_not_know_is_said(line):
    with pytest.raises(WatchRefused, match="YouTube has no handle '@nobody_at_all'"):
        watches.add(line.rt, "@nobody_at_all", NOTHING)
    with pytest.raises(WatchRefused, match="has no video"):
        watches.add(line.rt, "https://youtu.be/AAAAAAAAAAA", NOTHING)


def test_without_a_key_a_handle_and_a_video_are_found_on_the_page(build, yt):
    line, channel = build(key=None), yt.world.channel(yt.channels[1])
    added = watches.add(line.rt, channel.handle, NOTHING)
    assert (added.target.ref, added.name, added.target.units) == (channel.id, channel.title, 0)
    video = yt.upload(yt.channels[2], "Any")
    added = watches.add(line.rt, f"https://www.youtube.com/watch?v={video}", NOTHING)
    assert (added.target.ref, added.name) == (yt.channels[2], yt.world.channel(yt.channels[2]).title)
    for nobody, what in (("@nobody_at_all", "handle"), ("https://youtu.be/AAAAAAAAAAA", "video")):
        with pytest.raises(WatchRefused, match=f"YouTube has no {what}"):
            watches.add(line.rt, nobody, NOTHING)
    assert yt.requests.count("/youtube/v3/channels") == 0


def test_watches_without_a_name_get_the_one_that_their_source_gives(build, yt):
    yt.upload(yt.channels[0], "Any")
    yt.add(yt.playlists[0], "Any")
    line = build()
    line.run()
    rows = {row.ref: row.name for row in Watch.select()}
    assert rows[yt.channels[0]] == yt.world.channel(yt.channels[0]).title
    assert rows[yt.playlists[0]]
    schedule.sync_watches(line.rt)
    assert rows == {row.ref: row.name for row in Watch.select()}, "a reload keeps them"


def test_a_configured_name_wins_and_the_sources_name_follows_it(build, yt):
    yt.upload(yt.channels[0], "Any")
    line = build(channels=[{"channel_id": yt.channels[0], "name": "Mine"}], playlists=[])
    line.run()
    row = Watch.get(Watch.ref == yt.channels[0])
    assert (row.name, row.title) == ("Mine", yt.world.channel(yt.channels[0]).title)


def test_a_look_up_that_the_budget_does_not_allow_is_made_on_the_page(line, yt):
    api_units.exhaust(10_000, line.rt.now())
    channel = yt.world.channel(yt.channels[1])
    assert watches.add(line.rt, channel.handle, NOTHING).target.ref == channel.id
    assert yt.requests.count("/youtube/v3/channels") == 0


@pytest.mark.parametrize(
    ("wish", "said"),
    [
        ({"route_profile": "explian"}, "unknown route profile 'explian'; did you mean explain?"),
        ({"poll_interval_seconds": "soon"}, "poll_interval_seconds: expected seconds"),
        ({"poll_interval_seconds": 0.1}, "poll_interval_seconds: expected an interval of 1 second"),
        ({"first_poll": "some"}, "first_poll: expected mark_seen, all, or last: N"),
        ({"include": ["podcast"]}, "include: "),
        ({"title": {"match": "(?<!b)(a+)+$"}}, "title: this pattern can match one title in more than"),
        ({"name": "x" * 201}, "name: "),
    ],
)
def test_a_wish_is_checked_like_the_configuration(line, yt, wish, said):
    with pytest.raises(WatchRefused) as caught:
        watches.add(line.rt, yt.channels[1], WatchOptions(wish))
    assert said in str(caught.value)
    assert watch_admin.find("youtube_channel_rss", yt.channels[1]) is None


def test_what_applies_to_channels_only_is_refused_for_a_playlist(line, yt):
    with pytest.raises(WatchRefused, match="via does not apply to youtube_playlist"):
        watches.add(line.rt, yt.playlists[1], WatchOptions({"via": "api"}))


def test_text_that_is_no_id_reaches_no_url(line, yt):
    for text in ("../../etc/passwd", "UC../../x", "@a/b", "https://example.com/channel/UC" + "a" * 22):
        with pytest.raises((UnknownReference, WatchRefused)):
            watches.add(line.rt, text, NOTHING)
    assert yt.requests.count("/youtube/v3/channels") == yt.requests.count("/youtube/v3/videos") == 0


def test_a_source_that_is_off_or_absent_is_said(build, yt):
    line = build(enabled=False)
    with pytest.raises(WatchRefused, match="disabled; set enabled: true"):
        watches.add(line.rt, yt.channels[1], NOTHING)
    del line.rt.settings.sources["youtube_channel_rss"]
    with pytest.raises(WatchRefused, match="not in the configuration"):
        watches.add(line.rt, yt.channels[1], NOTHING)


# --- filters


def test_filters_keep_items_out_and_remember_them(line, yt):
    wish = WatchOptions({"include": ["video"], "title": {"not": "(?i)teaser"}, "first_poll": "all"})
    watches.add(line.rt, yt.channels[1], wish)
    line.run()
    yt.upload(yt.channels[1], "A teaser")
    yt.upload(yt.channels[1], "The film")
    short = yt.upload(yt.channels[1], "A short", kind="short")
    line.wait(12)
    assert titles() == {"The film"}
    assert db.value("SELECT reason FROM dedupe_keys WHERE key = ?", f"youtube:video:{short}") == "filtered"


# --- the configuration and the command, side by side


def test_playlists_without_a_key_are_said_once_at_start(build, yt, monkeypatch):
    """Those of the configuration and those added by command alike; a channel's feed needs none."""
    said: list[str] = []
    monkeypatch.setattr(schedule.log, "warning", lambda text, **fields: said.append(fields["remedy"]))
    line = build()
    watches.add(line.rt, yt.playlists[1], NOTHING)
    schedule.warn_keyless(line.rt)
    assert said == []
    schedule.warn_keyless(build(key=None).rt)
    remedy = "the API, which is not accessible; set YOUTUBE_API_KEY, or the three variables of oauth"
    assert said == [f"sources.youtube_playlist: 2 watches need {remedy}"]


def test_ids_that_nothing_can_have_are_said_at_start_and_the_others_are_read(build, yt, monkeypatch):
    said: list[tuple[str, str]] = []
    monkeypatch.setattr(schedule.log, "warning", lambda text, **fields: said.append((fields["watch"], fields["fault"])))
    line = build(playlists=[{"id": "PLxxx"}], channels=[{"channel_id": "UCaaa"}, {"channel_id": yt.channels[0]}])
    schedule.warn_wrong_ids(line.rt)
    monkeypatch.undo()
    assert said[0] == ("PLxxx", "PLxxx is a placeholder; write the real id")
    assert (said[1][0], "no channel can have this id" in said[1][1], len(said)) == ("UCaaa", True, 2)
    line.run()
    assert Watch.get(ref=yt.channels[0]).health == "healthy"


def test_a_stored_pattern_that_is_refused_now_is_logged_shown_and_not_applied(build, yt, monkeypatch):
    """An earlier release accepted it for a watch that was added by command."""
    logged: list[dict[str, object]] = []
    monkeypatch.setattr(schedule.log, "warning", lambda text, **fields: logged.append({"text": text, **fields}))
    line = build()
    added = watches.add(line.rt, yt.channels[1], WatchOptions({"first_poll": "all"}))
    stored = json.dumps({"title": {"match": "(?<!b)(a+)+$"}})
    Watch.update(filters_json=stored).where(Watch.id == added.watch_id).execute()
    schedule.warn_refused_patterns(line.rt)
    assert [(one["text"], one["id"]) for one in logged] == [("title pattern is not applied", added.watch_id)]
    assert "more than 2,000,000 ways" in str(logged[0]["problem"])
    notes = [one.note for one in WatchJson.of_rows(line.rt, watch_admin.every()) if one.id == added.watch_id]
    assert notes[0].startswith("title pattern is not applied: this pattern can match")
    yt.upload(yt.channels[1], "a" * 99 + "!")
    line.wait(12)
    assert "a" * 99 + "!" in titles()


def test_a_creators_name_is_the_name_where_none_is_set(build, yt):
    channel = {"channel_id": yt.channels[0], "creator_name": "The Creator"}
    build(channels=[channel])
    assert Watch.get(source=watches.CHANNELS).name == "The Creator"
    build(channels=[{**channel, "name": "My name for it"}])
    assert Watch.get(source=watches.CHANNELS).name == "My name for it"


def test_known_watches_are_named_and_left_alone(line, yt):
    again = watches.add(line.rt, yt.channels[0], WatchOptions({"name": "Mine"}))
    assert again.result == "known"
    assert "in the configuration" in again.remark
    assert Watch.get(ref=yt.channels[0]).name is None


def test_a_watch_of_the_configuration_cannot_be_removed_by_command(line, yt):
    row = watches.find_watch(line.rt, yt.channels[0])
    with pytest.raises(WatchRefused, match=r"delete it from sources\.youtube_channel_rss\.watchlist"):
        watches.remove(line.rt, row)
    assert Watch.get_by_id(row.id).state == "active"


def test_a_watch_added_by_command_outlives_restarts_and_can_be_removed(build, yt):
    line = build()
    added = watches.add(line.rt, yt.channels[1], NOTHING)
    line = build()  # the next start, with the same configuration
    assert Watch.get_by_id(added.watch_id).state == "active"
    watches.remove(line.rt, watches.find_watch(line.rt, yt.channels[1]))
    assert Watch.get_by_id(added.watch_id).state == "removed"
    again = watches.add(line.rt, yt.channels[1], NOTHING)
    assert (again.result, again.watch_id) == ("added", added.watch_id)


def test_the_configuration_wins_over_the_command_and_says_so_once(build, yt, monkeypatch):
    line = build()
    added = watches.add(line.rt, yt.channels[1], WatchOptions({"name": "By command"}))
    said = []
    monkeypatch.setattr(schedule.log, "info", lambda text, **fields: said.append((text, fields["watch"])))
    both = [{"channel_id": yt.channels[0]}, {"channel_id": yt.channels[1], "name": "By config"}]
    build(channels=both)
    build(channels=both)
    row = Watch.get_by_id(added.watch_id)
    assert (row.origin, row.name) == ("config", "By config")
    assert [watch for text, watch in said if "its configuration applies" in text] == [yt.channels[1]]


@pytest.mark.parametrize("which", [0, 1])
def test_a_pause_survives_restarts_and_syncs(build, yt, which):
    line = build()
    watches.add(line.rt, yt.channels[1], NOTHING)
    line.run()
    row = watches.find_watch(line.rt, yt.channels[which])
    assert watches.pause(line.rt, row)
    assert not watches.pause(line.rt, row)
    yt.upload(yt.channels[which], "While it was paused")
    line = build()
    line.wait(60, step=10)
    assert Watch.get_by_id(row.id).state == "paused"
    assert titles() == set()
    assert watches.resume(line.rt, Watch.get_by_id(row.id))
    line.run()
    assert titles() == {"While it was paused"}, "it continues where it was"


def test_the_watches_are_kept_in_step_only_while_no_worker_is_alive(build, yt, clock):
    line = build()
    heartbeats.write("worker", clock(), clock())
    Watch.update(name="as the worker has it").execute()
    watches.sync_without_worker(line.rt)
    assert Watch.get(ref=yt.channels[0]).name == "as the worker has it"
    clock.move(60)
    watches.sync_without_worker(line.rt)
    assert Watch.get(ref=yt.channels[0]).name is None


def test_a_configured_watch_that_includes_everything_wins_over_its_source(build, yt):
    build(channels=[{"channel_id": yt.channels[0], "include": list(KINDS)}], include=["video"])
    assert Watch.get(ref=yt.channels[0]).filters_json == "{}"
    assert json.loads(Watch.get(ref=yt.playlists[0]).filters_json) == {"include": ["video"]}


# --- finding, polling, resetting


def test_a_watch_is_found_by_number_ref_name_and_url(line, yt):
    added = watches.add(line.rt, yt.channels[1], WatchOptions({"name": "Second"}))
    for text in (str(added.watch_id), yt.channels[1], "Second", f"https://www.youtube.com/channel/{yt.channels[1]}"):
        assert watches.find_watch(line.rt, text).id == added.watch_id
    watches.add(line.rt, yt.channels[2], WatchOptions({"name": "Second"}))
    with pytest.raises(WatchRefused, match="is the name of 2 watches"):
        watches.find_watch(line.rt, "Second")
    with pytest.raises(WatchRefused, match="there is no watch 'nothing'"):
        watches.find_watch(line.rt, "nothing")


def test_poll_now_reads_and_stores_at_once(line, yt, clock):
    line.run()
    clock.move(1)
    yt.add(yt.playlists[0], "In the list")
    found = watches.poll_now(line.rt, watches.find_watch(line.rt, yt.playlists[0]))
    assert (found.new_items, found.error, found.is_busy) == (1, None, False)
    assert found.units >= 1
    assert titles() == {"In the list"}
    yt.set_faults("feed:500")
    failed = watches.poll_now(line.rt, watches.find_watch(line.rt, yt.channels[0]))
    assert failed.error == "the feed answered 500"
    row = watches.find_watch(line.rt, yt.channels[0])
    watches.pause(line.rt, row)
    assert "paused" in watches.poll_now(line.rt, Watch.get_by_id(row.id)).error


@pytest.mark.parametrize(("emit", "expected"), [("all", {"Old", "Delivered"}), ("none", {"Delivered"})])
def test_reset_emits_what_never_became_an_event_or_nothing(line, yt, emit, expected):
    yt.upload(yt.channels[0], "Old")
    line.run()
    yt.upload(yt.channels[0], "Delivered")
    line.wait(12)
    row = watches.find_watch(line.rt, yt.channels[0])
    watches.reset(line.rt, row, emit, dry_run=True)
    assert Watch.get_by_id(row.id).first_read_at is not None
    watches.reset(line.rt, row, emit)
    line.run()
    assert titles() == expected
    assert Event.select().count() == len(expected), "what was delivered is not delivered again"
    yt.upload(yt.channels[0], "After")
    line.wait(12)
    assert titles() == expected | {"After"}


def test_a_reset_is_not_undone_by_a_restart_before_its_read(build, yt):
    line = build()
    yt.upload(yt.channels[0], "Old")
    line.run()
    watches.reset(line.rt, watches.find_watch(line.rt, yt.channels[0]), "all")
    build().run()
    assert titles() == {"Old"}


# --- lists


def test_an_import_reports_every_line(line, yt):
    content = f"{yt.channels[0]}\n{yt.channels[1]} # new\n{yt.channels[1]}\nnonsense\n{yt.playlists[1]}\n".encode()
    dry = watches.import_list(line.rt, content, NOTHING, dry_run=True)
    assert Watch.select().count() == 2
    done = watches.import_list(line.rt, content, WatchOptions({"tags": ("imported",)}))
    results = ["known", "added", "known", "invalid", "added"]
    assert [entry.result for entry in dry] == results
    assert [(entry.line, entry.result) for entry in done] == list(enumerate(results, 1))
    row = Watch.get(ref=yt.channels[1])
    assert (row.origin, json.loads(row.tags_json)) == ("command", ["imported"])


def test_a_takeout_gives_names(line):
    done = watches.import_list(line.rt, (DATA / "takeout_ja.csv").read_bytes(), NOTHING)
    assert [entry.result for entry in done] == ["added", "added"]
    assert [entry.name for entry in done] == ["日本語チャンネル", "別のチャンネル"]


def test_a_dry_import_looks_nothing_up(line, yt):
    found = watches.import_list(line.rt, b"@somebody\n@somebody_else\n", NOTHING, dry_run=True)
    assert [entry.error for entry in found] == ["not looked up in a dry run: that costs a unit"] * 2
    assert api_units.used(line.rt.now()) == 0


def test_an_export_is_an_import_for_somebody_else(line, yt):
    watches.add(line.rt, yt.channels[1], WatchOptions({"name": 'Quotes " & <b>'}))
    text = watches.export_list(line.rt)
    assert f"channel_id={yt.channels[1]}" in text
    assert f"playlist_id={yt.playlists[0]}" in text
    again = watches.import_list(line.rt, text.encode(), NOTHING)
    assert [entry.result for entry in again] == ["known"] * 3


def test_an_export_keeps_the_options_of_each_watch(line, yt):
    given = {"name": "Mine", "tags": ["a", "b"], "poll_interval_seconds": 120.0, "include": ["video"]}
    watches.add(line.rt, yt.channels[1], WatchOptions({**given, "title": {"match": "[Ll]ive", "not": None}}))
    before = watch_admin.find("youtube_channel_rss", yt.channels[1])
    options = watch_options.options_of(line.rt, before)
    text = watches.export_list(line.rt, partial(watch_options.options_of, line.rt))
    watches.remove(line.rt, before)
    done = watches.import_list(line.rt, text.encode(), NOTHING)
    assert [entry.result for entry in done].count("added") == 1
    after = watch_admin.find("youtube_channel_rss", yt.channels[1])
    assert watch_options.options_of(line.rt, after) == options
    assert options["poll_interval_seconds"] == 120
    broken = text.replace("csi:options=", "csi:options='x' old=", 1)
    assert "csi:options is not a JSON object" in {
        one.error for one in watches.import_list(line.rt, broken.encode(), NOTHING)
    }


def test_a_watch_is_described_in_a_stable_shape(line, yt):
    line.run()
    first = WatchJson.of_rows(line.rt, watch_admin.every())[0].model_dump()
    assert set(first) >= {
        *("id", "source", "ref", "name", "origin", "state", "health", "via", "errors", "last_error", "note", "url"),
        *("interval_seconds", "planned_interval_seconds", "last_poll_at", "last_success_at", "next_poll_at", "filters"),
    }
    json.dumps(first)


# --- change options


def added(line, yt, **options):
    return Watch.get_by_id(watches.add(line.rt, yt.channels[1], WatchOptions(options)).watch_id)


def test_options_are_changed_one_by_one_and_given_back_to_the_source(line, yt):
    row = added(line, yt, name="Second", tags=("a",), poll_interval_seconds="2m")
    done = watch_options.change(line.rt, row, {"poll_interval_seconds": "15m", "title": {"not": "(?i)trailer"}})
    assert [one.words for one in done] == [
        "interval from 120 s to 900 s", "title filter from the source's default to not (?i)trailer",
    ]  # fmt: skip
    row = Watch.get_by_id(row.id)
    assert (row.interval_seconds, row.name, json.loads(row.tags_json)) == (900, "Second", ["a"])
    assert json.loads(row.filters_json) == {"title": {"not": "(?i)trailer"}}
    watch_options.change(line.rt, row, {"poll_interval_seconds": None, "title": None})
    row = Watch.get_by_id(row.id)
    assert (row.interval_seconds, row.filters_json, row.own_interval) == (10, "{}", None)
    assert watch_options.options_of(line.rt, row) == {"name": "Second", "tags": ["a"]}


def test_a_shorter_interval_applies_to_the_next_poll(line, yt):
    row = added(line, yt, poll_interval_seconds="1h")
    line.run()
    watch_options.change(line.rt, Watch.get_by_id(row.id), {"poll_interval_seconds": "30s"})
    assert Watch.get_by_id(row.id).next_poll_at <= line.rt.now() + 30


def test_the_second_of_two_operators_is_told_what_the_first_one_changed(line, yt):
    row = added(line, yt, poll_interval_seconds="2m")
    seen, revision = watch_options.options_of(line.rt, row), watch_options.revision_of(line.rt, row)
    watch_options.change(line.rt, row, {"poll_interval_seconds": "5m"}, revision=revision)
    with pytest.raises(watch_options.WatchChangedMeanwhile, match="changed meanwhile: interval from 120 s to 300 s"):
        watch_options.change(line.rt, row, {"name": "Mine"}, revision=revision, seen=seen)
    assert Watch.get_by_id(row.id).name != "Mine"


def test_a_change_that_cannot_be_made_says_why(line, yt):
    row = added(line, yt)
    for given, said in (
        ({"poll_interval_seconds": "1ms"}, "poll_interval_seconds"), ({"route_profile": "explian"}, "explain"),
        ({"title": {"match": "("}}, "title"), ({"colour": "red"}, "does not apply"), ({"include": []}, "at least one"),
    ):  # fmt: skip
        with pytest.raises(WatchRefused, match=said):
            watch_options.change(line.rt, row, given)
    line.run()
    with pytest.raises(WatchRefused, match="was polled already"):
        watch_options.change(line.rt, Watch.get_by_id(row.id), {"first_poll": "all"})
    with pytest.raises(WatchRefused, match="was added by command"):
        watch_options.change(line.rt, Watch.get_by_id(row.id), {}, from_file=True)


def test_options_of_a_watch_that_release_1_0_0_added_are_read_from_its_columns(line, yt):
    row = added(line, yt, name="Second", tags=("a",), poll_interval_seconds="2m", include=["video"])
    Watch.update(options_json=None, own_interval=None).where(Watch.id == row.id).execute()
    expected = {"name": "Second", "tags": ["a"], "poll_interval_seconds": 120, "include": ["video"]}
    assert watch_options.options_of(line.rt, Watch.get_by_id(row.id)) == expected


# --- history of reads


def test_each_read_leaves_one_row_with_its_result(line, yt):
    line.run()
    watch = Watch.get(Watch.ref == yt.channels[0])
    yt.upload(yt.channels[0], "New")
    line.wait(12)
    yt.set_faults("feed:500", from_now=True)
    line.wait(12)
    reads = poll_history.of_watch(watch.id)
    assert [one.result for one in reads[:2]] == ["nothing_new", "new"]
    assert (reads[1].new_items, reads[-1].result, Watch.get_by_id(watch.id).reads) == (1, "failed", len(reads))
    assert "500" in reads[-1].error
