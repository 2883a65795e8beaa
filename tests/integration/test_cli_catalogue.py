"""`csi channels`, `videos`, `jobs` and `archive` as a person or a script uses them, against a simulated YouTube."""

import csv
import io
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from csi.catalog.catalog_jobs import HANDLERS, plan_jobs
from csi.errors import CsiError
from csi.jobs.run_job import run_next_job
from csi.simulator.youtube.world import SimulatedChannel
from csi.store import db
from csi.store.catalog import channels, jobs, stats, videos
from tests.fakes.youtube import SimulatedYouTube, simulated_youtube
from tests.rigs.operator import OperatorRig, operator_rig


@pytest.fixture
def yt() -> Iterator[SimulatedYouTube]:
    with simulated_youtube(channels=1, videos=3) as site:
        yield site


@pytest.fixture
def at(tmp_path: Path, yt: SimulatedYouTube) -> Iterator[OperatorRig]:
    api = {"api_base_url": yt.api_base_url}
    sources: dict[str, Any] = {
        "youtube_playlist": {"playlists": [], **api},
        "youtube_channel_rss": {"feed_url_template": yt.feed_url_template, "watchlist": [], **api},
    }
    with operator_rig(tmp_path, sources=sources) as built:
        yield built


@pytest.fixture
def channel(yt: SimulatedYouTube) -> SimulatedChannel:
    found = yt.world.channel(yt.channels[0])
    assert found is not None
    return found


def do_jobs(at: OperatorRig) -> None:
    plan_jobs(at.rt)
    while jobs.due(at.now, 1):
        run_next_job(at.rt, HANDLERS)


def test_a_channel_from_its_handle_to_its_hot_videos(at, channel):
    result = at.call("channels", "add", channel.handle, "--priority", "7")
    assert result.exit_code == 0, result.output
    assert f"({channel.id})" in result.stdout
    assert "feed: added" in result.stdout
    do_jobs(at)
    (row,) = at.json("channels", "list")["channels"]
    assert (row["id"], row["priority"], row["status"], row["video_count"]) == (channel.id, 7, "active", 3)
    assert row["daily_views"] is None, "nothing was counted before today"
    assert len(at.json("videos", "list", channel.id)["videos"]) == 3
    assert at.call("videos", "hot").exit_code == 0
    shown = at.json("channels", "show", channel.title)
    assert (shown["known_videos"], shown["feed"]["status"], shown["jobs"][0]["status"]) == (3, "active", "completed")
    video = at.json("videos", "show", videos.of_channel(channel.id)[0].id)
    assert video["view_count"] == video["stats"][0]["view_count"]
    assert "lease_token" not in shown["jobs"][0]


def test_a_handle_is_found_as_people_write_it(at, channel):
    at.call("channels", "add", channel.handle)
    for text in (channel.handle.upper(), f"https://www.youtube.com/{channel.handle.upper()}"):
        assert at.json("channels", "show", text)["id"] == channel.id
    db.run("UPDATE channels SET custom_url = ?", channel.handle.removeprefix("@"))
    assert at.json("channels", "show", channel.handle)["id"] == channel.id


def test_adding_twice_changes_nothing(at, channel):
    at.call("channels", "add", channel.id)
    assert at.json("channels", "add", channel.id)["result"] == "known"
    assert len(jobs.page()) == 1


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["channels", "add", "UC" + "z" * 22], "YouTube has no channel"),
        (["channels", "add", "PL" + "z" * 20], "this is a playlist"),
        (["channels", "add", "nonsense"], "is not a channel"),
        (["channels", "show", "UC" + "y" * 22], "is not in the catalogue"),
        (["videos", "show", "xxx"], "is not in the catalogue"),
        (["jobs", "show", "123"], "is not a job id"),
        (["jobs", "show", "0123456789"], "there is no job"),
        (["jobs", "enqueue", "NO_SUCH"], "there is no job type"),
        (["jobs", "enqueue", "BACKFILL_CHANNEL"], "needs a channel"),
        (["jobs", "enqueue", "REFRESH_HOT_VIDEOS", "--in", "31d"], "at most 30 days"),
        (
            ["jobs", "enqueue", "REFRESH_HOT_VIDEOS", "--video", "nobody1", "--video", "nobody2"],
            "and 1 others are not",
        ),
        (["channels", "add", "@nobody-of-that-name"], "YouTube has no handle"),
        (["archive", "restore", "nothing"], "there is no archive"),
        (["archive", "show", "nothing"], "there is no archive"),
    ],
    ids=lambda value: " ".join(value[:2]) if isinstance(value, list) else "",
)
def test_bad_input_is_one_sentence(at, arguments, said):
    result = at.call(*arguments)
    assert result.exit_code != 0
    assert said in str(result.exception), result.output
    assert isinstance(result.exception, CsiError)


