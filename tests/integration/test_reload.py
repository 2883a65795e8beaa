"""A new configuration for a running worker: taken whole, or refused with the old one in place."""

import pytest
import yaml

from csi.errors import ConfigError
from csi.runtime import load_settings
from csi.status.alert_overview import firing
from csi.store import counters, db, reload_results, watches
from csi.worker.reload import FIXED, changed_fixed, note_start, reload
from tests.fakes.scripted_receiver import SECRET
from tests.rigs.in_process import InProcessPipeline

ENV = {"CSI_UA_ENDPOINT": "http://127.0.0.1:9/ingest", "CSI_UA_SHARED_SECRET": SECRET, "YOUTUBE_API_KEY": "demo-key"}


@pytest.fixture
def line(tmp_path, clock):
    source = {"playlists": [{"id": "PLone"}], "poll_interval_seconds": 30}
    with db.connection():
        yield InProcessPipeline(tmp_path, clock, ENV["CSI_UA_ENDPOINT"], sources={"youtube_playlist": source})


def loader(line, change):
    """What the file says after an edit."""
    path = line.rt.settings.csi.state_dir.parent / "config.yaml"

    def load():
        config = yaml.safe_load(path.read_text())
        change(config)
        path.write_text(yaml.safe_dump(config))
        return load_settings(path, ENV)

    return load


def names(trouble):
    return {one.id for one in trouble}


def test_new_watches_and_intervals_are_taken_without_a_restart(line):
    def change(config):
        config["sources"]["youtube_playlist"]["playlists"] = [
            {"id": "PLone", "poll_interval_seconds": 60},
            {"id": "PL2"},
        ]
        config["delivery"] = {"max_concurrent_requests": 2}

    fresh = reload(line.rt, loader(line, change))
    assert fresh is not line.rt
    assert fresh.settings.delivery.max_concurrent_requests == 2
    assert fresh.destinations["default"].max_concurrent_requests == 2
    assert {watch.ref: watch.interval_seconds for watch in watches.active()} == {"PLone": 60, "PL2": 30}
    assert reload_results.last().error is None
    assert counters.all_of("config_reloads") == {("", "loaded"): 1}


def test_a_removed_watch_is_not_read_any_more(line):
    fresh = reload(line.rt, loader(line, lambda config: config["sources"].pop("youtube_playlist")))
    assert watches.active() == []
    assert fresh.enabled_sources() == []


def broken(config):
    config["delivery"] = {"timeout_seconds": "soon"}


def test_a_bad_configuration_is_refused_and_the_old_one_stays(line, clock):
    assert reload(line.rt, loader(line, broken)) is line.rt
    assert [watch.ref for watch in watches.active()] == ["PLone"]
    assert "delivery.timeout_seconds" in reload_results.last().error
    assert counters.all_of("config_reloads") == {("", "refused"): 1}
    assert "reload_refused" in names(firing(line.rt))


def test_a_missing_secret_is_refused_too(line):
    path = line.rt.settings.csi.state_dir.parent / "config.yaml"
    without = {name: value for name, value in ENV.items() if name != "CSI_UA_SHARED_SECRET"}
    assert reload(line.rt, lambda: load_settings(path, without)) is line.rt
    assert "CSI_UA_SHARED_SECRET" in reload_results.last().error


def test_a_notification_url_that_is_none_is_refused_and_not_shown(line):
    pytest.importorskip("apprise", reason="needs the extra creator-signals[notify]")
    path = line.rt.settings.csi.state_dir.parent / "config.yaml"
    assert reload(line.rt, lambda: load_settings(path, ENV | {"CSI_NOTIFY_URLS": "nosuch://canary"})) is line.rt
    assert "CSI_NOTIFY_URLS" in reload_results.last().error
    assert "canary" not in reload_results.last().error


@pytest.mark.parametrize("mend", [note_start, lambda rt: reload(rt, lambda: rt.settings)], ids=["restart", "reload"])
def test_the_trouble_is_over_when_a_configuration_was_taken(line, mend):
    reload(line.rt, loader(line, broken))
    mend(line.rt)
    assert "reload_refused" not in names(firing(line.rt))


def test_what_needs_a_restart_stays_and_the_rest_is_taken(line):
    def change(config):
        config["csi"] |= {"state_dir": "/elsewhere", "instance_id": "renamed"}
        config["web"] = {"port": 9999}

    fresh = reload(line.rt, loader(line, change))
    assert fresh.settings.csi.instance_id == "renamed"
    assert fresh.settings.csi.state_dir == line.rt.settings.csi.state_dir
    assert fresh.settings.web.port == line.rt.settings.web.port


def test_every_key_that_is_called_fixed_exists(line):
    assert changed_fixed(line.rt.settings, line.rt.settings) == []
    for key in FIXED:
        block, _, name = key.partition(".")
        assert name in type(getattr(line.rt.settings, block)).model_fields


def test_only_the_last_attempts_are_kept(line):
    for second in range(130):
        reload_results.note(float(second), "no")
    assert db.fetch("SELECT COUNT(*), MAX(at) FROM reloads") == [(100, 129.0)]


def test_an_error_of_the_loader_is_told_without_its_secrets(line):
    def load():
        raise ConfigError(f"something with {SECRET} in it")

    reload(line.rt, load)
    assert SECRET not in reload_results.last().error
