"""`csi config` and `csi schema` as a person or a script sees them."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from csi.cli.main import cli
from csi.errors import ConfigError

DATA = Path(__file__).parents[1] / "data" / "config"
ENV = {
    "CSI_UA_ENDPOINT": "https://ua.example.net/api/v1/signals/ingest",
    "CSI_UA_SHARED_SECRET": "canary-secret-1",
    "CSI_ADMIN_TOKEN": "canary-secret-2",
    "YOUTUBE_API_KEY": "canary-secret-3",
    "CSI_DATABASE_URL": "postgresql://csi:canary-secret-4@db/csi",
    "CSI_HEARTBEAT_URL": "https://hc.example.net/canary-secret-0",
    "PORT": "9000",
}


def call(*arguments: str, env: dict[str, str] | None = None) -> Result:
    clean = {name: None for name in os.environ if name.startswith(("CSI_", "YOUTUBE_")) or name == "PORT"}
    return CliRunner().invoke(cli, list(arguments), env={**clean, **(ENV if env is None else env)})


def test_check_is_one_line_when_all_is_good() -> None:
    result = call("config", "check", "--config", str(DATA / "real_ids.yaml"))
    assert result.exit_code == 0
    assert result.stdout == f"{DATA}/real_ids.yaml: valid; 2 enabled sources, 2 watches, 2 route profiles\n"
    assert result.stderr == ""


def test_check_refuses_placeholders_with_which_the_worker_still_starts() -> None:
    result = call("config", "check", "--config", str(DATA / "prd.yaml"))
    assert [line.split()[1] for line in str(result.exception).splitlines()][-2:] == [
        "sources.youtube_playlist.playlists[0].id:",
        "sources.youtube_channel_rss.watchlist[0].channel_id:",
    ]
    started = call("config", "check", "--start", "--config", str(DATA / "prd.yaml"))
    warned = [line.split(": ")[-1] for line in started.stderr.splitlines() if "placeholder" in line]
    assert (started.exit_code, warned) == (
        0,
        [f"{name} is a placeholder; write the real id" for name in ("PLxxx", "UCxxx")],
    )


def test_check_start_refuses_what_the_services_refuse() -> None:
    result = call("config", "check", "--start", "--config", str(DATA / "real_ids.yaml"), env={})
    assert "CSI_UA_ENDPOINT and CSI_UA_SHARED_SECRET not set" in str(result.exception)


def test_check_warns_of_variables_that_a_shell_reads_differently(tmp_path: Path) -> None:
    (tmp_path / "env").write_text('A=plain\nB=with$dollar\nC=\'with $ and "\'\nD="with $dollar"\n')
    result = call("--env-file", str(tmp_path / "env"), "config", "check", "--config", str(DATA / "real_ids.yaml"))
    assert [line.split(":")[2] for line in result.stderr.splitlines()] == ["2", "4"]


WRONG_IDS = """sources:
  youtube_playlist:
    playlists:
      - {id: UCaaaaaaaaaaaaaaaaaaaaaa}
      - {id: PLaaaaaaaaaaaaaaaa}
      - {id: somehandle}
      - {id: WL}
  youtube_channel_rss:
    watchlist:
      - channel_id: UCaaa
      - {name: x, channel_id: PLaaaaaaaaaaaaaaaa}
      - channel_id: somehandle
      - channel_id: UCaaaaaaaaaaaaaaaaaaaaaa