def test_pause_resume_priority_and_backfill(at, channel):
    at.call("channels", "add", channel.id)
    do_jobs(at)
    assert "paused" in at.call("channels", "pause", channel.id).stdout
    assert "nothing changed" in at.call("channels", "pause", channel.id).stdout
    assert channels.find(channel.id).status == "paused"
    assert "catches up" in at.call("channels", "resume", channel.id).stdout
    assert "is active; nothing changed" in at.call("channels", "resume", channel.id).stdout
    at.call("channels", "priority", channel.id, "9")
    assert channels.find(channel.id).priority == 9
    assert at.json("channels", "backfill", channel.id)["duplicate"], "the catch-up is under way"
    do_jobs(at)
    assert not at.json("channels", "backfill", channel.id)["duplicate"]


def test_a_trend_as_table_json_and_csv(at, channel):
    at.call("channels", "add", channel.id)
    numbers = {"subscriber_count": 5, "video_count": 1, "view_count": 90, "daily_views": -3, "daily_subscribers": None}
    stats.save_channel(stats.make_channel_stats(channel.id, at.now - 86_400, daily_videos=0, **numbers))
    days = at.json("channels", "trend", channel.id, "--days", "90")["days"]
    assert (days[0]["view_count"], days[0]["daily_views"], days[0]["daily_subscribers"]) == (90, -3, None)
    rows = list(csv.DictReader(io.StringIO(at.call("channels", "trend", channel.id, "--csv").stdout)))
    assert (rows[0]["daily_views"], rows[0]["daily_subscribers"]) == ("-3", "")
    assert "–" in at.call("channels", "trend", channel.id).stdout
    assert at.call("channels", "trend", channel.id, "--csv", "--json").exit_code == 2


def test_jobs_are_listed_shown_cancelled_and_retried(at, channel):
    job = at.json("channels", "add", channel.id)["job"]
    assert job[:13] in at.call("jobs", "list", "--status", "pending").stdout
    assert at.call("jobs", "cancel", job[-8:], "--dry-run").exit_code == 0
    assert jobs.find(job).status == "pending"
    assert at.call("jobs", "cancel", job[-8:], "--yes").exit_code == 0
    assert [row["id"] for row in at.json("jobs", "dead")["jobs"]] == [job]
    assert "nothing to cancel" in str(at.call("jobs", "cancel", job, "--yes").exception)
    assert at.call("jobs", "retry", job).exit_code == 0
    assert "only a failed, dead or postponed job" in str(at.call("jobs", "retry", job).exception)
    history = at.json("jobs", "show", job)["history"]
    assert [event["event_type"] for event in history] == ["dead_lettered", "retried"]


def test_a_job_is_enqueued_for_later_and_once(at):
    first = at.json("jobs", "enqueue", "REFRESH_CHANNEL_STATS", "--in", "2h", "--priority", "3")
    again = at.json("jobs", "enqueue", "REFRESH_CHANNEL_STATS", "--in", "3h")
    assert (first["duplicate"], again["duplicate"], again["job"]["id"]) == (False, True, first["job"]["id"])
    assert at.now + 7_000 < jobs.find(first["job"]["id"]).scheduled_at < at.now + 8_000
    assert at.call("jobs", "retry", first["job"]["id"]).exit_code == 0
    assert jobs.find(first["job"]["id"]).scheduled_at <= at.now


