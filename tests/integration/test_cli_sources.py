"""`csi sources` and `csi quota` as a person or a script sees them."""

import json
import os
from pathlib import Path

import pytest
import yaml
from click.testing import CliRunner, Result

from csi import clock
from csi.cli.main import cli
from csi.cli.output import ago, columns, plain, table
from csi.errors import CsiError
from csi.store import api_units, db
from csi.store.models import Watch

DATA = Path(__file__).parents[1] / "data" / "imports"
UC = [f"UC{number:022d}" for number in range(5)]
PL = [f"PL{number:016d}" for number in range(5)]


@pytest.fixture
def home(tmp_path: Path) -> Path:
    config = {
        "csi": {"state_dir": str(tmp_path / "state"), "log_level": "ERROR"},
        "sources": {
            "youtube_playlist": {"playlists": [{"id": PL[0], "name": "A list"}], "api_base_url": "http://127.0.0.1:9/"},
            "youtube_channel_rss": {
                "watchlist": [{"channel_id": UC[0], "name": "A channel"}],
                "feed_url_template": "http://127.0.0.1:9/{channel_id}",
                "api_base_url": "http://127.0.0.1:9/",
            },
        },
        "route_profiles": {"explain": {"pipeline": "explainer"}},
    }
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(config))
    return tmp_path


@pytest.fixture
def call(home: Path):
    def run(*arguments: str, given: str | bytes | None = None, **env: str) -> Result:
        clean = {name: None for name in os.environ if name.startswith(("CSI_", "YOUTUBE_"))}
        place = {"CSI_CONFIG_PATH": str(home / "config.yaml"), "YOUTUBE_API_KEY": "canary-key"}
        return CliRunner().invoke(cli, list(arguments), env={**clean, **place, **env}, input=given)

    return run


def rows(call) -> dict[str, dict]:
    result = call("sources", "list", "--json")
    assert result.exit_code == 0, result.output
    return {row["ref"]: row for row in json.loads(result.stdout)["watches"]}


def test_the_list_shows_what_the_configuration_wants_before_any_worker_ran(call):
    result = call("sources", "list")
    lines = result.stdout.splitlines()
    assert lines[0].split()[:6] == ["NO", "SOURCE", "REF", "NAME", "FROM", "STATE"]
    assert any(f"channel   {UC[0]}" in line and "config" in line and "active" in line for line in lines)
    assert "2 watches: 2 from the configuration, 0 added by command; 0 paused" in result.stderr


def test_the_json_has_a_stable_shape(call):
    row = rows(call)[PL[0]]
    assert (row["source"], row["origin"], row["state"], row["health"]) == (
        "youtube_playlist",
        "config",
        "active",
        "new",
    )
    assert row["url"] == f"https://www.youtube.com/playlist?list={PL[0]}"
    assert row["last_success_at"] is None
    assert row["next_poll_at"].endswith("Z")


def test_add_says_what_it_costs_and_what_the_first_read_does(call):
    result = call("sources", "add", UC[1], "--name", "Second", "--tag", "a", "--tag", "b", "--route-profile", "explain")
    assert result.exit_code == 0, result.output
    assert f"watching the channel {UC[1]} (Second)" in result.stdout
    assert "costs no API units" in result.stdout
    assert "the first poll emits nothing" in result.stdout
    row = rows(call)[UC[1]]
    assert (row["origin"], row["tags"], row["route_profile"]) == ("command", ["a", "b"], "explain")
    listed = call("sources", "add", PL[1], "--first-poll", "last:3", "--interval", "1m").stdout
    assert "costs 288 to 1,440 API units a day" in listed
    assert "the newest 3" in listed


def test_add_with_filters_and_as_json(call):
    options = ["--include", "video,live", "--title-not", "(?i)ad", "--min-duration", "1m", "--via", "both", "--json"]
    result = json.loads(call("sources", "add", UC[1], *options).stdout)
    assert (result["result"], result["lookup_units"], result["units_per_day"]) == (
        "added",
        0,
        {"least": 24, "most": 24},
    )
    stored = rows(call)[UC[1]]
    assert stored["filters"] == {"include": ["video", "live"], "title": {"not": "(?i)ad"}, "min_duration_seconds": 60}
    assert stored["via"] == "both"