"""


def test_check_refuses_ids_that_cannot_exist_and_the_file_still_loads(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(WRONG_IDS)
    result = call("config", "check", "--config", str(file))
    assert isinstance(result.exception, ConfigError)
    lines = str(result.exception).replace(f"{file}:", "").splitlines()
    assert [line.split(": ")[0] for line in lines] == ["4:14", "6:14", "7:14", "10:21", "11:31", "12:21"]
    assert "this is the id of a channel; watch it under sources.youtube_channel_rss" in lines[0]
    assert "list= in the playlist's URL" in lines[1]
    assert "watch-later list" in lines[2]
    assert "UC and 22 characters; `csi sources add --dry-run @handle`" in lines[3]
    assert "this is the id of a playlist; watch it under sources.youtube_playlist" in lines[4]
    assert call("config", "show", "--config", str(file)).exit_code == 0  # as the worker does


@pytest.mark.parametrize("text", ["@somehandle", "https://www.youtube.com/@somehandle"])
def test_a_handle_or_a_url_is_no_id(tmp_path: Path, text: str) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(f"sources: {{youtube_channel_rss: {{watchlist: [{{channel_id: '{text}'}}]}}}}")
    result = call("config", "check", "--config", str(file))
    assert "expected an id (`csi sources add --dry-run` with this handle or URL shows it)" in str(result.exception)


def test_check_warns_when_nothing_can_be_delivered() -> None:
    result = call("config", "check", "--config", str(DATA / "real_ids.yaml"), env={})
    assert result.exit_code == 0
    assert [line.split(":")[1] for line in result.stderr.splitlines()] == [
        " sources.youtube_playlist",
        " delivery.ua_endpoint",
        " delivery.shared_secret",
        " notify",
    ]


@pytest.mark.parametrize(
    ("env", "warned"),
    [
        ({}, []),
        (
            {"CSI_UA_ENDPOINT": "http://127.0.0.1:1/"},
            ["delivery.shared_secret: not set, so nothing is delivered to it"],
        ),
    ],
    ids=["named destinations alone", "and a receiver without its secret"],
)
def test_named_destinations_need_no_receiver(tmp_path: Path, env: dict[str, str], warned: list[str]) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("delivery: {destinations: {n8n: {preset: n8n, endpoint: 'http://127.0.0.1:9/'}}}")
    result = call("config", "check", "--config", str(file), env=env)
    lines = [line.removeprefix("warning: ") for line in result.stderr.splitlines()]
    assert [line.partition(";")[0] for line in lines if line.startswith("delivery.")] == warned


@pytest.mark.parametrize(
    ("name", "value", "is_warned"),
    [
        ("CSI_NOTIFY_URLS", "json://127.0.0.1/", False),
        ("CSI_HEARTBEAT_URL", "https://hc.example.net/", False),
        ("PORT", "9000", True),
    ],
)
def test_check_warns_where_operators_would_not_be_notified(name: str, value: str, is_warned: bool) -> None:
    result = call("config", "check", "--config", str(DATA / "real_ids.yaml"), env={name: value})
    assert ("neither a notification target nor a heartbeat URL is set" in result.stderr) is is_warned


def test_check_as_json() -> None:
    result = call("config", "check", "--json", env={"CSI_CONFIG_PATH": str(DATA / "real_ids.yaml")})
    assert json.loads(result.stdout)["watches"] == 2
    assert len(json.loads(result.stdout)["warnings"]) == 4


@pytest.mark.parametrize(
    ("env", "said"),
    [
        ({}, "1 watch needs the API, which is not accessible; set YOUTUBE_API_KEY, or the three variables of oauth"),
        (
            {"YOUTUBE_OAUTH_CLIENT_ID": "canary-secret-5"},
            "set YOUTUBE_OAUTH_CLIENT_SECRET, YOUTUBE_OAUTH_REFRESH_TOKEN",
        ),
        ({"YOUTUBE_API_KEY": "canary-secret-3"}, None),
    ],
    ids=["no-key", "half-an-oauth", "a-key"],
)
def test_check_warns_of_playlists_without_a_key(env: dict[str, str], said: str | None) -> None:
    result = call("config", "check", "--config", str(DATA / "real_ids.yaml"), env=env)
    warnings = [line for line in result.stderr.splitlines() if "sources." in line]
    assert (said is None) == (warnings == [])
    assert said is None or said in warnings[0]
    assert "canary" not in result.output


def test_check_raises_all_problems_for_the_entry_point_to_print() -> None:
    result = call("config", "check", "--config", str(DATA / "broken.yaml"))
    assert isinstance(result.exception, ConfigError)
    assert len(str(result.exception).splitlines()) > 10


@pytest.mark.parametrize("flags", [[], ["--json"], ["--origin"], ["--origin", "--json"]])
def test_show_never_prints_a_secret(flags: list[str]) -> None:
    result = call("config", "show", "--config", str(DATA / "real_ids.yaml"), *flags)
    assert result.exit_code == 0
    assert "canary" not in result.output
    assert result.stdout.count("********") == 5


@pytest.mark.parametrize("flags", [[], ["--json"], ["--origin"]])
def test_show_gives_the_effective_values(flags: list[str]) -> None:
    shown = yaml.safe_load(call("config", "show", "--config", str(DATA / "real_ids.yaml"), *flags).stdout)
    assert shown["web"]["port"] == 9000
    assert shown["csi"]["database"] == "postgresql://csi:********@db/csi"
    assert shown["sources"]["youtube_playlist"]["playlists"][0]["id"] == "PLBCF2DAC6FFB574DE"
    assert shown["delivery"]["shared_secret"] == "********"
    assert shown["delivery"]["bearer_token"] is None
    assert shown["secrets"] == {
        "CSI_ADMIN_TOKEN": "********",
        "CSI_ADMIN_READ_TOKEN": None,
        "CSI_FEED_TOKEN": None,
        "CSI_INBOUND_KEY": None,
        "CSI_QUEUE_SECRET": None,
        "CSI_NOTIFY_URLS": None,
        "CSI_HEARTBEAT_URL": "********",
        "YOUTUBE_API_KEY": "********",
        "YOUTUBE_OAUTH_CLIENT_ID": None,
        "YOUTUBE_OAUTH_CLIENT_SECRET": None,
        "YOUTUBE_OAUTH_REFRESH_TOKEN": None,
    }


def test_show_says_where_each_value_comes_from() -> None:
    path = DATA / "real_ids.yaml"
    shown = json.loads(call("config", "show", "--origin", "--json", "--config", str(path)).stdout)

    def origin(*keys: str) -> Any:
        block = shown
        for key in keys:
            block = block[key]
        return block["origin"]

    assert origin("web", "port") == "environment variable PORT"
    assert origin("web", "host") == "default"
    assert origin("csi", "environment") == f"{path}:4"
    assert origin("route_profiles", "youtube_explainer", "tags") == f"{path}:38"
    assert origin("delivery", "shared_secret") == "environment variable CSI_UA_SHARED_SECRET"
    assert origin("secrets", "YOUTUBE_API_KEY") == "environment variable YOUTUBE_API_KEY"
    assert origin("secrets", "CSI_QUEUE_SECRET") == "not set"


def test_show_survives_strange_text(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text('csi:\n  environment: "a\\n# b: \\u2028 ü {"\nroute_profiles:\n  "on": {pipeline: "x: y"}\n')
    text = call("config", "show", "--origin", "--config", str(file)).stdout
    assert yaml.safe_load(text)["csi"]["environment"] == "a\n# b: \u2028 ü {"
    assert yaml.safe_load(text)["route_profiles"]["on"]["pipeline"] == "x: y"


@pytest.mark.parametrize("what", ["event", "request", "config"])
def test_schemas_are_whole(what: str) -> None:
    schema = json.loads(call("schema", what).stdout)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"
    assert schema["title"].startswith("CSI")
    assert schema["type"] == "object"
    for reference in _references(schema):
        assert reference.removeprefix("#/$defs/") in schema["$defs"]


def test_the_configs_schema_knows_the_sources_and_refuses_other_keys() -> None:
    schema = json.loads(call("config", "schema").stdout)
    assert schema == json.loads(call("schema", "config").stdout)
    assert set(schema["$defs"]["Sources"]["properties"]) == {
        "youtube_playlist",
        "youtube_channel_rss",
        "feed",
        "reddit_subreddit",
    }
    assert "secrets" not in schema["properties"]
    blocks = [schema, *schema["$defs"].values()]
    assert all(block["additionalProperties"] is False for block in blocks if "properties" in block)


def test_an_unknown_schema_is_a_usage_error() -> None:
    assert call("schema", "nothing").exit_code == 2


def _references(value: Any) -> list[str]:
    if isinstance(value, dict):
        own = [value["$ref"]] if isinstance(value.get("$ref"), str) else []
        return own + [found for inner in value.values() for found in _references(inner)]
    return [found for inner in value for found in _references(inner)] if isinstance(value, list) else []