def test_old_rows_become_files_and_come_back(at, channel):
    at.call("channels", "add", channel.id)
    do_jobs(at)
    db.run("UPDATE video_stats SET captured_at = captured_at - ?", 400 * 86_400)
    assert "would be archived video_stats: 3" in at.call("archive", "run", "--dry-run").stdout
    assert at.json("archive", "list")["archives"] == []
    assert "archived video_stats: 3" in at.call("archive", "run", "--yes").stdout
    (book,) = at.json("archive", "list")["archives"]
    assert book["rows"] == 3
    assert len(at.call("archive", "show", book["name"]).stdout.splitlines()) == 3
    assert at.json("archive", "restore", book["name"])["rows"] == 3
    assert db.fetch("SELECT COUNT(*) FROM video_stats") == [(3,)]


def test_the_units_that_a_day_needs_are_told(at, channel):
    at.call("channels", "add", channel.id)
    do_jobs(at)
    result = at.call("channels", "list")
    assert "of 3,000 API units a day" in result.stderr


def test_the_catalogues_share_is_in_the_quota(at, channel):
    at.call("channels", "add", channel.id)
    do_jobs(at)
    told = at.json("quota")["catalogue"]
    assert (told["limit"], told["short"]) == (3_000, False)
    assert told["used"] == sum(job.units for job in jobs.page()) + 1, "one for the look at the channel"
    assert told["needed_a_day"] == at.json("channels", "list")["units_a_day"]
    assert f"catalogue {told['used']} of its 3,000 units used" in at.call("quota").output


def test_an_answers_own_words_are_told_without_secrets(at):
    jobs.enqueue(jobs.NewCatalogJob("RSS_POLL_CHANNEL", "k"), at.now)
    jobs.mark_dead(jobs.claim(at.now), "refused: X-Goog-Api-Key: AIzaSyA1234567890abcdefghijklmnopqrstuv", at.now)
    job = jobs.page()[0].id
    for command in (
        ["jobs", "dead"],
        ["jobs", "dead", "--json"],
        ["jobs", "show", job],
        ["jobs", "show", job, "--json"],
    ):
        result = at.call(*command)
        assert "refused" in result.output
        assert "AIzaSy" not in result.output, command


# ── many at once, lists, figures across channels ────────────────────────────────────────────────────────


def more_channels(yt: SimulatedYouTube, number: int) -> list[SimulatedChannel]:
    return [yt.world.add_channel(f"More {place}", at=1.0) for place in range(number)]


def test_many_channels_are_added_paused_and_removed_at_once(at, yt, channel):
    ids = [channel.id, *(one.id for one in more_channels(yt, 2))]
    result = at.call("channels", "add", *ids, "@nobodyhere", "--no-watch")
    assert result.exit_code == 5
    assert "@nobodyhere" in result.stderr
    assert [row["id"] for row in at.json("channels", "list")["channels"]] == sorted(
        ids, key=lambda ref: yt.world.channel(ref).title
    )
    assert at.call("channels", "pause", *ids).exit_code == 0
    assert {row["status"] for row in at.json("channels", "list")["channels"]} == {"paused"}
    assert at.call("channels", "remove", *ids[:2], "--yes").exit_code == 0
    assert [row["id"] for row in at.json("channels", "list")["channels"]] == ids[2:]


