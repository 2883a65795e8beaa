"""The parallel run and the cut-over: who saw what, and nothing is sent twice."""

import json

import pytest
from click.testing import CliRunner

from csi.admin import parallel_run
from csi.admin.old_poller_log import Sighting
from csi.cli.compare import compare as command
from csi.store import db
from tests.fakes.scripted_receiver import ScriptedReceiver
from tests.fakes.youtube import simulated_youtube
from tests.rigs.in_process import InProcessPipeline


@pytest.fixture
def scene(tmp_path, clock):
    """A playlist and a channel, read for the first time with nothing in them."""
    with simulated_youtube(playlists=2, channels=1, now=clock) as yt, ScriptedReceiver() as ua, db.connection():
        sources = {
            "youtube_playlist": {
                "api_base_url": yt.api_base_url,
                "playlists": [{"id": ref} for ref in yt.playlists],
                "first_poll": "all",
            },
            "youtube_channel_rss": {
                "feed_url_template": yt.feed_url_template,
                "watchlist": [{"channel_id": ref} for ref in yt.channels],
                "first_poll": "all",
            },
        }
        line = InProcessPipeline(tmp_path, clock, ua.url, sources=sources, delivery={"canonical_json": "ascii"})
        line.run()
        line.yt, line.ua, line.config = yt, ua, tmp_path / "config.yaml"
        yield line


def results(found):
    return {one.video: (one.result, one.csi) for one in found.seen}


def test_what_each_side_saw_and_missed(scene, clock):
    both, mine = (scene.yt.add(scene.yt.playlists[0], title) for title in ("both", "mine"))
    scene.wait(60)
    theirs = [Sighting(both, None, clock() + 30), Sighting("0nlyTheirs0")]
    found = parallel_run.compare(scene.rt, theirs, sources=["youtube_playlist"])
    assert results(found) == {
        both: ("both", "delivered"),
        "0nlyTheirs0": ("only_old", None),
        mine: ("only_csi", "delivered"),
    }
    assert found.median_ahead > 30


def test_only_what_was_seen_since_counts(scene, clock):
    old = scene.yt.add(scene.yt.playlists[0], "old")
    scene.wait(60)
    clock.move(86_400)
    new = scene.yt.add(scene.yt.playlists[0], "new")
    scene.wait(400)
    theirs = [Sighting("0nlyTheirs0", None, clock() - 80_000)]
    found = parallel_run.compare(scene.rt, theirs, since=clock() - 3600)
    assert results(found) == {new: ("only_csi", "delivered")}
    assert old not in results(found)
    earlier = Sighting(new, None, clock() - 3700)
    assert results(parallel_run.compare(scene.rt, [earlier], since=clock() - 3600)) == {}


def test_the_cut_over_sends_nothing_twice(scene):
    """The old poller has sent it; we see it only afterwards."""
    video = scene.yt.add(scene.yt.playlists[0], "sent by the old one")
    done = parallel_run.take_over(scene.rt, [Sighting(video)])
    assert (done.videos, done.new_keys, done.pending) == (1, 3, 0)
    other = scene.yt.add(scene.yt.playlists[0], "new")
    scene.wait(400)
    sent = [event_id for request in scene.ua.requests for event_id in request.event_ids]
    assert [other in event_id for event_id in sent] == [True]
    assert parallel_run.take_over(scene.rt, [Sighting(video)]).new_keys == 0


def test_a_list_that_the_old_poller_names_is_the_only_one_taken_over(scene, clock):
    first, second = scene.yt.playlists
    video = scene.yt.add(first, "in both lists")
    assert parallel_run.take_over(scene.rt, [Sighting(video, first)], sources=["youtube_playlist"]).new_keys == 1
    scene.yt.world.add_to_playlist(second, video, at=clock())
    scene.wait(400)
    assert db.fetch("SELECT dedupe_key FROM events") == [(f"youtube:video:{video}:{second}",)]


def test_what_waited_while_delivery_was_off_is_not_sent_any_more(scene, clock):
    """The parallel run with `features.delivery: false`: everything is pending at the cut-over."""
    video, mine = (scene.yt.add(scene.yt.playlists[0], title) for title in ("theirs", "mine"))
    scene.clock.move(60)
    scene.run_without_delivery()
    done = parallel_run.take_over(scene.rt, [Sighting(video)])
    assert done.pending == 1
    scene.wait(120)
    sent = [event_id for request in scene.ua.requests for event_id in request.event_ids]
    assert [video in event_id for event_id in sent] == [False]
    assert [mine in event_id for event_id in sent] == [True]
    letter = "SELECT state, result, error_reason FROM dead_letter"
    assert db.fetch(letter) == [("discarded", "taken over", "another poller has sent it")]
    assert db.fetch("SELECT value FROM counters WHERE name = 'events' AND label = 'dlq'") == []


@pytest.fixture
def run(scene, monkeypatch):
    environment = {
        "CSI_UA_ENDPOINT": scene.ua.url,
        "CSI_UA_SHARED_SECRET": "csi-test-secret",
        "YOUTUBE_API_KEY": "demo-key",
    }
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    db.database.close()

    def invoke(*arguments, text=None):
        return CliRunner().invoke(command, ["--config", str(scene.config), *arguments], input=text)

    return invoke


def test_the_command_counts_lists_and_ends_with_1_when_something_was_missed(run, scene, tmp_path):
    done = run("-", text="0nlyTheirs0\n")
    assert (done.exit_code, "missed by CSI" in done.output, "0nlyTheirs0" in done.output) == (1, True, True)
    told = json.loads(run("--json", "-", text="0nlyTheirs0\n").output)
    assert told["only_old"] == 1
    assert told["videos"] == [{"video_id": "0nlyTheirs0", "result": "only_old", "csi": None, "csi_ahead_seconds": None}]
    assert run("--take-over", "-", text="0nlyTheirs0\n").exit_code == 2, "nobody is there to answer"
    dry = json.loads(run("--take-over", "--dry-run", "--json", "-", text="0nlyTheirs0\n").output)
    assert dry == {"dry_run": True, "videos": 1, "new_keys": 3, "pending_dropped": 0}
    assert run("--take-over", "--yes", "-", text="0nlyTheirs0\n").exit_code == 0
    assert run("-", text="0nlyTheirs0\n").exit_code == 0


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("/nowhere/old.log",), "cannot be read"),
        (("--dry-run", "-"), "needs --take-over"),
        (("--source", "youtube_plylist", "-"), "no watch can be compared"),
        (("--since", "soon", "-"), "soon"),
    ],
    ids=["no file", "dry run alone", "no such source", "no time"],
)
def test_what_cannot_be_compared_is_said(run, arguments, words):
    done = run(*arguments, text="0nlyTheirs0\n")
    assert done.exit_code != 0
    assert words in done.output + str(done.exception)
