"""Which items of a watch are wanted (decision 0042, 20), and how the configuration says so."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from csi.adapters import registry
from csi.adapters.youtube_channel_rss import ChannelSettings, ChannelWatch
from csi.config.loader import read_config
from csi.config.source_settings import KINDS
from csi.errors import ConfigError
from csi.scheduling import filters
from csi.scheduling.filters import Facts, Filters, wanted

NO_SHORTS = Filters(include=("video", "live", "upcoming"))
VIDEOS = Filters(include=("video",))
LENGTHS = Filters(min_seconds=60, max_seconds=3600)


@pytest.mark.parametrize(
    ("rule", "facts", "verdict"),
    [
        (Filters(), Facts("short", "Anything", 5), "wanted"),
        (Filters(), Facts(), "wanted"),
        (NO_SHORTS, Facts("short"), "unwanted"),
        (NO_SHORTS, Facts("video"), "wanted"),
        (NO_SHORTS, Facts(None), "wanted"),
        (NO_SHORTS, Facts("podcast"), "wanted"),  # a kind of another source: not ours to judge
        (VIDEOS, Facts("upcoming"), "not_yet"),  # a premiere becomes a video
        (VIDEOS, Facts("live"), "not_yet"),
        (Filters(include=("short",)), Facts("live"), "unwanted"),
        (Filters(include=("live",)), Facts("upcoming"), "not_yet"),
        (Filters(title_match="(?i)rust"), Facts("video", "Learn RUST"), "wanted"),
        (Filters(title_match="rust"), Facts("video", "Learn Go"), "unwanted"),
        (Filters(title_not="#shorts"), Facts("video", "Fun #shorts"), "unwanted"),
        (Filters(title_match="a", title_not="b"), Facts("video", "ab"), "unwanted"),
        (Filters(title_match="a"), Facts("video", None), "wanted"),
        (LENGTHS, Facts("video", duration_seconds=59), "unwanted"),
        (LENGTHS, Facts("video", duration_seconds=60), "wanted"),
        (LENGTHS, Facts("video", duration_seconds=3601), "unwanted"),
        (LENGTHS, Facts("video"), "wanted"),  # not known
    ],
)
def test_verdicts(rule, facts, verdict):
    assert wanted(rule, facts) == verdict


@pytest.mark.parametrize(
    ("subject", "facts"),
    [
        ({"kind": "video", "title": "A", "duration_seconds": 90}, Facts("video", "A", 90)),
        ({"kind": "live", "title": "A", "duration_seconds": 90}, Facts("live", "A", None)),
        ({"kind": 7, "title": None, "duration_seconds": "90"}, Facts()),
        ({"duration_seconds": True}, Facts()),
        ({}, Facts()),
    ],
)
def test_facts_are_taken_from_a_subject_as_far_as_they_can_be_read(subject, facts):
    assert filters.facts_of(subject) == facts


def test_a_watchs_own_filters_win_key_by_key():
    source = ChannelSettings(include=("video", "short"), title={"not": "ad"}, min_duration_seconds="1m")
    watch = ChannelWatch(channel_id="UCxxx", include=("live",), max_duration_seconds=600)
    stored = source.filters_of(watch)
    assert stored == {
        "include": ["live"],
        "title": {"not": "ad"},
        "min_duration_seconds": 60,
        "max_duration_seconds": 600,
    }
    assert filters.load(json.dumps(stored)) == Filters(("live",), None, "ad", 60, 600)


def test_everything_is_stored_as_nothing():
    assert ChannelSettings().filters_of(ChannelWatch(channel_id="UCxxx", include=KINDS)) == {}
    assert filters.load("{}") == Filters()


@pytest.mark.parametrize(
    ("key", "said"),
    [
        ("include: [video, podcast]", "expected 'video', 'short', 'live' or 'upcoming'"),
        ("include: []", "expected at least one of video, short, live, upcoming"),
        ("title: {match: '['}", "expected a regular expression: unterminated character set"),
        ("title: {match: '(?<!b)(a+)+$'}", "this pattern can match one title in more than 2,000,000 ways"),
        ("title: {maych: x}", "unknown key; did you mean match?"),
        ("min_duration_seconds: soon", "expected seconds (90, 1.5) or a duration"),
        ("{min_duration_seconds: 90, max_duration_seconds: 60}", "no item would be included"),
    ],
)
def test_a_bad_filter_is_a_config_error_with_its_line(tmp_path, key, said):
    key = key.strip("{}") if key.startswith("{") else key
    lines = ["sources:", "  youtube_channel_rss:", "    watchlist:", "      - channel_id: UCxxx"]
    lines += [f"        {part}" for part in (key.split(", ") if "min_duration_seconds: 90" in key else [key])]
    path = tmp_path / "config.yaml"
    path.write_text("\n".join(lines) + "\n")
    with pytest.raises(ConfigError) as caught:
        read_config(path, env={}, sources=registry.settings_models())
    assert said in str(caught.value)
    assert any(f"{path}:{line}:" in str(caught.value) for line in (4, 5))


def test_a_stored_pattern_that_is_refused_keeps_no_item_out():
    slow = "(?<!b)(a+)+$"
    stored = json.dumps({"title": {"match": slow, "not": slow}})
    assert wanted(filters.load(stored), Facts("video", "a" * 99 + "!")) == "wanted"
    assert "more than 2,000,000 ways" in filters.refused_patterns(["{}", stored])[stored]


@given(st.text(max_size=600), st.sampled_from(["", *KINDS, "other"]), st.none() | st.floats(0, 1e6))
def test_any_item_gets_a_verdict(title, kind, seconds):
    rule = Filters(("video",), "a", "b", 10, 100)
    assert wanted(rule, Facts(kind, title, seconds)) in ("wanted", "unwanted", "not_yet")