def test_a_dry_run_changes_nothing(call):
    assert "would watch the channel" in call("sources", "add", UC[1], "--dry-run").stdout
    call("sources", "add", UC[2])
    before = rows(call)
    assert "would be removed" in call("sources", "remove", UC[2], "--dry-run").stdout
    assert "would be paused" in call("sources", "pause", UC[0], "--dry-run").stdout
    assert "would be reset" in call("sources", "reset", UC[0], "--emit", "all", "--dry-run").stdout
    assert "would poll" in call("sources", "poll", UC[0], "--dry-run").stdout
    assert "3 would be added" in call("sources", "import", str(DATA / "takeout_en.csv"), "--dry-run").stdout
    after = rows(call)
    for row in (*before.values(), *after.values()):
        del row["next_poll_at"]
    assert after == before


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["add", "nonsense"], 2, "is not a channel, playlist or video"),
        (["add", "UCaaa"], 2, "give the channel's @handle or its URL"),
        (["add", "PLxxx"], 2, "give the playlist's URL"),
        (["add", UC[1], "--route-profile", "explian"], 1, "did you mean explain?"),
        (["add", UC[1], "--title-match", "["], 1, "expected a regular expression"),
        (["add", UC[1], "--interval", "0"], 1, "1 second to 7 days"),
        (["add", UC[1], "--first-poll", "last:x"], 1, "mark_seen, all, or last: N"),
        (["remove", UC[0], "--yes"], 1, "is in the configuration"),
        (["remove", UC[4], "--yes"], 1, "there is no watch"),
        (["pause", "a watch that is not there"], 1, "there is no watch"),
        (["import", str(DATA / "readers.opml"), "--route-profile", "x"], 5, "unknown route profile"),
    ],
)
def test_what_cannot_be_done_is_said_in_a_sentence_with_its_exit_code(call, arguments, code, said):
    result = call("sources", *arguments)
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        assert isinstance(result.exception, CsiError), result.exception
        assert (result.exception.exit_code, said in str(result.exception)) == (code, True)
    else:
        assert result.exit_code == code
        assert said in result.output


def test_without_a_key_a_handle_is_refused_and_the_free_forms_are_named(call):
    result = call("sources", "add", "@somebody", YOUTUBE_API_KEY="")
    assert "YouTube's page could not be read" in str(result.exception)
    assert "give a channel id (UC…)" in str(result.exception)


def test_pause_and_resume_work_for_both_origins(call):
    call("sources", "add", UC[1])
    for ref in (UC[0], UC[1]):
        assert call("sources", "pause", ref).stdout.endswith(": paused\n")
        assert "is paused; nothing changed" in call("sources", "pause", ref).stdout
        assert rows(call)[ref]["state"] == "paused"
        assert call("sources", "resume", ref).stdout.endswith(": resumed\n")
    assert {row["state"] for row in rows(call).values()} == {"active"}


def test_remove_and_reset_ask_first(call, monkeypatch):
    call("sources", "add", UC[1], "--name", "Second")
    for arguments in (["remove", "Second"], ["reset", UC[0]], ["reset", UC[0], "--emit", "none"]):
        assert call("sources", *arguments).exit_code == 2, "nobody is there to answer"
    monkeypatch.setattr("csi.cli.output.is_terminal", lambda: True)
    monkeypatch.setattr("csi.cli.sources.is_terminal", lambda: True)
    assert call("sources", "remove", "Second", given="n\n").exit_code == 1
    assert UC[1] in rows(call)
    assert call("sources", "remove", "Second", given="y\n").exit_code == 0
    assert UC[1] not in rows(call)
    asked = call("sources", "reset", UC[0], given="none\ny\n")
    assert "What should the next poll emit" in asked.stdout
    assert "the next poll emits none" in asked.stdout


def test_a_poll_that_fails_is_an_exit_code_and_a_sentence(call):
    result = call("sources", "poll", UC[0])
    assert result.exit_code == 1
    assert "could not be polled: the feed could not be read" in result.stdout
    assert "canary-key" not in result.output
    data = json.loads(call("sources", "poll", UC[0], "--json").stdout)
    assert set(data) == {"watch", "new_items", "busy", "error", "units", "waits_until"}