def test_a_list_is_imported_and_every_bad_row_is_reported(at, yt, channel, tmp_path):
    good = more_channels(yt, 2)
    file = tmp_path / "subscriptions.csv"
    file.write_text(
        "Channel Id,Channel Url,Channel Title\n"
        f"{good[0].id},http://www.youtube.com/channel/{good[0].id},Named here\n"
        "UCnotanid,http://www.youtube.com/channel/UCnotanid,Broken\n"
        f"{good[1].id},http://www.youtube.com/channel/{good[1].id},Other\n"
        f"{good[1].id},http://www.youtube.com/channel/{good[1].id},Other\n"
        f"UC{'z' * 22},http://www.youtube.com/channel/UC{'z' * 22},Gone\n"
    )
    planned = at.json("channels", "import", str(file), "--dry-run", code=5)
    assert (planned["added"], planned["known"], planned["invalid"]) == (3, 1, 1)
    assert at.json("channels", "list")["channels"] == []
    found = at.json("channels", "import", str(file), "--no-watch", code=5)
    assert [line["result"] for line in found["lines"]] == ["added", "invalid", "added", "known", "invalid"]
    assert all(line["error"] for line in found["lines"] if line["result"] == "invalid")
    assert {row["id"] for row in at.json("channels", "list")["channels"]} == {one.id for one in good}
    opml = tmp_path / "list.opml"
    feed = f"https://www.youtube.com/feeds/videos.xml?channel_id={channel.id}"
    opml.write_text(f'<opml version="2.0"><body><outline text="A" xmlUrl="{feed}"/></body></opml>')
    assert at.json("channels", "import", str(opml))["added"] == 1
    assert at.call("channels", "import", str(file), "--priority", "11").exit_code == 2


def test_channels_videos_and_captures_are_exported_as_csv(at, yt, channel, tmp_path):
    at.call("channels", "add", channel.id)
    do_jobs(at)
    db.run("UPDATE videos SET title = '=HYPERLINK(1)'")
    rows = list(csv.DictReader(io.StringIO(at.call("channels", "export", "--of", "videos").stdout)))
    assert len(rows) == 3
    assert {row["title"] for row in rows} == {"'=HYPERLINK(1)"}
    assert rows[0]["published_at"].endswith("Z")
    out = tmp_path / "captures.csv"
    assert at.call("channels", "export", "--of", "captures", "--channel", channel.id, "--out", str(out)).exit_code == 0
    assert [row["view_count"] for row in csv.DictReader(out.open())]
    assert (
        at.call("channels", "export", "--of", "channel-captures", "--days", "1").stdout.splitlines()[1].count(",") == 9
    )
    assert at.call("channels", "export", "--format", "parquet").exit_code == 2
    assert at.call("channels", "export", "--out", str(tmp_path / "no" / "such.csv")).exit_code == 1


@pytest.mark.parametrize("kind", ["channels", "videos", "captures", "channel-captures"])
def test_an_export_as_parquet_has_types(at, channel, tmp_path, kind):
    parquet = pytest.importorskip("pyarrow.parquet")
    at.call("channels", "add", channel.id)
    do_jobs(at)
    out = tmp_path / "rows.parquet"
    result = at.call("channels", "export", "--of", kind, "--format", "parquet", "--out", str(out))
    assert result.exit_code == 0, result.output
    table = parquet.read_table(out)
    assert table.num_rows == {"channels": 1, "videos": 3, "captures": 3, "channel-captures": 1}[kind]
    assert str(table.schema.field("view_count").type) == "int64"
    times = [field for field in table.schema if field.name.endswith("_at")]
    assert {str(field.type) for field in times} == {"timestamp[ms, tz=UTC]"}
    assert [path.name for path in tmp_path.glob(".*part")] == []


def test_parquet_without_its_extra_says_what_to_install(at, channel, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    result = at.call("channels", "export", "--format", "parquet", "--out", str(tmp_path / "x"))
    assert "creator-signals[parquet]" in str(result.exception)


def test_channels_are_compared_and_movers_listed(at, yt, channel):
    other = more_channels(yt, 1)[0]
    at.call("channels", "add", channel.id, other.id, "--no-watch")
    do_jobs(at)
    found = at.json("channels", "compare", channel.id, other.id, "--measure", "video_count")
    assert found["days"][-1]["values"] == [3, 0]
    assert "2 to 10" in str(at.call("channels", "compare", channel.id).exception)
    assert at.json("videos", "movers") == {"videos": [], "channels": []}
    db.run("UPDATE video_stats SET daily_views = 50")
    assert len(at.json("videos", "movers", "--limit", "2")["videos"]) == 2
    assert at.call("videos", "movers", "--channels").exit_code == 0
