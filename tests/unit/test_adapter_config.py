"""What sources may say in the config, and what the runtime makes of it: secrets, one budget for all, spare units."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from csi.adapters.base import Position
from csi.errors import ConfigError, SourceError
from csi.net import Net
from csi.runtime import Runtime, load_settings, secret_values

OAUTH = {
    "YOUTUBE_OAUTH_CLIENT_ID": "client-id-canary",
    "YOUTUBE_OAUTH_CLIENT_SECRET": "client-secret-canary",
    "YOUTUBE_OAUTH_REFRESH_TOKEN": "refresh-token-canary",
}


def settings_of(tmp_path: Path, env: dict[str, str] | None = None, **sources: Any):
    config = tmp_path / "config.yaml"
    config.write_text(yaml.safe_dump({"csi": {"state_dir": str(tmp_path)}, "sources": sources}))
    return load_settings(config, env or {})


def test_the_oauth_variables_reach_the_adapter_and_are_known_to_the_logs_redaction(tmp_path):
    settings = settings_of(tmp_path, OAUTH, youtube_playlist={})
    runtime = Runtime(settings, Net())
    assert [runtime.adapter("youtube_playlist").tools.secret(name) for name in OAUTH] == list(OAUTH.values())
    assert set(OAUTH.values()) <= set(secret_values(settings))
    assert "canary" not in repr(settings)


def test_the_oauth_variables_may_have_other_names_and_be_files(tmp_path):
    (tmp_path / "token").write_text("refresh-token-canary\n")
    named = {"oauth": {"refresh_token_env": "MY_TOKEN"}}
    settings = settings_of(tmp_path, {"MY_TOKEN_FILE": str(tmp_path / "token")}, youtube_playlist=named)
    assert Runtime(settings, Net()).adapter("youtube_playlist").tools.secret("MY_TOKEN") == "refresh-token-canary"


@pytest.mark.parametrize(
    ("block", "words"),
    [
        ({"oauth": {"client_id": "abc"}}, "client_id"),
        ({"oauth": {"token_url": "http://example.org/token"}}, "plain http"),
        ({"oauth": {"refresh_token_env": "not a name"}}, "refresh_token_env"),
        ({"via": "rss"}, "via"),
        ({"quota_limit": 0}, "quota_limit"),
        ({"watchlist": [{"channel_id": "UC1", "via": "sometimes"}]}, "via"),
        ({"enrich": "perhaps"}, "enrich"),
        ({"feed_url_template": "${YOUTUBE_OAUTH_REFRESH_TOKEN}{channel_id}"}, "is a secret"),
    ],
)
def test_a_wrong_value_is_refused_with_its_line(tmp_path, block, words):
    with pytest.raises(ConfigError, match=r"config\.yaml:\d+:\d+") as caught:
        settings_of(tmp_path, OAUTH, youtube_channel_rss=block)
    assert words in str(caught.value)
    assert "canary" not in str(caught.value)


@pytest.mark.parametrize(
    ("playlist", "channel", "limit"),
    [
        ({}, {}, 10_000),
        ({"quota_limit": 50_000}, {}, 50_000),
        ({}, {"quota_limit": 500}, 500),
        ({"quota_limit": 50_000}, {"quota_limit": 20_000}, 20_000),
    ],
)
def test_one_project_has_one_budget(tmp_path, playlist, channel, limit):
    settings = settings_of(tmp_path, youtube_playlist=playlist, youtube_channel_rss=channel)
    assert Runtime(settings, Net()).api_limit() == limit


def test_a_source_that_does_not_say_how_to_reach_the_api_does_as_the_other(tmp_path):
    said = {"api_base_url": "http://127.0.0.1:9/youtube/v3", "api_key_env": "MY_KEY"}
    feed = {"feed_url_template": "http://127.0.0.1:9/{channel_id}"}
    settings = settings_of(tmp_path, {"MY_KEY": "a-key"}, youtube_playlist=said, youtube_channel_rss=feed)
    adapter = Runtime(settings, Net()).adapter("youtube_channel_rss")
    assert (adapter.host("UC1", "api"), adapter.settings.api_key_env, adapter.api.usable) == (
        "127.0.0.1:9",
        "MY_KEY",
        True,
    )
    own = {**feed, "api_base_url": "http://127.0.0.1:8/youtube/v3"}
    settings = settings_of(tmp_path, {"MY_KEY": "a-key"}, youtube_playlist=said, youtube_channel_rss=own)
    assert Runtime(settings, Net()).adapter("youtube_channel_rss").host("UC1", "api") == "127.0.0.1:8"


def test_a_simulated_feed_never_takes_its_key_to_the_real_api(tmp_path):
    feed = {"feed_url_template": "http://127.0.0.1:9/{channel_id}"}
    settings = settings_of(tmp_path, {"YOUTUBE_API_KEY": "demo-key"}, youtube_channel_rss=feed)
    adapter = Runtime(settings, Net()).adapter("youtube_channel_rss")
    assert adapter.confirm("UC1") == "unknown"
    assert adapter.fill_gap(Position("UC1"), 0.0) is None
    with pytest.raises(SourceError, match="api_base_url"):
        adapter.read(Position("UC1", via="api"))