def test_an_import_from_standard_input_names_each_line(call):
    result = call("sources", "import", "-", given=f"{UC[3]}\n{UC[0]}\nnonsense\n")
    assert result.exit_code == 5
    assert result.stdout.splitlines()[-1] == "1 added, 1 known, 1 invalid"
    assert f"line 1: added {UC[3]}" in result.stdout
    assert "line 3: invalid nonsense" in result.stdout
    data = json.loads(call("sources", "import", "-", "--json", given=f"{UC[3]}\n").stdout)
    assert (data["known"], data["lines"][0]["result"]) == (1, "known")


def test_an_export_comes_back_as_known(call):
    text = call("sources", "export").stdout
    assert text.startswith('<?xml version="1.0"')
    result = call("sources", "import", "-", given=text)
    assert (result.exit_code, result.stdout.splitlines()[-1]) == (0, "0 added, 2 known, 0 invalid")


def test_text_of_others_cannot_touch_the_terminal(call):
    call("sources", "list")
    hostile = "\x1b]0;owned\x07 \x9b31m \u202e evil\nline"
    with db.connection():
        Watch.update(name=hostile, last_error=hostile, note=hostile).execute()
    for command in (["list"], ["pause", UC[0]], ["poll", UC[0]]):
        shown = call("sources", *command).output
        assert not set(shown) & set("\x1b\x07\x9b\u202e"), command
    assert rows(call)[PL[0]]["name"] is None or "\\u001b" in call("sources", "list", "--json").stdout


def test_the_quota_is_told_in_words_and_numbers(call):
    call("sources", "list")
    with db.connection():
        api_units.book(1_200, 10_000, clock.now())
    said = call("quota").stdout
    assert "used      1,200 of 10,000 units; 8,800 left, 1,000 reserved" in said
    assert "forecast  at this rate the budget lasts until " in said
    assert "1 playlist can stay at 20 s" in said
    data = json.loads(call("quota", "--json").stdout)
    assert (data["used"], data["left"], data["limit"], data["warning"]) == (1_200, 8_800, 10_000, None)
    assert data["intervals"] == [{"seconds": 20.0, "watches": 1, "as_configured": True, "as_wished": True}]


def test_a_hundred_playlists_are_warned_of_in_quota_and_config_check(call, home):
    config = yaml.safe_load((home / "config.yaml").read_text())
    config["sources"]["youtube_playlist"]["playlists"] = [{"id": f"PL{number:032d}"} for number in range(100)]
    (home / "config.yaml").write_text(yaml.safe_dump(config))
    sentence = "100 playlists every 300 s need 28,800 units of 10,000"
    assert sentence in call("quota").stdout
    assert f"warning: sources.youtube_playlist: {sentence}" in call("config", "check").stderr


def test_a_buffer_as_large_as_the_limit_is_warned_of(call, home):
    config = yaml.safe_load((home / "config.yaml").read_text())
    config["sources"]["youtube_playlist"]["quota_limit"] = 500
    (home / "config.yaml").write_text(yaml.safe_dump(config))
    assert "min_quota_buffer 1,000 leaves nothing of quota_limit 500" in call("config", "check").stderr


def test_the_pace_of_reddit_is_shown_wherever_the_quota_plan_is(call, home):
    config = yaml.safe_load((home / "config.yaml").read_text())
    config["sources"]["reddit_subreddit"] = {"subreddits": [{"name": "aa"}]}
    (home / "config.yaml").write_text(yaml.safe_dump(config))
    assert "with it, 2 subreddits in 1 group" in call("sources", "add", "r/bb").stdout
    assert "with it, 3 subreddits in 1 group" in call("sources", "add", "r/cc", "--dry-run").stdout
    assert "with it, 3 subreddits in 1 group" in call("sources", "add", "r/cc").stdout, "bb was added by command"
    (pace,) = json.loads(call("quota", "--json").stdout)["host_pacing"]
    assert pace["plan"].startswith("3 subreddits in 1 group, each every 3 min (one request every 61 s)")
    assert (pace["host"], pace["spacing_seconds"], pace["learned"], pace["next_at"]) == ("reddit.com", 61, False, None)
    assert json.loads(call("status", "--json").stdout)["host_pacing"] == [pace]
    line = f"host      reddit.com: one request every 61 s; {pace['plan']}"
    assert line in call("quota").stdout.splitlines()
    assert line in call("status").stdout.splitlines()
    checked = call("config", "check")
    assert "note: sources.reddit_subreddit: 1 subreddit in 1 group" in checked.stdout
    assert "reddit" not in checked.stderr
    assert call("config", "check", "--json").stdout.count("no posts are missed") == 1


