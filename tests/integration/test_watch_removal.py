"""A configuration that loses watches: few are removed and reported, most are held until the operator accepts it."""

import json

import pytest
import yaml
from click.testing import CliRunner

from csi.cli.main import cli
from csi.pipeline import poll, schedule
from csi.runtime import load_settings, open_runtime
from csi.status.alert_overview import firing
from csi.status.verdict import verdict
from csi.store import db, held_removals, incidents, watches
from csi.worker.reload import reload
from tests.fakes.scripted_receiver import SECRET
from tests.rigs.in_process import InProcessPipeline

ENV = {"CSI_UA_ENDPOINT": "http://127.0.0.1:9/ingest", "CSI_UA_SHARED_SECRET": SECRET}
SOURCE = "youtube_channel_rss"
CHANNELS = [f"UC{letter * 22}" for letter in "abcde"]


def block(refs, **more):
    return {"watchlist": [{"channel_id": ref, "name": f"Channel {ref[2]}"} for ref in refs], **more}


@pytest.fixture
def line(tmp_path, clock):
    with db.connection():
        yield InProcessPipeline(tmp_path, clock, ENV["CSI_UA_ENDPOINT"], sources={SOURCE: block(CHANNELS)})


def change(line, **sources):
    """Write the file with these sources; returns what loads it."""
    path = line.rt.settings.csi.state_dir.parent / "config.yaml"
    config = yaml.safe_load(path.read_text()) | {"sources": sources}
    path.write_text(yaml.safe_dump(config))
    return lambda: load_settings(path, ENV)


def restart(line):
    """A new process on the same rows."""
    rt = open_runtime(line.rt.settings.csi.state_dir.parent / "config.yaml", ENV)
    rt.now = line.clock
    schedule.sync_watches(rt)
    return rt


def active():
    return {watch.ref for watch in watches.active()}


def problems(rt):
    return {one.id: one for one in verdict(rt).problems if one.id in ("removal_held", "watches_removed")}


def test_a_reload_that_removes_few_watches_is_an_incident_with_their_names(line):
    fresh = reload(line.rt, change(line, **{SOURCE: block(CHANNELS[:3])}))
    assert active() == set(CHANNELS[:3])
    one = problems(fresh)["watches_removed"]
    assert one.what == f"{SOURCE}: 2 watches were removed by a new configuration: Channel d, Channel e"
    assert one.is_proven
    assert one in firing(fresh)


def test_two_removals_before_the_acknowledgement_are_one_incident_with_all_names(line, clock):
    rt = reload(line.rt, change(line, **{SOURCE: block(CHANNELS[:4])}))
    clock.move(600)
    rt = reload(rt, change(line, **{SOURCE: block(CHANNELS[:3])}))
    (one,) = incidents.unacknowledged()
    assert one.what.endswith("2 watches were removed by a new configuration: Channel d, Channel e")


def test_the_incident_is_over_when_the_watches_are_back(line, clock):
    rt = reload(line.rt, change(line, **{SOURCE: block(CHANNELS[:4])}))
    clock.move(60)
    rt = reload(rt, change(line, **{SOURCE: block(CHANNELS)}))
    assert problems(rt) == {}


@pytest.mark.parametrize("start", [lambda line, load: reload(line.rt, load), lambda line, load: restart(line)])
def test_most_watches_are_held_and_polled_until_the_operator_accepts(line, clock, start):
    load = change(line, **{SOURCE: block(CHANNELS[:1])})
    rt = start(line, load)
    assert active() == set(CHANNELS)
    one = problems(rt)["removal_held"]
    assert one.what == "the configuration no longer has 4 of 5 watches: Channel b, Channel c, Channel d, Channel e"
    assert (one.is_proven, one.since, one.commands) == (True, clock(), ["csi config accept"])
    since = clock()
    clock.move(3600)
    rt = restart(line)
    assert problems(rt)["removal_held"].since == since, "the decision is in the rows"
    assert len(schedule.plan(rt)) == 5
    assert accept(line) == 4
    assert active() == {CHANNELS[0]}
    assert problems(rt) == {}
    restart(line)
    assert active() == {CHANNELS[0]}


def accept(line, *options):
    path = line.rt.settings.csi.state_dir.parent / "config.yaml"
    done = CliRunner().invoke(cli, ["config", "accept", "--config", str(path), "--json", *options], env=ENV)
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)["removed"]


def test_a_dry_run_of_the_acceptance_removes_nothing(line):
    restart_with = change(line, **{SOURCE: block(CHANNELS[:1])})
    reload(line.rt, restart_with)
    assert accept(line, "--dry-run") == 0
    assert len(active()) == 5


def test_watches_that_are_put_back_are_not_held_any_more(line):
    rt = reload(line.rt, change(line, **{SOURCE: block(CHANNELS[:1])}))
    rt = reload(rt, change(line, **{SOURCE: block(CHANNELS)}))
    assert (problems(rt), held_removals.current().watches) == ({}, ())
    assert active() == set(CHANNELS)


@pytest.mark.parametrize("restarts", [False, True])
def test_watches_of_a_source_that_the_file_lost_are_polled_with_its_last_settings(line, restarts, monkeypatch):
    settings = {"poll_interval_seconds": 120, "feed_url_template": "http://127.0.0.1:9/{channel_id}", "via": "feed"}
    rt = reload(line.rt, change(line, **{SOURCE: block(CHANNELS, **settings)}))
    rt = reload(rt, change(line))
    if restarts:
        rt = restart(line)
    assert active() == set(CHANNELS)
    assert rt.settings.sources[SOURCE].poll_interval_seconds == 120
    assert rt.enabled_sources() == [SOURCE]
    (first, *_) = watches.active()
    assert list(poll.poll(rt, first.id))
    assert "127.0.0.1" in watches.find(first.id).host
    assert watches.find(first.id).errors == 1, "it was read: nothing listens there"
    rt = reload(rt, change(line, **{SOURCE: block(CHANNELS, poll_interval_seconds=60)}))
    assert (rt.held_sources, rt.settings.sources[SOURCE].poll_interval_seconds) == (frozenset(), 60)


def test_the_incident_stays_although_time_passes_during_the_reload(line):
    line.rt.now = lambda: line.clock.move(0.01)
    rt = reload(line.rt, change(line, **{SOURCE: block(CHANNELS[:3])}))
    assert "Channel d, Channel e" in problems(rt)["watches_removed"].what


def test_a_source_that_is_switched_off_is_no_mistake(line):
    rt = reload(line.rt, change(line, **{SOURCE: block(CHANNELS, enabled=False)}))
    assert (active(), problems(rt)) == (set(), {})


def test_one_watch_of_one_is_removed_and_reported(line):
    rt = reload(line.rt, change(line, **{SOURCE: block(CHANNELS[:3])}))
    rt = reload(rt, change(line, **{SOURCE: block(CHANNELS[:2])}))
    rt = reload(rt, change(line, **{SOURCE: block(CHANNELS[:1])}))
    rt = reload(rt, change(line, **{SOURCE: block([])}))
    assert (active(), set(problems(rt))) == (set(), {"watches_removed"})


def test_the_first_start_on_an_empty_database_removes_nothing(line):
    assert problems(line.rt) == {}


def test_watches_added_by_command_are_never_removed_by_the_configuration(line):
    db.run("UPDATE watches SET origin = 'command'")
    rt = reload(line.rt, change(line))
    assert (active(), problems(rt)) == (set(CHANNELS), {})