# --- text for a terminal


def test_columns_stand_under_each_other_in_every_script():
    lines = table(("A", "B", "C"), [("日本", "x", "end"), ("e\u0301", "y", "end")])
    assert {columns(line[: line.rindex("end")]) for line in lines[1:]} == {4 + 2 + 1 + 2}
    assert plain("日本語チャンネル", 7) == "日本語…"


@pytest.mark.parametrize(("seconds", "words"), [(None, "–"), (5, "5 s"), (-3, "0 s"), (119, "119 s"), (600, "10 min")])
def test_times_are_short(seconds, words):
    assert ago(seconds) == words


def test_a_watch_is_shown_and_its_options_are_set(call):
    assert call("sources", "add", UC[1], "--interval", "2m", "--title-not", "(?i)live").exit_code == 0
    done = call("sources", "set", UC[1], "--interval", "15m", "--title-match", "rust", "--name", "Second")
    assert done.exit_code == 0, done.output
    assert "changed name from the source's default to Second; interval from 120 s to 900 s" in done.stdout
    shown = json.loads(call("sources", "show", UC[1], "--json").stdout)
    assert shown["options"] == {
        "name": "Second", "poll_interval_seconds": 900.0, "title": {"match": "rust", "not": "(?i)live"},
    }  # fmt: skip
    assert shown["reads"] == []
    again = json.loads(call("sources", "set", UC[1], "--default", "interval", "--dry-run", "--json").stdout)
    assert again["changes"] == [{"key": "poll_interval_seconds", "before": 900.0, "after": None}]
    assert "option poll_interval_seconds     900 s" in call("sources", "show", UC[1], "--reads").stdout


def test_set_refuses_what_cannot_be_changed(call):
    assert call("sources", "add", UC[1]).exit_code == 0
    assert call("sources", "set", UC[1]).exit_code == 2
    unknown = call("sources", "set", UC[1], "--default", "colour")
    assert (unknown.exit_code, "not an option of a watch" in unknown.output) == (2, True)
    stale = call("sources", "set", UC[1], "--name", "x", "--revision", "0")
    assert "was changed meanwhile" in str(stale.exception)
    assert call("sources", "set", UC[1], "--name", "x", "--from-file").exit_code == 2
    added = call("sources", "set", UC[1], "--from-file")
    assert "added by command" in str(added.exception)


def test_changed_options_of_a_configured_watch_outlast_a_reload_of_its_file(call, home):
    path = home / "config.yaml"

    def edit(**keys: object) -> None:
        document = yaml.safe_load(path.read_text())
        document["sources"]["youtube_channel_rss"]["watchlist"][0] |= keys
        path.write_text(yaml.safe_dump(document))
        assert call("sources", "list").exit_code == 0  # no worker runs: the command reads the file

    edit(tags=["file"], poll_interval_seconds=600)
    assert call("sources", "set", UC[0], "--interval", "4m").exit_code == 0
    edit(name="Renamed", title={"match": "rust"})
    shown = json.loads(call("sources", "show", UC[0], "--json").stdout)
    assert (shown["origin"], shown["interval_seconds"], shown["changed_options"]) == (
        "config", 240.0, ["poll_interval_seconds"],
    )  # fmt: skip
    assert shown["options"] == {
        "name": "Renamed", "tags": ["file"], "poll_interval_seconds": 240.0, "title": {"match": "rust"},
    }  # fmt: skip
    assert "config, changed" in call("sources", "list").stdout
    assert call("sources", "set", UC[0], "--default", "interval").exit_code == 0
    edit(name="Again")
    assert rows(call)[UC[0]]["interval_seconds"] == 300
    assert call("sources", "set", UC[0], "--from-file").exit_code == 0
    assert (rows(call)[UC[0]]["interval_seconds"], "config, changed" in call("sources", "list").stdout) == (600, False)


def test_a_changed_option_that_no_longer_fits_the_file_is_ignored_with_a_warning(call, home):
    assert call("sources", "set", UC[0], "--max-duration", "5m").exit_code == 0
    document = yaml.safe_load((home / "config.yaml").read_text())
    document["sources"]["youtube_channel_rss"]["watchlist"][0] |= {"min_duration_seconds": 600, "name": "Long ones"}
    (home / "config.yaml").write_text(yaml.safe_dump(document))
    assert rows(call)[UC[0]]["name"] == "Long ones"
